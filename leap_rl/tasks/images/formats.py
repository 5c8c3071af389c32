"""Readers of labelled images, as they are published; never of a pickle.

    mnist/train-images-idx3-ubyte, train-labels-..., t10k-...    IDX, also as .gz
    cifar10/data_batch_1.bin ... test_batch.bin                  CIFAR's binary form
    cifar100/train.bin, test.bin                                 the same, by fine labels
    svhn/train_32x32.mat, test_32x32.mat                         by scipy
    signs/signs.npz             x_train, y_train, x_test and y_test, uint8 images

N: images. H, W: height and width, both 28 or 32. C: channels, 1 or 3.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leap_rl.core.regular_file import read_given
from leap_rl.core.zip_files import opened_zip, unpacked_size

LARGEST: Final = 2**31
"""Bytes of a file, and of all that it unpacks to; SVHN's have 226 million."""

SHAPES: Final = {(side, side, channels) for side in (28, 32) for channels in (1, 3)}
"""[H, W, C]."""


class Labelled(NamedTuple):
    """Images and their classes."""

    images: NDArray[np.uint8]
    """[N, H, W, C]."""
    labels: NDArray[np.int64]
    """[N], from 0."""

    def at(self, places: NDArray[np.intp]) -> Labelled:
        """Return the images at some places, in that order."""
        return Labelled(self.images[places], self.labels[places])


def read_parts(folder: Path) -> tuple[Labelled, Labelled]:
    """Read a folder's training and test images; ValueError, in one line, if they cannot be."""
    try:
        training, test = (_labelled(part, *arrays) for part, arrays in _read(folder).items())
        _check_classes(training, test)
    except Exception as error:  # numpy and scipy raise many kinds for what is damaged
        reason = " ".join(str(error).split())
        if isinstance(error, FileNotFoundError):
            reason = f"{Path(error.filename).name} is missing"
        raise ValueError(
            f"task.data: {folder}: {reason}; copy the data again, in a form that docs/multi_cv.md "
            "lists"
        ) from None
    return training, test


def _read(folder: Path) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Return the images and labels of both parts, unchecked."""
    # A Mac's notes beside a file begin with a dot.
    names = sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))
    if any("-ubyte" in name for name in names):
        return {part: (_idx(folder, part, "images", 3), _idx(folder, part, "labels", 1))
                for part in ("train", "t10k")}  # fmt: skip
    if "train.bin" in names:
        return {part: _cifar([folder / f"{part}.bin"], labels=2) for part in ("train", "test")}
    if count := len(list(folder.glob("data_batch_*.bin"))):
        batches = [folder / f"data_batch_{number}.bin" for number in range(1, count + 1)]
        return {"train": _cifar(batches), "test": _cifar([folder / "test_batch.bin"])}
    if "train_32x32.mat" in names:
        return {part: _mat(folder / f"{part}_32x32.mat") for part in ("train", "test")}
    if tables := sorted(name for name in names if name.endswith(".npz")):
        if len(tables) > 1:
            raise ValueError(f"has {' and '.join(tables)}, and a set is one .npz")
        data = _content(folder / tables[0])
        with opened_zip(data) as archive:
            _check_size(unpacked_size(archive))
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return {part: (file[f"x_{part}"], file[f"y_{part}"]) for part in ("train", "test")}
    for name in names:
        file = folder / name
        begins_like_one = file.is_file() and _content(file)[:1] == b"\x80"
        if begins_like_one or file.suffix in (".p", ".pkl", ".pickle"):
            raise ValueError(f"{name} is a pickle, which may run anything when it is read")
    raise ValueError("has no images")


def _idx(folder: Path, part: str, what: str, dimensions: int) -> NDArray[Any]:
    path = folder / f"{part}-{what}-idx{dimensions}-ubyte"
    zipped = path.with_name(f"{path.name}.gz")
    packed = io.BytesIO(_content(zipped if zipped.exists() else path))
    file = gzip.GzipFile(fileobj=packed) if zipped.exists() else packed
    magic, start = bytes([0, 0, 8, dimensions]), 4 + 4 * dimensions
    head = file.read(start)
    if head[:4] != magic or len(head) < start:
        raise ValueError(
            f"{path.name} begins with {head.hex() or 'nothing'}, and IDX of {dimensions} "
            f"dimensions with {magic.hex()} and their sizes"
        )
    shape = struct.unpack(f">{dimensions}I", head[4:])
    size = math.prod(shape)
    _check_size(size)
    data = file.read(size + 1)  # no more: a few bytes unpack to gigabytes
    if len(data) != size:
        found = start + len(data)
        raise ValueError(f"{path.name} has {found} bytes or more, and its head says {start + size}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _cifar(paths: list[Path], labels: int = 1) -> tuple[NDArray[Any], NDArray[Any]]:
    files, size = [_content(path) for path in paths], labels + 3072
    for path, data in zip(paths, files, strict=True):
        if len(data) % size:
            raise ValueError(f"{path.name} ends within an image, each of {size} bytes")
    rows = np.frombuffer(b"".join(files), np.uint8).reshape(-1, size)
    images = rows[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, rows[:, labels - 1]  # of CIFAR-100 the fine label


def _mat(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    from scipy.io import loadmat

    found = loadmat(io.BytesIO(_unpacked(_content(path))), variable_names=["X", "y"])
    return found["X"].transpose(3, 0, 1, 2), found["y"] % 10  # 10 stands for the digit 0


def _unpacked(mat: bytes) -> bytes:
    """Return a file of MATLAB 5 with its variables unpacked, which scipy would without a limit."""
    if mat[124:128] != b"\0\x01IM":
        raise ValueError("is no file of MATLAB 5, or cut short")
    plain, at = bytearray(mat[:128]), 128
    while at < len(mat):
        kind, size = struct.unpack_from("<II", mat, at)
        element = mat[at : at + 8 + size]
        if kind == 15:  # a compressed variable
            element = zlib.decompressobj().decompress(element[8:], LARGEST + 1)
        plain += element
        _check_size(len(plain))
        at += 8 + size
    return bytes(plain)


def _content(path: Path) -> bytes:
    return read_given(path, LARGEST)


def _check_size(unpacked: int) -> None:
    if unpacked > LARGEST:
        raise ValueError(f"unpacks to more than {LARGEST:,} bytes")


def _labelled(part: str, images: NDArray[Any], labels: NDArray[Any]) -> Labelled:
    labels, shape = labels.reshape(-1), list(images.shape)
    images = images[..., None] if images.ndim == 3 else images
    if images.dtype != np.uint8 or images.shape[1:] not in SHAPES:
        raise ValueError(
            f"{part} images are {images.dtype} {shape}, and must be uint8 of 28 × 28 or 32 × 32 "
            "pixels, gray or with 3 channels"
        )
    if len(images) != len(labels) or not len(images):
        raise ValueError(f"{part} has {len(images)} images and {len(labels)} labels")
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{part} labels are {labels.dtype}, and must be whole numbers")
    return Labelled(np.ascontiguousarray(images), labels.astype(np.int64))


def _check_classes(training: Labelled, test: Labelled) -> None:
    classes = len(np.unique(training.labels))
    for part in (training, test):
        beyond = np.setdiff1d(part.labels, np.arange(classes))
        if len(beyond):
            raise ValueError(
                f"label {beyond[0]} is beyond the classes, whose numbers go from 0 without a gap "
                f"({classes} have training images)"
            )
