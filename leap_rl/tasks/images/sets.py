"""Data sets of labelled images, a folder a set.

    DATA/mnist, DATA/cifar10, ...          as `formats` reads them
    DATA/images_background_small1.zip      Omniglot's splits: each alphabet is a set

Which images a limit takes, and which validate, belongs to the data, not to a run.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.tasks.images.config import TRAINING_IMAGES, ImagesConfig
from leap_rl.tasks.images.data import SIDE, decode, read_omniglot, sources
from leap_rl.tasks.images.formats import LARGEST, Labelled, read_parts

NORMALIZATIONS: Final = {
    name: (mean, deviation)
    for names, mean, deviation in (
        ("cifar10 cifar100", (125.3 / 255, 123.0 / 255, 113.9 / 255),
         (63.0 / 255, 62.1 / 255, 66.7 / 255)),
        ("mnist", (0.1,), (0.2752,)),
        ("fashion fashionmnist", (0.2190,), (0.3318,)),
        ("svhn", (0.4377, 0.4438, 0.4728), (0.198, 0.201, 0.197)),
        ("signs trafficsigns", (0.3398, 0.3117, 0.3210), (0.2755, 0.2647, 0.2712)),
        ("facescrub", (0.5163, 0.5569, 0.4695), (0.2307, 0.2272, 0.2479)),
        ("notmnist", (0.4254,), (0.4501,)),
    )
    for name in names.split()
}  # fmt: skip
"""Means and deviations of pixels in [0, 1], by a set's name without case and signs: those of HAT
(Serrà et al. 2018), which the Leap paper takes. Other sets have their training images' own."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A data set: a task is one."""

    training: Labelled
    validation: Labelled
    test: Labelled
    classes: int
    mean: tuple[float, ...]
    """Of the pixels in [0, 1], one for all channels or one for each, as the deviation is."""
    deviation: tuple[float, ...]


@dataclass(frozen=True)
class Folder:
    """What `task.data` holds."""

    names: tuple[str, ...]
    sha256: str
    """Of all sets' files, and of Omniglot's images, in hexadecimal."""


@lru_cache(maxsize=4)
def read_folder(path: str) -> Folder:
    """Return the sets in a folder, unread; once in a process. ValueError if there are none."""
    root = Path(path).expanduser()
    digest, alphabets = hashlib.sha256(), list[str]()
    splits = sources(root) if root.is_dir() else []
    folders = sorted(one for one in root.glob("[!.]*/") if one not in splits)
    for file in sorted(root.glob("[!.]*/*")):
        if file.is_file():
            if file.stat().st_size > LARGEST:  # as sparse files are, which nobody wants to wait for
                raise ValueError(f"task.data: {file}: is larger than {LARGEST:,} bytes")
            with file.open("rb") as opened:
                found = hashlib.file_digest(opened, "sha256").hexdigest()
            digest.update(f"{file.parent.name}/{file.name}:{found}\n".encode())
    if splits:
        omniglot = read_omniglot(path)
        alphabets = list(omniglot.alphabets)
        digest.update(omniglot.sha256.encode())
    names = (*(folder.name for folder in folders), *alphabets)
    if not names or root in splits:
        raise ValueError(
            f"task.data = {path}: is no folder with data sets; a set is a folder in it, such as "
            "mnist with its four IDX files, and so is a split of Omniglot's (docs/multi_cv.md)"
        )
    return Folder(names, digest.hexdigest())


@lru_cache(maxsize=16)
def read_set(path: str, name: str, config: ImagesConfig) -> ImageSet:
    """Read a set, its images in orders of their own; ValueError if it cannot be, or not parted."""
    folder = Path(path).expanduser() / name
    whole, test = read_parts(folder) if folder.is_dir() else _alphabet(path, name)
    learned = _order(name, "training", len(whole.labels))[: config.limit]
    count = len(learned)
    validating = round(config.validation * count)
    if not 0 < validating < count:
        what, share = ("learn from", "smaller") if validating else ("validate on", "larger")
        raise ValueError(
            f"task.images.validation = {config.validation}: of the {count} training images of "
            f"{name!r} it leaves none to {what}; take a {share} share, or more images"
        )
    mean, deviation = NORMALIZATIONS.get(_plain(name)) or _deviations(whole.images[learned])
    return ImageSet(
        training=whole.at(learned[:-validating]),
        validation=whole.at(learned[-validating:]),
        test=test.at(_order(name, "test", len(test.labels))[: config.limit]),
        classes=int(whole.labels.max()) + 1,
        mean=mean,
        deviation=deviation,
    )


@lru_cache(maxsize=64)
def updates_of(path: str, name: str, config: ImagesConfig) -> int:
    """Return K, the updates in a set's budget: those of whole batches in its epochs, from one."""
    if config.updates is not None:
        return config.updates
    count = len(read_set(path, name, config).training.labels)
    return max(1, int(config.epochs * count) // config.batch_size)


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _order(*path: str | int) -> NDArray[np.intp]:
    """Return an order of so many images as the path ends in, a function of the path alone."""
    seed = derive_seed(0, Purpose.DATA, *path)
    # Raw bits: what numpy makes of them may change with its version.
    return np.argsort(np.random.PCG64(seed).random_raw(int(path[-1])), kind="stable")


def _deviations(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    mean, deviation = images.mean() / 255.0, images.std() / 255.0
    return (float(mean),), (float(deviation) or 1.0,)


def _alphabet(path: str, name: str) -> tuple[Labelled, Labelled]:
    """Return an alphabet's characters: of 15 drawers to learn from, of the last 5 to test on."""
    characters = read_omniglot(path).alphabets[name].values()
    try:
        images = np.array([[decode(png) for png in drawers] for drawers in characters])
    except ValueError as error:
        raise ValueError(f"task.data = {path}: {name}: {error}") from None
    learning, testing = (
        Labelled(part.reshape(-1, SIDE, SIDE, 1), np.arange(len(part)).repeat(part.shape[1]))
        for part in (images[:, :TRAINING_IMAGES], images[:, TRAINING_IMAGES:])
    )
    return learning, testing
