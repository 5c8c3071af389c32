from __future__ import annotations

import gzip
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
from tests.tasks.omniglot_images import write_zip

HALF = ImagesConfig(validation=0.5)


def whole(data: ImageSet) -> tuple[list[bytes], list[int]]:
    """Return the training images, validating ones among them, and labels, in one order."""
    images = np.concatenate([data.training.images, data.validation.images])
    labels = np.concatenate([data.training.labels, data.validation.labels])
    pairs = sorted(zip((image.tobytes() for image in images), labels.tolist(), strict=True))
    return [image for image, _ in pairs], [label for _, label in pairs]


def cifar(rows: np.ndarray, *labels: np.ndarray) -> bytes:
    flat = rows.transpose(0, 3, 1, 2).reshape(len(rows), -1)
    return np.concatenate([*(one[:, None] for one in labels), flat], axis=1).tobytes()


def test_every_format_gives_the_images_and_labels_that_were_written(tmp_path: Path) -> None:
    (gray, labels), (color, fine) = make(20), make(20, side=32, channels=3)
    for name in ("ten", "hundred", "svhn", "signs"):
        (tmp_path / name).mkdir()
    write_idx(tmp_path / "zipped", zipped=True, count=20)
    write_idx(tmp_path / "plain", count=20)
    for half, rows in ((1, slice(12)), (2, slice(12, 20))):
        path = tmp_path / f"ten/data_batch_{half}.bin"
        path.write_bytes(cifar(color[rows], fine[rows]))
    (tmp_path / "ten/test_batch.bin").write_bytes(cifar(color, fine))
    for part in ("train", "test"):
        (tmp_path / f"hundred/{part}.bin").write_bytes(cifar(color, 0 * fine, fine))
        ten = np.where(fine == 0, 10, fine)[:, None]  # SVHN writes its zeros as 10
        savemat(tmp_path / f"svhn/{part}_32x32.mat", {"X": color.transpose(1, 2, 3, 0), "y": ten})
    np.savez(tmp_path / "signs/a.npz", x_train=color, y_train=fine, x_test=gray, y_test=labels)
    gray, labels = make(20, seed=5)
    for names, images, expected in (
        (("zipped", "plain"), gray, labels),
        (("ten", "hundred", "svhn", "signs"), color, fine),
    ):
        pairs = sorted(zip((one.tobytes() for one in images), expected.tolist(), strict=True))
        for name in names:
            data = read_set(str(tmp_path), name, HALF)
            assert whole(data) == ([one for one, _ in pairs], [label for _, label in pairs]), name
            assert data.classes == 4
            assert len(data.test.labels) == (10 if name in ("zipped", "plain") else 20)


def test_an_alphabet_of_omniglot_is_a_set_as_it_is(tmp_path: Path) -> None:
    write_zip(tmp_path / "images_background_small1.zip", {"Greek": 3, "Latin": 2})
    write_idx(tmp_path / "mnist")
    task = TaskConfig(kind="images", games="all", data=str(tmp_path))
    assert task.suite.resolve(task).resolved_games == ("mnist", "Greek", "Latin")
    data = read_set(str(tmp_path), "Greek", HALF)
    assert (data.classes, len(data.test.labels), data.training.images.shape[1:]) == (
        *(3, 15),
        (28, 28, 1),
    )
    assert sorted(whole(data)[1]) == [label for label in range(3) for _ in range(15)]
    assert data.mean[0] == pytest.approx(data.training.images.mean() / 255, abs=0.02)


def test_a_limit_and_a_share_take_the_same_images_in_every_run(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist", count=60)
    few = ImagesConfig(limit=40, validation=0.25, batch_size=8)
    data = read_set(str(tmp_path), "mnist", few)
    assert (len(data.training.labels), len(data.validation.labels)) == (30, 10)
    every = set(whole(read_set(str(tmp_path), "mnist", ImagesConfig()))[0])
    assert len(set(whole(data)[0])) == 40
    assert set(whole(data)[0]) < every
    fewer = read_set(str(tmp_path), "mnist", replace(few, limit=20))
    assert set(whole(fewer)[0]) < set(whole(data)[0])
    assert (data.mean, data.deviation) == ((0.1,), (0.2752,))
    for config, updates in (
        (few, 3),
        (replace(few, epochs=2.0), 7),
        (replace(few, epochs=0.01), 1),
        (replace(few, updates=5), 5),
    ):
        assert updates_of(str(tmp_path), "mnist", config) == updates


def cut(folder: Path) -> None:
    file = folder / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-1])


def relabel(folder: Path, labels: list[int], part: str = "train") -> None:
    data = idx_bytes(np.array(labels, np.uint8))
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(data)


def mislabel(folder: Path) -> None:
    file = folder / "train-images-idx3-ubyte"
    file.write_bytes((folder / "train-labels-idx1-ubyte").read_bytes())


def cut_gzip(folder: Path) -> None:
    file = folder / "train-images-idx3-ubyte"
    (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes())[:200])
    file.unlink()


def instead(name: str, data: bytes) -> Callable[[Path], None]:
    def replace_all(folder: Path) -> None:
        for file in folder.iterdir():
            file.unlink()
        (folder / name).write_bytes(data)

    return replace_all


def zip_bomb(folder: Path) -> None:
    instead("a.txt", b"")(folder)
    zeros = np.zeros(10**6, np.uint8)
    np.savez_compressed(folder / "a.npz", x_train=zeros, y_train=zeros)


