"""Which deaths a run is to die."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import chain, cycle, islice

from leap_rl.training.faults.points import Phase

FOLLOWS: Mapping[Phase, str] = {
    Phase.DRIVER_REPLACING: "trainer",
    Phase.DRIVER_RESUMING: "driver",
    Phase.SERVER_RESUMING: "server",
}
"""Phases that come after a death of such a process only, or once at the start."""

SURE_SHARE = 0.5
"""Of the visits of an undisturbed run: deaths are drawn from the first half of them, since later
ones may never come. A death can take a visit with it, say that of an answer to the dead."""


def draw_deaths(visits: Mapping[Phase, int], *, kills: int, seed: int) -> dict[str, list[int]]:
    """Draw so many deaths, as even over the phases as they can be.

    Args:
        visits: How often an undisturbed run came to each phase.
        kills: How many deaths.
        seed: Of the draw.

    Returns:
        The numbers of the visits to die at, from 1, by phase.

    Raises:
        ValueError: There are not as many visits as deaths.
    """
    dice = random.Random(seed)
    at: dict[str, list[int]] = {}
    # Those that follow another death come last: by then it is known what there is to follow.
    plain = [phase for phase in Phase if phase not in FOLLOWS and visits.get(phase)]
    dice.shuffle(plain)
    once, again = [*plain, *FOLLOWS][:kills], islice(cycle(plain), kills * len(plain))
    for phase in chain(once, again):
        if sum(map(len, at.values())) >= kills:
            break
        drawn = _draw(phase, visits, at, dice)
        if drawn is not None:
            at.setdefault(phase, []).append(drawn)
    if sum(map(len, at.values())) < kills:
        raise ValueError(
            f"kills = {kills}: this run has not as many moments to die at; give it more "
            "meta-steps, tasks or agent steps"
        )
    return {phase: sorted(numbers) for phase, numbers in at.items()}


def _draw(
    phase: Phase, visits: Mapping[Phase, int], at: Mapping[str, list[int]], dice: random.Random
) -> int | None:
    """Draw the number of a visit that is still free; none if there is none left."""
    if phase in FOLLOWS:
        deaths = sum(len(at.get(other, ())) for other in Phase if other.role == FOLLOWS[phase])
        first = 2 if phase is Phase.SERVER_RESUMING else 1  # its first visit is the start
        return first if deaths and first not in at.get(phase, ()) else None
    sure = max(1, int(SURE_SHARE * visits[phase]))
    free = sorted(set(range(1, sure + 1)) - set(at.get(phase, ())))
    return dice.choice(free) if free else None
