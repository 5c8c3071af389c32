"""Plans a study: its cells, their agent steps, and the hours that they take here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from leap_rl.bench.machine import Quiet
from leap_rl.bench.plan import HOUR_S, agent_steps_per_s, spread
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.kinds import make_tasks
from leap_rl.studies.cells import Cell, cells_of
from leap_rl.studies.config import StudyConfig
from leap_rl.studies.folder import StudyFolder
from leap_rl.studies.progress import clock_of

ANSWER_WITHIN_S: Final = 15.0
"""Since the command started."""

MEASURED_MEMBERS: Final = 2
"""Members that are measured; they may differ in speed."""

MEASURE_S: Final = 3.0
"""For each; less where little of the time is left, but not less than `LEAST_S`."""
LEAST_S: Final = 0.5

START_S: Final = 6.0
"""Until a cell's process has imported what it needs, and is done with its folder at its end."""


QUICK_WITHIN_S: Final = 1800.0
"""A first answer; what would take longer is refused."""

ATARI_AGENT_STEPS_PER_S: Final = 1600.0
"""Of one core, with the settings of configs/atari.yaml, where others work too."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Agent steps a second of one trainer."""

    agent_steps_per_s: float
    found: str
    """A description of the measurement."""


def plan(
    folder: StudyFolder,
    study: StudyConfig,
    *,
    trusts_imports: bool = False,
    started_s: float,
) -> str:
    """Return how long a study takes, a line each; nothing is computed for it.

    Raises:
        ValueError: The study cannot be, or the folder holds something else.
    """
    folder.check()
    study = folder.as_begun(study)
    cells = cells_of(study, folder.path, trusts_imports=trusts_imports)
    speed = _speed_of_finished(cells) or _measured(cells, until_s=started_s + ANSWER_WITHIN_S)
    at_once = 1 if study.runtime.kind == "local" else study.meta.batch_size
    return "\n".join(_lines(cells, study.trainers_here, at_once, speed))


def _lines(cells: Sequence[Cell], trainers: int, at_once: int, speed: Speed) -> list[str]:
    left = [cell for cell in cells if not cell.finished]
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        what = "meta-training" if cell.members is None else f"new agents, {cell.members}"
        groups.setdefault(f"{cell.arm}: {what}", []).append(cell)
    width = max(map(len, groups))
    lines = [
        f"  {name:<{width}}  {len(group):>4} cells  "
        f"{sum(cell.agent_steps for cell in group):>16,} agent steps"
        for name, group in groups.items()
    ]
    whole = sum(cell.agent_steps for cell in cells)
    rest = sum(cell.agent_steps - cell.agent_steps_done for cell in left)
    lines.append(f"  {'all':<{width}}  {len(cells):>4} cells  {whole:>16,} agent steps")
    lines.append(f"\n{len(left)} cells with {rest:,.0f} agent steps are left")
    seconds = seconds_of(left, trainers, speed.agent_steps_per_s, at_once=at_once)
    each = f"{speed.agent_steps_per_s:,.0f} agent steps a second of a trainer"
    hours = f"{seconds / HOUR_S:,.2f} hours ({clock_of(seconds)}) on {trainers} trainers"
    return [*lines, f"{hours}, by {each}, {speed.found}"]


def refuse_slow(study: StudyConfig, cells: Sequence[Cell]) -> None:
    """Raise ValueError for a quick study of Atari's games that is not quick on these cores."""
    if not study.quick or study.task.kind != "atari" or study.runtime.kind == "ray":
        return
    processes, whole = study.trainers_here, sum(cell.agent_steps for cell in cells)
    seconds = seconds_of(cells, processes, ATARI_AGENT_STEPS_PER_S)
    if seconds > QUICK_WITHIN_S:
        raise ValueError(
            f"quick = true: would take about {clock_of(seconds)} here, for {whole:,} agent steps "
            f"in {processes} processes at {ATARI_AGENT_STEPS_PER_S:,.0f} a second, and fewer show "
            "nothing in Atari's games; name fewer members or arms, as --arms leap, leave --quick "
            "out and see --plan for the hours that it takes, or ask it of MinAtar's games "
            "(MinAtar/Breakout-v1), which take minutes"
        )


def seconds_of(
    cells: Sequence[Cell], trainers: int, agent_steps_per_s: float, *, at_once: int = 1
) -> float:
    """Return how long cells take, well packed, new agents after their meta-training run.

    Trainers learn so many tasks of a cell ``at_once``, as far as there are trainers.
    """
    work = {c: (c.agent_steps - c.agent_steps_done) / agent_steps_per_s for c in cells}
    own = {c: START_S + seconds / min(at_once, trainers) for c, seconds in work.items()}
    chain = max((own[c] + own.get(c.after, 0.0) if c.after else own[c] for c in cells), default=0.0)
    return max(chain, sum(START_S + seconds for seconds in work.values()) / trainers)


def _speed_of_finished(cells: Sequence[Cell]) -> Speed | None:
    """Return the speed of the meta-training runs that are finished; none if none is."""
    agent_steps = spent_s = 0.0
    for cell in cells:
        if cell.members is None and cell.finished:
            rows = cell.folder.rows()
            agent_steps += cell.agent_steps
            spent_s += sum(row.get("time/working_s", 0.0) for row in rows)
    if not spent_s:
        return None
    return Speed(agent_steps_per_s=agent_steps / spent_s, found="that of the finished cells")


def _measured(cells: Sequence[Cell], *, until_s: float) -> Speed:
    """Return how fast agents learn here, by learning some members for a few seconds each."""
    config = next(cell.config for cell in cells if isinstance(cell.config, TrainConfig))
    games = spread(config.task.resolved_games, MEASURED_MEMBERS)
    rates, quiet, own_s = [], Quiet(), time.process_time()
    for number, game in enumerate(games):
        left_s = (until_s - time.monotonic()) / (len(games) - number)
        seconds = min(MEASURE_S, max(LEAST_S, left_s))
        rates.append(agent_steps_per_s(make_tasks(config), config.meta.build(), game, seconds))
    mean = len(rates) / sum(1 / rate for rate in rates)  # as much is learned of each
    others = quiet.others_share(time.process_time() - own_s)
    found = f"measured for seconds in {', '.join(games)}; others used {others:.0%} of all cores"
    return Speed(agent_steps_per_s=mean, found=found)
