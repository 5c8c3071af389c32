"""Which alphabets, characters and images make a task: the draws of `task.omniglot.split`.

They belong to the data, not to a run: an alphabet is the same task in every run of the same split,
as a game is the same game, and a held-out alphabet of one run is held out in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.tasks.images.config import (
    CLASSES,
    MOST_PRETRAINING,
    POOLS,
    PUBLISHED_HELD_OUT,
    SOURCE,
    OmniglotConfig,
)
from leap_rl.tasks.images.data import DRAWERS, SIDE, Omniglot, decode, read_omniglot

if TYPE_CHECKING:
    from leap_rl.tasks.config import TaskConfig


def with_alphabets(task: TaskConfig) -> TaskConfig:
    """Return the config with its alphabets spelled out and with the SHA-256 of its data.

    For errors see `open_data` and `resolve_alphabets`.
    """
    data = open_data(task)
    return replace(task, games=list(resolve_alphabets(task, data)), data_sha256=data.sha256)


def open_data(task: TaskConfig) -> Omniglot:
    """Return the config's images; ValueError if they are missing, or others."""
    if task.data is None:
        raise ValueError(
            "task.data = null: task.kind = omniglot needs Omniglot's images; get "
            f"images_background.zip and images_evaluation.zip from {SOURCE} and name their folder"
        )
    data = read_omniglot(task.data)
    if task.data_sha256 not in (None, data.sha256):
        raise ValueError(
            f"task.data = {task.data}: holds other images (SHA-256 {data.sha256}) than "
            f"task.data_sha256 = {task.data_sha256}; name the folder with those that the run began "
            "with"
        )
    return data


def resolve_alphabets(task: TaskConfig, data: Omniglot) -> tuple[str, ...]:
    """Return the alphabets that `task.games` names, pools spelled out.

    Raises:
        ValueError: One is not in the data, is too small or comes twice, or a pool is too large.
    """
    asked = [task.games] if isinstance(task.games, str) else list(task.games)
    usable = [name for name, characters in data.alphabets.items() if len(characters) >= CLASSES]
    names: list[str] = []
    for name in asked:
        if name == "all":
            names += usable  # nothing needs to be held out for them
        elif name in POOLS:
            names += alphabet_pools(usable, task.omniglot)[name]
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
    """Part alphabets with enough characters into those to pretrain on and those to hold out.

    ValueError: there are fewer than the config asks for.
    """
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

    The last five of the drawers are those that validate. An alphabet has at least 20 characters in
    the data at `path`; `split` says which draw of characters and drawers is meant.

    Raises:
        ValueError: An image is damaged.
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
