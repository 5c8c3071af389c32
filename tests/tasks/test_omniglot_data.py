from __future__ import annotations

import io
import itertools
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.images.config import OmniglotConfig
from leap_rl.tasks.images.data import (
    alphabet_pools,
    decode,
    downsample,
    read_omniglot,
    resolve_alphabets,
    task_images,
)
from leap_rl.tasks.suites import OmniglotSuite, open_data
from tests.tasks.omniglot_images import write_folder, write_zip

SUITE = OmniglotSuite()
REAL = Path(__file__).parents[1] / "data/omniglot/images_background_small1/Greek"
DRAWING = REAL / "character01/0394_01.png"

SMALL1 = {"Greek": 21, "Latin": 20, "Tagalog": 17}
SMALL2 = {"Greek": 22, "Sanskrit": 22}


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zipped")
    write_zip(folder / "images_background_small1.zip", SMALL1)
    write_zip(folder / "images_background_small2.zip", SMALL2)
    return folder


def config(**options: object) -> TaskConfig:
    return TaskConfig(kind="omniglot", **options)  # type: ignore[arg-type]


def test_a_real_drawing_is_ink_on_paper() -> None:
    paper = np.asarray(Image.open(DRAWING), dtype=np.float64)
    assert paper.shape == (105, 105)
    pixels = decode(DRAWING.read_bytes())
    assert (pixels.shape, pixels.dtype) == ((28, 28), np.uint8)
    # The mean over the area keeps the amount of ink.
    assert pixels.mean() / 255 == pytest.approx(1 - paper.mean(), abs=0.002)
    assert pixels[0].max() == 0
    assert pixels.max() > 128


def test_downsampling_is_the_mean_over_each_pixels_area() -> None:
    image = np.random.default_rng(0).random((105, 105))
    # 105 · 4 = 28 · 15: both grids are whole numbers of quarters of a fine pixel.
    quarters = np.kron(image, np.ones((4, 4)))
    means = quarters.reshape(28, 15, 28, 15).mean(axis=(1, 3))
    np.testing.assert_allclose(downsample(image, 28), means, rtol=1e-12)


def test_an_alphabet_of_several_splits_counts_once(zipped: Path) -> None:
    data = read_omniglot(str(zipped))
    sizes = {name: len(characters) for name, characters in data.alphabets.items()}
    assert sizes == {"Greek": 21, "Latin": 20, "Sanskrit": 22, "Tagalog": 17}
    assert all(len(images) == 20 for images in data.alphabets["Greek"].values())


def test_folders_zips_and_single_splits_are_the_same_data(zipped: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "images_background_small1", SMALL1)
    shutil.copy(zipped / "images_background_small2.zip", tmp_path)
    mixed = read_omniglot(str(tmp_path))
    assert mixed.sha256 == read_omniglot(str(zipped)).sha256
    folder = read_omniglot(str(tmp_path / "images_background_small1"))
    file = read_omniglot(str(zipped / "images_background_small1.zip"))
    assert folder.sha256 == file.sha256 != mixed.sha256
    assert list(file.alphabets) == ["Greek", "Latin", "Tagalog"]
    named = task_images(str(tmp_path), "Greek", 0)
    np.testing.assert_array_equal(named, task_images(str(zipped), "Greek", 0))


def test_one_drawing_more_or_another_changes_the_digest_or_is_refused(tmp_path: Path) -> None:
    split = tmp_path / "images_background"
    write_folder(split, {"Latin": 1})
    images = sorted((split / "Latin/character01").iterdir())
    before = read_omniglot(str(tmp_path)).sha256
    images[0].write_bytes(images[1].read_bytes())
    read_omniglot.cache_clear()
    assert read_omniglot(str(tmp_path)).sha256 != before
    images[0].unlink()
    read_omniglot.cache_clear()
    with pytest.raises(ValueError, match=r"Latin/character01 has 19 images"):
        read_omniglot(str(tmp_path))


def test_missing_data_is_told_in_one_line_with_the_way_out(tmp_path: Path) -> None:
    for task, message in (
        (config(), r"task\.data = null.*github\.com/brendenlake/omniglot"),
        (config(data=str(tmp_path / "none")), r"no such file.*github\.com"),
        (config(data=str(tmp_path)), r"holds none of images_background, .*github\.com"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            SUITE.resolve(task)
        assert "\n" not in str(error.value)


def test_a_zip_that_is_damaged_encrypted_or_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "images_background.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images_background/Latin/character01/0001_01.png", b"image" * 99)
        (entry,) = archive.infolist()
    whole = file.read_bytes()
    damaged = bytearray(whole)
    begin = 30 + len(entry.filename)
    damaged[begin : begin + entry.compress_size] = b"\xff" * entry.compress_size
    encrypted = bytearray(whole)
    encrypted[6] |= 1  # the flag, of the entry and of the directory
    encrypted[whole.index(b"PK\x01\x02") + 8] |= 1
    for content, reason in ((damaged, "invalid"), (encrypted, "encrypted"), (b"torn", "")):
        file.write_bytes(content)
        read_omniglot.cache_clear()
        with pytest.raises(ValueError, match=rf"images_background\.zip cannot be read.*{reason}"):
            read_omniglot(str(tmp_path))


def test_what_lies_beside_the_alphabets_is_left_out(zipped: Path, tmp_path: Path) -> None:
    shutil.copy(zipped / "images_background_small1.zip", tmp_path)
    with zipfile.ZipFile(tmp_path / "images_background_small1.zip", "a") as archive:
        archive.writestr("images_background_small1/overview.png", b"stray")
        archive.writestr("__MACOSX/images_background_small1/Greek/character01/._a.png", b"notes")
    file = str(zipped / "images_background_small1.zip")
    assert read_omniglot(str(tmp_path)).sha256 == read_omniglot(file).sha256


def png(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("1", (width, height), 1).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"no image", "is no whole PNG file"),
        (png(105, 105)[:-5], "is no whole PNG file"),
        (png(105, 90), "has 105 × 90 pixels, and those that were published 105 × 105"),
        (png(20, 20), "has 20 × 20 pixels"),
    ],
)
def test_a_file_that_is_no_drawing_is_named_before_anything_runs(
    content: bytes, fault: str, tmp_path: Path
) -> None:
    write_folder(tmp_path / "images_background", {"Latin": 1})
    file = sorted((tmp_path / "images_background/Latin/character01").iterdir())[3]
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"Latin/character01/{file.name} {fault}.*copy the data"):
        SUITE.resolve(config(data=str(tmp_path), games="all"))


