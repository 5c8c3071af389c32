"""Omniglot's alphabets: their data and budget. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from leap_rl.tasks.images.config import POOLS, SOURCE
from leap_rl.tasks.options import TaskOptions
from leap_rl.tasks.suite import Suite, T

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from leap_rl.tasks.images.data import Omniglot


class OmniglotSuite(Suite):
    """Alphabets to classify the characters of."""

    kind = "omniglot"
    subject = "images to classify"
    learned_by = "classifier"
    options = ("data", "data_sha256", "omniglot")
    unit = "examples"
    compared_by = "benchmarks/paper/omniglot_scores.py compares initializations of classifiers"

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        """Return the alphabets; none where a pool is named, whose alphabets the data knows."""
        return () if set(games) & set(POOLS) else tuple(games)

    def updates(self, task: TaskOptions) -> int:
        return task.omniglot.updates

    def with_updates(self, task: T, updates: int) -> T:
        return replace(task, omniglot=replace(task.omniglot, updates=updates))

    def budget(self, task: TaskOptions) -> int:
        """Return the images that a task learns from."""
        return task.omniglot.updates * task.omniglot.batch_size

    def resolve(self, task: T) -> T:
        """Return the options with the alphabets spelled out and the data's SHA-256.

        For errors see `open_data` and `resolve_alphabets`.
        """
        from leap_rl.tasks.images.splits import resolve_alphabets

        data = open_data(task)
        asked = [task.games] if isinstance(task.games, str) else list(task.games)
        games = resolve_alphabets(asked, data, task.omniglot)
        return replace(task, games=list(games), data_sha256=data.sha256)

    def check_machine(self, task: TaskOptions) -> None:
        open_data(task)

    def images(self, task: TaskOptions, game: str) -> NDArray[np.uint8]:
        """Return an alphabet's images, uint8 [20 characters, 20 drawers, H, W], read-only.

        The last five of the drawers are those that validate.
        """
        from leap_rl.tasks.images.splits import task_images

        assert task.data is not None
        return task_images(task.data, game, task.omniglot.split)


def open_data(task: TaskOptions) -> Omniglot:
    """Return the images; ValueError if they are missing, or others than the run's."""
    from leap_rl.tasks.images.data import read_omniglot

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
