"""A task from its start to its end, of learners that know no safe point between."""

from __future__ import annotations

from typing import Any

from leap_rl.learners.learner import Learner
from leap_rl.learners.task import Progress, TaskSpec
from leap_rl.meta.gradient_path import Point

Learned = tuple[Any, list[Point], list[Progress]]


def learned(learner: Learner, *, seed: int = 5, game: str | None = None) -> Learned:
    """Learn a task, of the learner's first game if none is named, from random shared parameters.

    Returns:
        The task, its points, and what each call did.
    """
    task = learner(TaskSpec(game=game or learner.task.resolved_games[0], seed=seed))
    points: list[Point] = []
    progress: list[Progress] = []
    task.start(learner.random_initialization(1))
    try:
        while not task.done:
            progress.append(task.advance(points.append))
    finally:
        task.close()
    return task, points, progress
