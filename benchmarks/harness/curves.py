"""The paper's measures of a supervised task: area under the error curve, and final error.

Section 4: "We measure transfer learning in terms of final performance and speed of convergence,
where the latter is defined as the area under the training error curve."

Dimensions: P flattened shared parameters, K updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from torch import Tensor

from leap_rl.learners.task import Task, TaskSpec
from leap_rl.meta.gradient_path import Point


@dataclass(frozen=True)
class Curve:
    """One task's learning."""

    training_errors: tuple[float, ...]
    """Of each update's batch, before the update, [K]; 0 to 1."""
    final_validation_error: float
    """After the last update; 0 to 1."""
    final_test_error: float = float("nan")
    """The same on test images, where a task has any."""

    @property
    def area(self) -> float:
        """The area under the training-error curve, of 1 in all."""
        return fmean(self.training_errors)


def learn(make_task: Callable[[TaskSpec], Task], spec: TaskSpec, theta0: Tensor) -> Curve:
    """Learn a task from shared parameters, float32 [P]."""
    task = make_task(spec)
    errors: list[float] = []
    validation = test = float("nan")
    try:
        task.start(theta0)
        while not task.done:
            losses = task.advance(_ignore).losses
            errors.append(losses["training_error"])
            validation = losses.get("validation_error", validation)
            test = losses.get("test_error", test)
    finally:
        task.close()
    return Curve(tuple(errors), validation, test)


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Return the means over so many values in a row; fewer at the end, so as many as came in."""
    return [fmean(values[i : i + window]) for i in range(len(values))]


def _ignore(point: Point) -> None:
    """Nobody watches the path."""
