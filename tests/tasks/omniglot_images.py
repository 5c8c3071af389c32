"""Drawings in Omniglot's layout, made up: what the tests need more of than a handful."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 105
DRAWERS = 20


def drawn(strokes: NDArray[np.float64], random: np.random.Generator) -> bytes:
    """A PNG file of 1-bit pixels, in a hand that is none too steady."""
    begin, end = (strokes + random.normal(0, 2, size=strokes.shape)).swapaxes(0, 1)
    along = np.linspace(0, 1, 25)[:, None, None]
    x, y = np.rint(begin + along * (end - begin)).astype(int).reshape(-1, 2).T
    paper = np.ones((SIDE, SIDE), dtype=bool)
    for down, right in np.ndindex(5, 5):  # of a pen five pixels wide
        paper[y + down - 2, x + right - 2] = False
    file = io.BytesIO()
    Image.fromarray(paper).convert("1").save(file, format="PNG")
    return file.getvalue()


@cache
def _alphabet(alphabet: str, characters: int) -> dict[str, bytes]:
    """Files by their paths within a split; an alphabet is the same in each."""
    files = {}
    random = np.random.default_rng(list(alphabet.encode()))
    for index in range(1, characters + 1):
        strokes = random.uniform(20, 85, size=(3, 2, 2))  # three, of two ends each, in pixels
        for hand in range(1, DRAWERS + 1):
            name = f"{alphabet}/character{index:02}/{index:04}_{hand:02}.png"
            files[name] = drawn(strokes, random)
    return files


def write_zip(path: Path, alphabets: Mapping[str, int]) -> None:
    """Write a split, of alphabets with so many characters each, as a zip whose name is its own."""
    with zipfile.ZipFile(path, "w") as archive:
        for alphabet, characters in alphabets.items():
            for name, data in _alphabet(alphabet, characters).items():
                archive.writestr(f"{path.stem}/{name}", data)


def write_folder(path: Path, alphabets: Mapping[str, int]) -> None:
    """Write a split as a folder."""
    for alphabet, characters in alphabets.items():
        for name, data in _alphabet(alphabet, characters).items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
