"""Omniglot's images as they are published, and which of them make a task.

SPLIT/Alphabet/characterNN/NNNN_DD.png, in folders or zips; DD is the drawer. Lake, Salakhutdinov,
Tenenbaum, "Human-level concept learning through probabilistic program induction", 2015: 50
alphabets, 20 images of each character, one by each of 20 drawers. The "minimal" splits repeat
alphabets of each other and of `images_background`; an alphabet counts once.

The draws of `task.omniglot.split` belong to the data, not to a run: an alphabet is the same task in
every run of the same split, as a game is the same game, and a held-out alphabet of one run is held
out in all of them.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from leap_rl.core.regular_file import read_given
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.core.zip_files import opened_zip, read_entry, unpacked_size
from leap_rl.tasks.images.config import (
    CLASSES,
    MOST_PRETRAINING,
    POOLS,
    PUBLISHED_HELD_OUT,
    SOURCE,
    TRAINING_IMAGES,
    VALIDATION_IMAGES,
    OmniglotConfig,
)

DRAWERS = TRAINING_IMAGES + VALIDATION_IMAGES
"""Who drew each character once."""

SPLITS = (
    *("images_background", "images_evaluation"),
    *("images_background_small1", "images_background_small2"),
)

PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"

SIDE = 28
"""Height and width of what a network sees, in pixels."""

LARGEST_SIDE, LARGEST_PNG = 1024, 2**20
"""Pixels and bytes of an image that is read; those published have 105, and some 200."""

LARGEST_ZIP = 2**28
"""Bytes of all images of a split; those published have nine million."""

Alphabet = Mapping[str, tuple[bytes, ...]]
"""An alphabet's characters by name, each its images as PNG files in the order of their drawers."""


@dataclass(frozen=True, eq=False)
class Omniglot:
    """The images at a path."""

    alphabets: Mapping[str, Alphabet]
    """By name, in alphabetical order."""
    sha256: str
    """Of all images with their names, in hexadecimal; the same however they are packed."""


@lru_cache(maxsize=4)
def read_omniglot(path: str) -> Omniglot:
    """Read all images in a folder of `SPLITS`, unpacked or as zips, or in one of these.

    Once in a process; ValueError if there are none, or others.
    """
    found: dict[str, dict[str, list[tuple[str, bytes]]]] = {}
    source_of: dict[str, Path] = {}
    for source in sources(Path(path).expanduser()):
        for (alphabet, character, image), data in _images(source):
            if source_of.setdefault(alphabet, source) == source:
                found.setdefault(alphabet, {}).setdefault(character, []).append((image, data))
    if not found:
        raise ValueError(
            f"task.data = {path}: holds none of {', '.join(SPLITS)}, as folder or .zip; "
            f"they are at {SOURCE}"
        )
    digest = hashlib.sha256()
    for alphabet, characters in sorted(found.items()):
        for character, images in sorted(characters.items()):
            if len(images) != DRAWERS:
                raise ValueError(
                    f"task.data = {path}: {alphabet}/{character} has {len(images)} images, and "
                    f"{DRAWERS} were published; copy the data again"
                )
            images.sort(key=lambda each: PurePosixPath(each[0]).stem.rpartition("_")[2])  # by DD
            for image, data in images:
                name = f"{alphabet}/{character}/{image}"
                if fault := _fault_of(data):
                    raise ValueError(f"task.data = {path}: {name} {fault}; copy the data again")
                digest.update(f"{len(name.encode())}:{name}{len(data)}:".encode() + data)
    alphabets = {
        alphabet: {name: tuple(data for _, data in characters[name]) for name in sorted(characters)}
        for alphabet, characters in sorted(found.items())
    }
    return Omniglot(alphabets, digest.hexdigest())


def _fault_of(png: bytes) -> str | None:
    """Return what is wrong with a file, by its first and last bytes; `decode` reads the rest."""
    if len(png) < 24 or not (png.startswith(PNG_START) and png.endswith(PNG_END)):
        return "is no whole PNG file"
    width, height = struct.unpack(">II", png[16:24])
    if width != height or not SIDE <= width <= LARGEST_SIDE:
        return f"has {width} × {height} pixels, and those that were published 105 × 105"
    return None


