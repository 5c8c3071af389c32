from __future__ import annotations

import gzip
import io
import os
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.images import formats
from leap_rl.tasks.images.config import ImagesConfig
from leap_rl.tasks.images.sets import ImageSet, read_folder, read_set, updates_of
from tests.tasks.image_sets import idx_bytes, make, write_idx
from tests.tasks.omniglot_images import write_folder, write_zip

HALF = ImagesConfig(validation=0.5)


def pairs(images: np.ndarray, labels: np.ndarray) -> list[tuple[bytes, int]]:
    """Return images with their labels, in one order."""
    return sorted(zip((image.tobytes() for image in images), labels.tolist(), strict=True))


def whole(data: ImageSet) -> list[tuple[bytes, int]]:
    """Return the training images, validating ones among them."""
    return sorted(pairs(*data.training) + pairs(*data.validation))


def resolve(data: Path | None, **options: object) -> TaskConfig:
    task = TaskConfig(kind="images", data=data and str(data), **options)  # type: ignore[arg-type]
    return task.suite.resolve(task)


def cifar(images: np.ndarray, *labels: np.ndarray) -> bytes:
    flat = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([*(one[:, None] for one in labels), flat], axis=1).tobytes()


def test_every_format_gives_the_images_and_labels_that_were_written(tmp_path: Path) -> None:
    color, labels = make(20, side=32, channels=3)
    for name in ("ten", "hundred", "svhn", "signs"):
        (tmp_path / name).mkdir()
    for batch, rows in (("data_batch_1", slice(12)), ("data_batch_2", slice(12, 20))):
        (tmp_path / f"ten/{batch}.bin").write_bytes(cifar(color[rows], labels[rows]))
    (tmp_path / "ten/test_batch.bin").write_bytes(cifar(color, labels))
    for part in ("train", "test"):
        (tmp_path / f"hundred/{part}.bin").write_bytes(cifar(color, 0 * labels, labels))
        ten = np.where(labels == 0, 10, labels)[:, None]  # SVHN writes its zeros as 10
        savemat(tmp_path / f"svhn/{part}_32x32.mat", {"X": color.transpose(1, 2, 3, 0), "y": ten})
    (tmp_path / "signs/._a.npz").write_bytes(b"a Mac's notes")
    np.savez(tmp_path / "signs/a.npz", x_train=color, y_train=labels, x_test=color, y_test=labels)
    for zipped in (True, False):
        write_idx(tmp_path / f"zipped_{zipped}", zipped=zipped, count=20)
    gray = make(20, seed=5)
    for names, written, tested in (
        (("zipped_True", "zipped_False"), gray, 10),
        (("ten", "hundred", "svhn", "signs"), (color, labels), 20),
    ):
        for name in names:
            data = read_set(str(tmp_path), name, HALF)
            assert whole(data) == pairs(*written), name
            assert (data.classes, len(data.test.labels)) == (4, tested)


def test_an_alphabet_of_omniglot_is_a_set_as_it_is(tmp_path: Path) -> None:
    write_zip(tmp_path / "images_background_small1.zip", {"Greek": 3, "Latin": 2})
    write_idx(tmp_path / "mnist")
    assert resolve(tmp_path, games="all").resolved_games == ("mnist", "Greek", "Latin")
    data = read_set(str(tmp_path), "Greek", HALF)
    assert (data.classes, len(data.test.labels)) == (3, 15)
    assert data.training.images.shape[1:] == (28, 28, 1)
    assert sorted(label for _, label in whole(data)) == [0] * 15 + [1] * 15 + [2] * 15
    assert data.mean[0] == pytest.approx(data.training.images.mean() / 255, abs=0.02)


def test_a_limit_and_a_share_take_the_same_images_in_every_run(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist", count=60)
    few = ImagesConfig(limit=40, validation=0.25, batch_size=8)

    def read(config: ImagesConfig) -> ImageSet:
        return read_set(str(tmp_path), "mnist", config)

    data = read(few)
    assert (len(data.training.labels), len(data.validation.labels)) == (30, 10)
    fewer, every = read(replace(few, limit=20)), read(ImagesConfig())
    assert len(set(whole(data))) == 40
    assert set(whole(fewer)) < set(whole(data)) < set(whole(every))
    assert (data.mean, data.deviation) == ((0.1,), (0.2752,))
    for change, updates in (
        ({}, 3),
        ({"epochs": 2.0}, 7),
        ({"epochs": 0.01}, 1),
        ({"updates": 5}, 5),
    ):
        assert updates_of(str(tmp_path), "mnist", replace(few, **change)) == updates


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
ZIPPED, TEST_LABELS = f"{IMAGES}.gz", "t10k-labels-idx1-ubyte"

Harm = Callable[[Path], None]


def change(name: str, edit: Callable[[bytes], bytes], to: str | None = None) -> Harm:
    def harm(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / (to or name)).write_bytes(edit(content))

    return harm


def relabel(name: str, *labels: int) -> Harm:
    return change(name, lambda _: idx_bytes(np.array(labels, np.uint8)))


def link(target: str, name: str) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name) if target == "pipe" else (folder / name).symlink_to(target)

    return harm


def only(data: bytes, *names: str) -> Harm:
    """Return what leaves no file but these."""

    def harm(folder: Path) -> None:
        for file in folder.iterdir():
            file.unlink()
        for name in names:
            (folder / name).write_bytes(data)

    return harm