def mat_bomb(folder: Path) -> None:
    instead("a.txt", b"")(folder)
    for part in ("train", "test"):
        zeros = {"X": np.zeros(10**6, np.uint8), "y": np.zeros(1)}
        savemat(folder / f"{part}_32x32.mat", zeros, do_compression=True)


def gzip_bomb(folder: Path) -> None:
    """Of a few bytes, whose head is right and small."""
    file = folder / "train-images-idx3-ubyte"
    packed = gzip.compress(file.read_bytes() + bytes(10**7))
    (folder / f"{file.name}.gz").write_bytes(packed)
    file.unlink()


def claims(folder: Path) -> None:
    file = folder / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:4] + b"\xff" * 12)


def link(target: str, name: str) -> Callable[[Path], None]:
    def replace_one(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name) if target == "pipe" else (folder / name).symlink_to(target)

    return replace_one


def objects(folder: Path) -> None:
    instead("a.txt", b"")(folder)
    names = ("x_train", "y_train", "x_test", "y_test")
    np.savez(folder / "a.npz", **{name: np.array([{}], dtype=object) for name in names})


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (cut, "train-images-idx3-ubyte has 47055 bytes or more, and its head says 47056; copy"),
        (zip_bomb, "unpacks to more than 100,000 bytes"),
        (mat_bomb, "unpacks to more than 100,000 bytes"),
        (gzip_bomb, "train-images-idx3-ubyte has 47057 bytes or more, and its head says 47056"),
        (claims, "unpacks to more than 100,000 bytes"),
        (instead("train.bin", bytes(10**6)), "is larger than 100,000 bytes"),
        (link("pipe", "train-images-idx3-ubyte"), "is no regular file"),
        (link("/dev/zero", "train-images-idx3-ubyte"), "is no regular file"),
        (link("/dev/zero", "train-labels-idx1-ubyte.gz"), "is no regular file"),
        (mislabel, "begins with 00000801, and IDX of 3 dimensions with 00000803"),
        (cut_gzip, "mnist: Compressed file ended before"),
        (lambda folder: relabel(folder, [0, 1]), "train has 60 images and 2 labels"),
        (lambda folder: relabel(folder, [9] * 30, "t10k"), "label 9 is beyond the classes"),
        (
            lambda folder: relabel(folder, [0] * 59 + [9]),
            "label 9 is beyond the classes, whose numbers",
        ),
        (
            lambda folder: (folder / "t10k-labels-idx1-ubyte").unlink(),
            "t10k-labels-idx1-ubyte is missing",
        ),
        (
            instead("data_batch_1.bin", b"abc"),
            "data_batch_1.bin ends within an image, each of 3073 bytes",
        ),
        (instead("train_32x32.mat", b"abc"), "mnist: is no file of MATLAB 5, or cut short"),
        (instead("a.npz", b"abc"), "File is not a zip file"),
        (instead("a.npz", pickle.dumps([1])), "File is not a zip file"),
        (instead("data_batch_1", pickle.dumps([1])), "data_batch_1 is a pickle, which may run"),
        (instead("train.p", b"0"), "train.p is a pickle"),
        (objects, "Object arrays cannot be loaded when allow_pickle=False"),
        (instead("readme.txt", b"abc"), "mnist: has no images; copy"),
    ],
)
def test_damaged_or_dangerous_data_is_one_line(
    harm: Callable[[Path], None], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "LARGEST", 10**5)
    harm(write_idx(tmp_path / "mnist"))
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        read_set(str(tmp_path), "mnist", HALF)
    assert str(error.value).startswith("task.data: /")
    assert "\n" not in str(error.value)


def test_a_sparse_file_is_not_waited_for(tmp_path: Path) -> None:
    os.truncate(write_idx(tmp_path / "mnist") / "train-images-idx3-ubyte", 2**40)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte: is larger than [\d,]+ bytes"):
        read_folder(str(tmp_path))


def test_what_is_asked_for_and_is_not_there_is_one_line(tmp_path: Path) -> None:
    def resolve(**options: object) -> None:
        task = TaskConfig(**{"kind": "images", "data": str(tmp_path)} | options)  # type: ignore[arg-type]
        task.suite.resolve(task)

    with pytest.raises(ValueError, match=r"task\.data = .*: is no folder with data sets"):
        resolve()
    with pytest.raises(ValueError, match=r"task\.data = .*none: is no folder with data sets"):
        resolve(data=str(tmp_path / "none"))
    write_idx(tmp_path / "mnist")
    for options, says in (
        ({"data": None}, r"task\.data = null: task\.kind = images needs a folder"),
        ({"games": ["minst"]}, r"'minst' is no game of task\.kind = images in /.*'mnist'\?"),
        ({"games": ["mnist", "mnist"]}, "each once"),
        ({"data_sha256": "0" * 64}, "holds other images"),
        (
            {"images": ImagesConfig(validation=0.001)},
            "leaves none to validate on; take a larger share",
        ),
        ({"images": ImagesConfig(validation=0.999)}, "leaves none to learn from"),
    ):
        with pytest.raises(ValueError, match=says):
            resolve(**options)
    for name, value in {"epochs": 0, "schedule": "linear", "patience": 0, "validation": 1}.items():
        with pytest.raises(ValueError, match=rf"task\.images\.{name} = "):
            ImagesConfig(**{name: value})  # type: ignore[arg-type]
