"""Data sets of a few images, in the formats in which the large ones are published."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def make(count: int, *, side: int = 28, channels: int = 0, seed: int = 0) -> Any:
    """Return uint8 images whose quadrant says their class, and their labels."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % 4
    images = random.integers(0, 60, size=(count, side, side, channels or 1)).astype(np.uint8)
    half = side // 2
    for image, label in zip(images, labels, strict=True):
        top, left = half * (label // 2), half * (label % 2)
        image[top : top + half, left : left + half] += np.uint8(150)
    return (images if channels else images[..., 0]), labels.astype(np.uint8)


def idx_bytes(array: NDArray[Any]) -> bytes:
    """Return an array as an IDX file."""
    head = bytes([0, 0, 8, array.ndim])
    return head + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def write_idx(folder: Path, *, zipped: bool = False, count: int = 60, seed: int = 0) -> Path:
    """Write the four files of a set such as MNIST."""
    folder.mkdir(parents=True)
    for part, number in (("train", count), ("t10k", count // 2)):
        images, labels = make(number, seed=seed + len(part))
        for name, data in (("images-idx3", images), ("labels-idx1", labels)):
            raw = idx_bytes(data)
            file = folder / f"{part}-{name}-ubyte{'.gz' if zipped else ''}"
            file.write_bytes(gzip.compress(raw) if zipped else raw)
    return folder
