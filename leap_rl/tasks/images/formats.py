"""Readers of labelled images, as they are published; never of a pickle.

    mnist/train-images-idx3-ubyte, train-labels-..., t10k-...    IDX, also as .gz
    cifar10/data_batch_1.bin ... test_batch.bin                  CIFAR's binary form
    cifar100/train.bin, test.bin                                 the same, by fine labels
    svhn/train_32x32.mat, test_32x32.mat                         by scipy
    signs/signs.npz                      x_train, y_train, x_test and y_test, uint8 images

N: images. H, W: height and width, both 28 or 32. C: channels, 1 or 3.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

SIDES: Final = (28, 32)
"""Heights and widths that are taken; a network sees 32, with zeros around 28."""


class Labelled(NamedTuple):
    """Images and their classes."""

    images: NDArray[np.uint8]
    """[N, H, W, C]."""
    labels: NDArray[np.int64]
    """[N], from 0."""


Parts: TypeAlias = tuple[Labelled, Labelled]
"""Training images and test images."""


def refused(path: Path, what: str, way_out: str = "copy the data again") -> ValueError:
    """Return the error for data that cannot be taken, in one line."""
    return ValueError(f"task.data: {path}: {what}; {way_out}")


def read_parts(folder: Path) -> Parts:
    """Read a folder's training and test images; ValueError if they cannot be."""
    files = {file.name: file for file in sorted(folder.iterdir())}
    tables = [file for name, file in files.items() if name.endswith(".npz")]
    if any("idx3-ubyte" in name for name in files):
        return _idx(folder, "train"), _idx(folder, "t10k")
    if any(name.endswith(".bin") for name in files):
        return _cifar(folder)
    if "train_32x32.mat" in files:
        return _svhn(folder / "train_32x32.mat"), _svhn(folder / "test_32x32.mat")
    if tables:
        return _npz(tables[0])
    for name, file in files.items():
        pickled = name.endswith((".p", ".pkl", ".pickle", ".npy"))
        if pickled or (file.is_file() and _bytes(file, 2)[:1] == b"\x80"):
            raise refused(
                file,
                "looks like a pickle, which may run anything when it is read",
                "take the binary version, or write x_train, y_train, x_test and y_test to a .npz",
            )
    raise refused(
        folder, "has no images", "take IDX, CIFAR's .bin, SVHN's .mat or .npz (docs/multi_cv.md)"
    )


def _bytes(path: Path, count: int = -1) -> bytes:
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read(count)
        with path.open("rb") as plain:
            return plain.read(count)
    except (OSError, EOFError, zlib.error) as error:  # a cut .gz ends too early
        missing = isinstance(error, FileNotFoundError)
        raise refused(path, "is missing" if missing else f"cannot be read: {error}") from None


def _idx(folder: Path, part: str) -> Labelled:
    images, labels = (
        _idx_array(_only(folder, f"{part}-{what}?idx{dimensions}-ubyte"), dimensions)
        for what, dimensions in (("images", 3), ("labels", 1))
    )
    return _labelled(folder, part, images, labels)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted([*folder.glob(pattern), *folder.glob(f"{pattern}.gz")])
    return found[0] if found else folder / pattern.replace("?", "-")


def _idx_array(path: Path, dimensions: int) -> NDArray[np.uint8]:
    data = _bytes(path)
    magic, start = bytes([0, 0, 8, dimensions]), 4 + 4 * dimensions
    if data[:4] != magic:
        raise refused(
            path,
            f"begins with {data[:4].hex() or 'nothing'}, and IDX of {dimensions} dimensions with "
            f"{magic.hex()}",
        )
    shape = struct.unpack(f">{dimensions}I", data[4:start].ljust(4 * dimensions, b"\0"))
    if len(data) != start + math.prod(shape):
        raise refused(path, f"has {len(data)} bytes, and its head says {start + math.prod(shape)}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _cifar(folder: Path) -> Parts:
    fine = (folder / "train.bin").exists()
    batches = [folder / "train.bin"] if fine else sorted(folder.glob("data_batch_*.bin"))
    batches = batches or [folder / "data_batch_1.bin"]
    test = folder / ("test.bin" if fine else "test_batch.bin")
    labels, size = (2, 3074) if fine else (1, 3073)

    def read(path: Path) -> NDArray[np.uint8]:
        data = _bytes(path)
        if len(data) % size or not data:
            raise refused(path, f"has {len(data)} bytes, and an image takes {size}")
        return np.frombuffer(data, np.uint8).reshape(-1, size)

    def parted(rows: NDArray[np.uint8], part: str) -> Labelled:
        images = rows[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return _labelled(folder, part, images, rows[:, labels - 1])  # of CIFAR-100 the fine label

    return parted(np.concatenate([*map(read, batches)]), "train"), parted(read(test), "test")


def _svhn(path: Path) -> Labelled:
    found = _opened(path, _mat)
    return _labelled(path.parent, path.stem, found["X"].transpose(3, 0, 1, 2), found["y"] % 10)


def _mat(path: Path) -> dict[str, NDArray[np.generic]]:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise refused(path, "takes scipy to read", "pip install scipy") from None
    found = loadmat(path, variable_names=["X", "y"])
    return {"X": found["X"], "y": found["y"]}


def _npz(path: Path) -> Parts:
    found = _opened(path, _arrays)
    return (
        _labelled(path, "train", found["x_train"], found["y_train"]),
        _labelled(path, "test", found["x_test"], found["y_test"]),
    )


def _arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in ("x_train", "y_train", "x_test", "y_test")}


def _opened(
    path: Path, read: Callable[[Path], dict[str, NDArray[np.generic]]]
) -> dict[str, NDArray[np.integer]]:
    try:
        found = read(path)
        for name, array in found.items():
            if not np.issubdtype(array.dtype, np.integer):
                raise ValueError(f"{name} is {array.dtype}, and must be whole numbers")
        return found  # type: ignore[return-value]
    except FileNotFoundError:
        raise refused(path, "is missing") from None
    except Exception as error:  # of numpy or scipy: the file is damaged, or of another kind
        reason = " ".join(str(error).split())
        if reason.startswith("task.data"):
            raise
        pickled = "pickle" in reason
        way_out = "save it without objects, which may run anything" if pickled else "make it again"
        raise refused(path, f"cannot be read: {reason}", way_out) from None


def _labelled(
    path: Path, part: str, images: NDArray[np.integer], labels: NDArray[np.integer]
) -> Labelled:
    """Return a part of a set; ValueError if images or labels are of another kind or number."""
    labels = labels.reshape(-1)
    images = images[..., None] if images.ndim == 3 else images
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
        raise refused(
            path,
            f"{part} images are {images.dtype} {list(images.shape)}, and must be uint8 [N, H, W] "
            "or [N, H, W, 3]",
            "write them again",
        )
    if images.shape[1] != images.shape[2] or images.shape[1] not in SIDES:
        raise refused(
            path,
            f"{part} images have {images.shape[1]} × {images.shape[2]} pixels, and a network "
            "takes 28 × 28 or 32 × 32",
            "scale them",
        )
    if len(images) != len(labels) or not len(images):
        raise refused(path, f"{part} has {len(images)} images and {len(labels)} labels")
    return Labelled(np.ascontiguousarray(images, np.uint8), labels.astype(np.int64))
