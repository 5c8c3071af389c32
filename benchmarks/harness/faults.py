"""Draws the failures to inject, and reads which were."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from itertools import chain, cycle, islice
from pathlib import Path

from leap_rl.training.faults import FaultInjector, FaultPoint

FOLLOWS: Mapping[FaultPoint, str] = {
    FaultPoint.DRIVER_REPLACING: "trainer",
    FaultPoint.DRIVER_RESUMING: "driver",
    FaultPoint.SERVER_RESUMING: "server",
}
"""Fault points that are reached only after a kill of such a process, or once at the start."""

SURE_SHARE = 0.5
"""Failures are drawn from this first part of an undisturbed run's visits: later ones may never
come, since a kill can take a visit with it."""


def draw_faults(visits: Mapping[FaultPoint, int], *, kills: int, seed: int) -> dict[str, list[int]]:
    """Draw failures, spread over the fault points as evenly as possible.

    Args:
        visits: How often an undisturbed run reached each fault point.
        kills: How many failures.
        seed: Of the draw.

    Returns:
        The numbers of the visits to kill at, from 1, by fault point.

    Raises:
        ValueError: There are fewer visits than failures.
    """
    dice = random.Random(seed)
    at: dict[str, list[int]] = {}
    plain = [point for point in FaultPoint if point not in FOLLOWS and visits.get(point)]
    dice.shuffle(plain)
    # Failures that need an earlier kill are drawn last, when the other kills are known.
    once, again = [*plain, *FOLLOWS][:kills], islice(cycle(plain), kills * len(plain))
    left = kills
    for point in chain(once, again):
        drawn = _draw(point, visits, at, dice) if left else None
        if drawn is not None:
            at.setdefault(point, []).append(drawn)
            left -= 1
    if left:
        raise ValueError(
            f"kills = {kills}: this run has not as many moments to kill at; give it more "
            "meta-steps, tasks or agent steps"
        )
    return {point: sorted(numbers) for point, numbers in at.items()}


def _draw(
    point: FaultPoint,
    visits: Mapping[FaultPoint, int],
    at: Mapping[str, list[int]],
    dice: random.Random,
) -> int | None:
    """Draw the number of a visit that is still free; none if there is none left."""
    if point in FOLLOWS:
        before = any(at.get(other) for other in FaultPoint if other.role == FOLLOWS[point])
        first = 2 if point is FaultPoint.SERVER_RESUMING else 1  # its first visit is the start
        return first if before and point not in at else None
    sure = max(1, int(SURE_SHARE * visits[point]))
    free = sorted(set(range(1, sure + 1)) - set(at.get(point, ())))
    return dice.choice(free) if free else None


def write_plan(faults: FaultInjector, path: Path) -> None:
    """Write a plan of failures to a file, which `fault_injector` reads."""
    Path(faults.folder).mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"folder": faults.folder, "at": dict(faults.at)}))


def visits_of(faults: FaultInjector) -> dict[FaultPoint, int]:
    """Return how often each fault point was reached."""
    paths = {point: Path(faults.folder) / f"{point}.visits" for point in FaultPoint}
    return {point: path.stat().st_size for point, path in paths.items() if path.exists()}


def fired_of(faults: FaultInjector) -> list[tuple[FaultPoint, int]]:
    """Return the injected failures that fired, in their order: fault point and visit."""
    notes = sorted(Path(faults.folder).glob("*.killed"), key=lambda note: note.stat().st_mtime_ns)
    words = [note.name.split(".") for note in notes]
    return [(FaultPoint(f"{role}.{doing}"), int(number)) for role, doing, number, _ in words]