def npz(x: np.ndarray, y: np.ndarray | None = None) -> bytes:
    file, y = io.BytesIO(), x if y is None else y
    np.savez_compressed(file, x_train=x, y_train=y, x_test=x, y_test=y)
    return file.getvalue()


def mat(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    savemat(file, {"X": array, "y": np.zeros(1)}, do_compression=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (change(IMAGES, lambda data: data[:-1]), "47055 bytes or more, and its head says 47056"),
        (change(IMAGES, lambda data: data[:6]), f"{IMAGES} begins with 000008030000, and IDX of 3"),
        (change(LABELS, bytes, IMAGES), "and IDX of 3 dimensions with 00000803"),
        (change(IMAGES, lambda data: gzip.compress(data)[:200], ZIPPED), "Compressed file ended"),
        (
            change(IMAGES, lambda data: gzip.compress(data + bytes(10**7)), ZIPPED),
            f"{IMAGES} has 47057 bytes or more, and its head says 47056",
        ),
        (change(IMAGES, lambda data: data[:4] + b"\xff" * 12), "unpacks to more than 100,000 b"),
        (only(npz(np.zeros(10**6, np.uint8)), "a.npz"), "unpacks to more than 100,000 bytes"),
        (only(mat(np.zeros(10**6)), "train_32x32.mat"), "unpacks to more than 100,000 bytes"),
        (only(bytes(10**6), "train.bin"), "is larger than 100,000 bytes"),
        (link("pipe", IMAGES), "is no regular file"),
        (link("/dev/zero", IMAGES), "is no regular file"),
        (link("/dev/zero", f"{LABELS}.gz"), "is no regular file"),
        (relabel(LABELS, 0, 1), "train has 60 images and 2 labels"),
        (relabel(TEST_LABELS, *[9] * 30), "label 9 is beyond the classes"),
        (relabel(LABELS, *[0] * 59, 9), "label 9 is beyond the classes, whose numbers"),
        (lambda folder: (folder / TEST_LABELS).unlink(), f"mnist: {TEST_LABELS} is missing; copy"),
        (only(b"abc", "data_batch_1.bin"), "data_batch_1.bin ends within an image, each of 3073"),
        (only(bytes(3073), "data_batch_2.bin"), "data_batch_1.bin is missing"),
        (only(bytes(3074), "data_batch_1.bin", "data_batch_2.bin"), "data_batch_1.bin ends within"),
        (only(b"abc", "train_32x32.mat"), "mnist: is no file of MATLAB 5, or cut short"),
        (only(b"abc", "a.npz"), "File is not a zip file"),
        (only(b"abc", "a.npz", "b.npz"), "has a.npz and b.npz, and a set is one .npz"),
        (only(pickle.dumps([1]), "a.npz"), "File is not a zip file"),
        (only(pickle.dumps([1]), "data_batch_1"), "data_batch_1 is a pickle, which may run"),
        (only(b"0", "train.p"), "train.p is a pickle"),
        (only(npz(np.array([{}], dtype=object)), "a.npz"), "Object arrays cannot be loaded"),
        (only(npz(np.zeros((2, 30, 30), np.uint8)), "a.npz"), "train images are uint8 [2, 30, 30]"),
        (only(npz(np.zeros((2, 28, 28), np.int8)), "a.npz"), "train images are int8 [2, 28, 28]"),
        (
            only(npz(make(2)[0], np.zeros(2)), "a.npz"),
            "train labels are float64, and must be whole",
        ),
        (only(b"abc", "readme.txt"), "mnist: has no images; copy"),
    ],
)
def test_damaged_or_dangerous_data_is_one_line(
    harm: Harm, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "LARGEST", 10**5)
    harm(write_idx(tmp_path / "mnist"))
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        read_set(str(tmp_path), "mnist", HALF)
    assert str(error.value).startswith("task.data: /")
    assert "\n" not in str(error.value)


def test_a_sparse_file_is_not_waited_for(tmp_path: Path) -> None:
    os.truncate(write_idx(tmp_path / "mnist") / IMAGES, 2**40)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte: is larger than [\d,]+ bytes"):
        read_folder(str(tmp_path))


def test_what_is_asked_for_and_is_not_there_is_told(tmp_path: Path) -> None:
    for folder in ("", "none", "images_background"):
        with pytest.raises(
            ValueError, match=r"task\.data = .*: is no folder with data sets; a set"
        ):
            resolve(tmp_path / folder)
        write_folder(tmp_path / "images_background", {"Greek": 1})
    write_idx(tmp_path / "mnist")
    with pytest.raises(ValueError, match=r"task\.data = null: task\.kind = images needs a folder"):
        resolve(None)
    for options, says in (
        ({"games": ["minst"]}, r"'minst' is no game of task\.kind = images in /.*'mnist'\?"),
        ({"games": ["mnist", "mnist"]}, "each once"),
        ({"data_sha256": "0" * 64}, "holds other images"),
        ({"images": ImagesConfig(validation=0.001)}, "leaves none to validate on; take a larger"),
        ({"images": ImagesConfig(validation=0.999)}, "leaves none to learn from; take a smaller"),
    ):
        with pytest.raises(ValueError, match=says):
            resolve(tmp_path, **options)
    for name, value in {"epochs": 0, "schedule": "linear", "patience": 0, "validation": 1}.items():
        with pytest.raises(ValueError, match=rf"task\.images\.{name} = "):
            ImagesConfig(**{name: value})  # type: ignore[arg-type]