def decode(png: bytes) -> NDArray[np.uint8]:
    """Return a PNG as uint8 [28, 28], 255 all ink and 0 all paper; ValueError if it is damaged."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
            paper = np.asarray(image.convert("L"), dtype=np.float64) / 255.0
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        reason = "is no PNG file" if isinstance(error, UnidentifiedImageError) else str(error)
        raise ValueError(f"the image cannot be read: {reason}") from None
    return np.rint(255.0 * downsample(1.0 - paper, SIDE)).astype(np.uint8)


def downsample(image: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """Return an image [S, S] as [side, side], each pixel the mean over the area that it covers."""
    weights = _coverage(image.shape[0], side)
    means: NDArray[np.float64] = weights @ image @ weights.T
    return means


@lru_cache(maxsize=2)
def _coverage(size: int, side: int) -> NDArray[np.float64]:
    """Return [side, size]: the share of each of the coarse cells that each of the fine ones is."""
    edges = np.arange(side + 1) * (size / side)
    fine = np.arange(size)
    overlap = np.minimum(edges[1:, None], fine + 1) - np.maximum(edges[:-1, None], fine)
    share: NDArray[np.float64] = np.clip(overlap, 0.0, None) * (side / size)
    return share


def sources(path: Path) -> list[Path]:
    """Return the splits at a path; ValueError if there is no such path."""
    if not path.exists():
        raise ValueError(
            f"task.data = {path}: there is no such file or folder; Omniglot's "
            f"images_background.zip and images_evaluation.zip are at {SOURCE}"
        )
    if path.stem in SPLITS:
        return [path]
    found = (path / f"{split}{end}" for split in SPLITS for end in ("", ".zip"))
    return [source for source in found if source.exists()]


def _images(source: Path) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """Yield the (alphabet, character, file name) and the bytes of each image of a split."""
    if source.is_dir():
        for file in sorted(source.glob("*/*/*.png")):
            try:
                yield file.parts[-3:], read_given(file, LARGEST_PNG)
            except OSError as error:
                raise ValueError(f"task.data: {file}: {error.strerror}") from None
        return
    try:
        if not source.is_file():
            raise OSError("is no regular file")
        with opened_zip(read_given(source, LARGEST_ZIP)) as archive:
            if unpacked_size(archive) > LARGEST_ZIP:
                raise OSError(f"unpacks to more than {LARGEST_ZIP:,} bytes")
            for name in sorted(archive.namelist()):
                split, *place = PurePosixPath(name).parts
                # Archives made on a Mac carry its own notes along, in a tree beside the split's.
                if name.endswith(".png") and split == source.stem and len(place) == 3:
                    if archive.getinfo(name).file_size > LARGEST_PNG:
                        raise OSError(f"{name} is larger than {LARGEST_PNG:,} bytes")
                    yield tuple(place), read_entry(archive, name)
    except Exception as error:  # each way of packing has errors of its own
        raise ValueError(f"task.data: {source} cannot be read as a zip: {error}") from None


def resolve_alphabets(
    asked: Sequence[str], data: Omniglot, config: OmniglotConfig
) -> tuple[str, ...]:
    """Return the alphabets that `task.games` names; ValueError for an unknown or double one."""
    usable = [name for name, characters in data.alphabets.items() if len(characters) >= CLASSES]
    names: list[str] = []
    for name in asked:
        if name == "all":
            names += usable  # nothing needs to be held out for them
        elif name in POOLS:
            names += alphabet_pools(usable, config)[name]
        elif name in usable:
            names.append(name)
        elif name in data.alphabets:
            raise ValueError(
                f"task.games: {name!r} has {len(data.alphabets[name])} characters, and a task "
                f"takes {CLASSES}; leave it out, as the paper does"
            )
        else:
            close = get_close_matches(name, usable, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(usable)}"
            raise ValueError(f"task.games: {name!r} is no alphabet in task.data; {hint}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"task.games = {names}: name at least one alphabet, each once")
    return tuple(names)


def alphabet_pools(usable: Sequence[str], config: OmniglotConfig) -> dict[str, list[str]]:
    """Part alphabets into those to pretrain on and those to hold out; ValueError if too few."""
    # Sorting by a keyed hash: an alphabet more in the data moves no other one in the order.
    order = sorted(
        usable, key=lambda name: derive_seed(config.split, Purpose.DATA, "alphabets", name)
    )
    count = min(PUBLISHED_HELD_OUT, max(1, len(order) // 3))
    count = count if config.held_out == "auto" else config.held_out
    if count >= len(order):
        raise ValueError(
            f"task.omniglot.held_out = {count}: the data has {len(order)} alphabets with at least "
            f"{CLASSES} characters, and one at least must be left to pretrain on"
        )
    held_out, rest = order[:count], order[count:]
    most = min(MOST_PRETRAINING, len(rest)) if config.pretraining == "auto" else config.pretraining
    if most > len(rest):
        raise ValueError(
            f"task.omniglot.pretraining = {most}: {len(rest)} alphabets are left, of "
            f"{len(order)} with at least {CLASSES} characters and {count} held out; "
            f"take at most {len(rest)}, or hold out fewer"
        )
    return {"pretraining": rest[:most], "held_out": held_out}


@lru_cache(maxsize=64)
def task_images(path: str, alphabet: str, split: int) -> NDArray[np.uint8]:
    """Return a task's images, uint8 [20 characters, 20 drawers, 28, 28], read-only.

    The last five of the drawers are those that validate. `split` says which draw of characters and
    drawers is meant. ValueError if an image is damaged.
    """
    characters = read_omniglot(path).alphabets[alphabet]
    names = sorted(
        characters,
        key=lambda name: derive_seed(split, Purpose.DATA, "characters", alphabet, name),
    )[:CLASSES]
    drawers = sorted(
        range(DRAWERS),
        key=lambda drawer: derive_seed(split, Purpose.DATA, "hands", alphabet, drawer),
    )
    images = np.empty((CLASSES, DRAWERS, SIDE, SIDE), dtype=np.uint8)
    for place, name in enumerate(names):
        try:
            images[place] = [decode(characters[name][drawer]) for drawer in drawers]
        except ValueError as error:
            raise ValueError(f"task.data = {path}: {alphabet}/{name}: {error}") from None
    images.flags.writeable = False
    return images