def test_a_drawing_that_is_damaged_inside_is_named_by_its_character(tmp_path: Path) -> None:
    write_folder(tmp_path / "images_background", {"Latin": 20})
    file = sorted((tmp_path / "images_background/Latin/character07").iterdir())[3]
    content = bytearray(file.read_bytes())
    middle = content.index(b"IDAT") + 4
    content[middle : middle + 4] = b"\xff" * 4
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"Latin/character07: the image cannot be read: "):
        task_images(str(tmp_path), "Latin", 0)


def test_settled_games_are_spelled_out_and_their_data_is_fixed(zipped: Path) -> None:
    settled = SUITE.resolve(config(data=str(zipped)))
    assert settled.data_sha256 == read_omniglot(str(zipped)).sha256
    assert len(settled.resolved_games) == 2  # of three that are large enough, one is held out
    assert SUITE.resolve(settled) == settled
    with pytest.raises(ValueError, match="holds other images"):
        open_data(config(data=str(zipped), data_sha256="0" * 64))


@pytest.mark.parametrize(
    ("games", "message"),
    [
        (["Tagalog"], "'Tagalog' has 17 characters, and a task takes 20"),
        (["Sanskritt"], "did you mean 'Sanskrit'"),
        (["Greek", "Greek"], "each once"),
        ([], "at least one"),
    ],
)
def test_alphabets_that_cannot_be_learned_are_refused(
    zipped: Path, games: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_alphabets(games, read_omniglot(str(zipped)), OmniglotConfig())


def test_small_alphabets_are_left_out_of_pools(zipped: Path) -> None:
    data = read_omniglot(str(zipped))
    names = {
        name: set(resolve_alphabets([name], data, OmniglotConfig()))
        for name in ("all", "pretraining", "held_out")
    }
    assert names["all"] == {"Greek", "Latin", "Sanskrit"}
    assert names["pretraining"] | names["held_out"] == names["all"]
    assert not names["pretraining"] & names["held_out"]


PUBLISHED = [f"alphabet {index}" for index in range(46)]


def test_of_the_published_alphabets_ten_are_held_out_and_25_pretrain() -> None:
    pools = alphabet_pools(PUBLISHED, OmniglotConfig())
    assert (len(pools["held_out"]), len(pools["pretraining"])) == (10, 25)


def test_more_pretraining_alphabets_contain_fewer_and_none_that_is_held_out() -> None:
    pools = [alphabet_pools(PUBLISHED, OmniglotConfig(pretraining=n)) for n in (1, 3, 20, 36)]
    for fewer, more in itertools.pairwise(pools):
        assert more["pretraining"][: len(fewer["pretraining"])] == fewer["pretraining"]
        assert more["held_out"] == fewer["held_out"]
    assert not set(pools[-1]["pretraining"]) & set(pools[-1]["held_out"])


def test_splits_differ_and_each_is_always_the_same() -> None:
    held_out = [
        tuple(alphabet_pools(PUBLISHED, OmniglotConfig(split=i))["held_out"]) for i in (0, 1, 2)
    ]
    assert len(set(held_out)) == 3
    again = alphabet_pools(list(reversed(PUBLISHED)), OmniglotConfig())["held_out"]
    assert tuple(again) == held_out[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"held_out": 7}, r"held_out = 7: the data has 7"),
        ({"pretraining": 6}, r"pretraining = 6: 5 alphabets are left.*at most 5"),
    ],
)
def test_pools_that_the_data_cannot_fill_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        alphabet_pools(PUBLISHED[:7], OmniglotConfig(**options))


def test_a_tasks_drawings_are_twenty_characters_in_one_order_of_hands(zipped: Path) -> None:
    images = task_images(str(zipped), "Sanskrit", 0)
    assert images.shape == (20, 20, 28, 28)
    known = {
        decode(png).tobytes(): (name, hand)
        for name, pngs in read_omniglot(str(zipped)).alphabets["Sanskrit"].items()
        for hand, png in enumerate(pngs)
    }
    places = [[known[image.tobytes()] for image in row] for row in images]
    assert len({row[0][0] for row in places}) == 20
    for row in places:
        assert len({name for name, _ in row}) == 1
        assert [hand for _, hand in row] == [hand for _, hand in places[0]]
    assert sorted(hand for _, hand in places[0]) == list(range(20))
    assert (task_images(str(zipped), "Sanskrit", 1) != images).any()
    with pytest.raises(ValueError, match="read-only"):
        images[0] = 0
