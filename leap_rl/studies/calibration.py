"""Finds a learning rate and a budget for a study, by agents that learn members from scratch.

A budget's agents are the first part of a larger one's: nothing in an agent depends on when it
stops. So each learning rate is learned once, for the largest budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from leap_rl.core.errors import ClusterLostError, RunFailedError
from leap_rl.core.lines import say
from leap_rl.evaluation.results import LearningCurve, read_evaluation
from leap_rl.evaluation.savings import Reference, make_reference
from leap_rl.evaluation.statistics import LEAST_REFERENCE, FloatArray
from leap_rl.evaluation.verdict import agent_steps, number
from leap_rl.runs.display import shown
from leap_rl.studies.arms import CALIBRATION
from leap_rl.studies.cells import SEEN, Cell, cells_of, evaluation_cell, resolved
from leap_rl.studies.config import StudyConfig
from leap_rl.studies.execution import Failure
from leap_rl.studies.folder import StudyFolder
from leap_rl.studies.study import command_of, compute
from leap_rl.training.interrupts import Interrupts, StopReason
from leap_rl.training.server.rounds import NO_TASK_LEFT

RATES: Final = (1 / 3, 1.0, 3.0)
"""Learning rates that are tried, times the study's."""
BUDGETS: Final = (0.25, 0.5, 1.0)
"""Budgets that are tried, times the study's."""

Found = Mapping[tuple[float, int], Mapping[str, Reference]]
"""By learning rate and budget, what agents gain in each member."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The learning rate and the budget that a study is to have."""

    lr: float
    agent_steps: int


def calibrate(
    folder: StudyFolder,
    study: StudyConfig,
    *,
    trusts_imports: bool = False,
    started_s: float,
) -> int:
    """Learn members from scratch, print what was found, write the study that it speaks for.

    Args:
        folder: The study's, without a study yet.
        study: What is asked for; its learning rate and its budget are the middle of what is tried.
        trusts_imports: Whether modules may be imported that its options name.
        started_s: When the command started, on the monotonic clock.

    Returns:
        The exit status.

    Raises:
        ValueError: The folder holds a study, or the study cannot be.
        RunFailedError: Agents failed, or gained nothing with any rate and budget.
        OSError: A file cannot be written.
    """
    folder.check()
    if folder.file.exists():
        raise ValueError(
            f"out = {shown(folder.path)}: holds a study already; calibrate in a new folder"
        )
    if study.agent_steps is not None:
        raise ValueError(
            f"agent_steps = {study.agent_steps}: --calibrate looks for the budget of all agents, "
            "from task.agent_steps on; leave it out, or give --agent_steps null"
        )
    cells = calibration_cells(study, folder)
    cells_of(study, folder.path, trusts_imports=trusts_imports)  # checks all arms
    interrupts = Interrupts(
        stop_after_s=study.runtime.stop_after_s,
        started_s=started_s,
        farewell="stopped; the same command resumes the calibration",
    )
    try:
        with folder.lock() as check, interrupts:
            failures, _ = compute(
                study, cells, interrupts, trusts_imports=trusts_imports, check=check
            )
            _check(failures, cells)
            found = judged(cells)
            say("\n".join(lines_of(found)))
            choice = choose(found)
            if choice is None:
                raise RunFailedError(nothing_learned(study, found))
            chosen = calibrated(study, choice, folder, trusts_imports=trusts_imports)
            folder.write(chosen)
    except KeyboardInterrupt:
        if interrupts.reason is StopReason.CLUSTER_LOST:
            raise ClusterLostError(f"{interrupts.lost}; the same command continues") from None
        status: int = (interrupts.reason or StopReason.INTERRUPTED).value
        return status
    command = command_of(folder, trusts_imports=trusts_imports)
    say(
        f"\nagent.lr = {chosen.agent.lr:g} and task.agent_steps = {chosen.task.agent_steps} stand "
        f"in {shown(folder.file)}.\nNext:\n"
        f"  {command} --plan    # what it takes\n"
        f"  {command}"
    )
    return 0


def _check(failures: Sequence[Failure], cells: Sequence[Cell]) -> None:
    """Raise RunFailedError unless the only failures are rates with which all agents diverge."""
    for failure in failures:
        if NO_TASK_LEFT not in failure.reason:
            raise RunFailedError(f"{failure.cell.name}: {failure.reason}")
    if len(failures) == len(cells):
        least = min(_lr(cell) for cell in cells)
        raise RunFailedError(
            f"all agents diverge with each learning rate from {least:g} on, in "
            f"{failures[0].cell.name} as follows: {failures[0].reason}; give a smaller one, as "
            f"--agent.lr {least / 10:.2g}"
        )


def nothing_learned(study: StudyConfig, found: Found) -> str:
    """Return why no budget is enough, and what helps."""
    members, budget = " and ".join(members_of(study)), study.task.agent_steps
    verdicts = {one.verdict for references in found.values() for one in references.values()}
    why = f"agents learn {members} in no budget up to {agent_steps(budget)} agent steps"
    if verdicts == {"long episodes"}:
        why = f"episodes of {members} are too long for {agent_steps(budget)} agent steps an agent"
    return f"{why}; give a larger one, as --task.agent_steps {4 * budget}"


def members_of(study: StudyConfig) -> tuple[str, ...]:
    """Return the members that are learned from scratch: seen ones, the first and the last."""
    return tuple(dict.fromkeys((study.members[0], study.members[-1])))


def calibration_cells(study: StudyConfig, folder: StudyFolder) -> list[Cell]:
    """Return a cell of agents from random starts for each learning rate.

    Agents that diverge are left out: a rate may be too large, and is not chosen then.

    Raises:
        ValueError: The learner has no learning rate of ours.
    """
    task = replace(study.task, games=list(members_of(study)), on_divergence="drop_task")
    agent = resolved(study).agent
    if agent.lr == "auto":
        raise ValueError(
            f"agent.algorithm = {agent.algorithm}: learns without agent.lr, for which --calibrate "
            "looks; carry out the study itself"
        )
    return [
        evaluation_cell(
            study,
            folder.path,
            arm=CALIBRATION,
            run=number,
            members=SEEN,
            task=task,
            agent=agent if rate == 1 else replace(agent, lr=float(f"{rate * agent.lr:.2g}")),
            seeds=max(study.agents, LEAST_REFERENCE),  # as a gain is known of no fewer
        )
        for number, rate in enumerate(RATES)
    ]


def judged(cells: Sequence[Cell]) -> Found:
    """Return what agents gained, by learning rate and budget.

    A cell that is not finished is of a rate with which all agents diverged.
    """
    found = {}
    for cell in cells:
        task = cell.config.task
        every = read_evaluation(cell.folder).curves if cell.finished else ()
        for share in BUDGETS:
            budget = round(share * task.agent_steps)
            curves = [_until(curve, budget) for curve in every if not curve.restarted]
            found[_lr(cell), budget] = {
                game: make_reference([c for c in curves if c.game == game], budget)
                for game in task.resolved_games
            }
    return found


def _lr(cell: Cell) -> float:
    lr = cell.config.agent.lr
    assert lr != "auto", "each cell has its own"
    return lr


def _until(curve: LearningCurve, budget: int) -> LearningCurve:
    episodes, intervals = curve.agent_steps <= budget, curve.interval_ends <= budget
    return replace(
        curve,
        agent_steps=curve.agent_steps[episodes],
        returns=curve.returns[episodes],
        interval_ends=curve.interval_ends[intervals],
        rewards=curve.rewards[intervals],
    )


def choose(found: Found) -> Choice | None:
    """Return the rate whose agents end highest in the largest budget, and the least that shows it.

    Final returns count as shares of the range over rates in each member, which is at least as large
    as their standard error. A rate with which more agents diverged comes after those with which
    fewer did. The least budget is that in which agents of this rate are known to gain something in
    every member; none if none is.
    """
    largest = max(budget for _, budget in found)
    rates = sorted({lr for lr, _ in found})
    members = list(found[rates[0], largest])
    references = [[found[lr, largest][member] for member in members] for lr in rates]
    finals = np.array([[one.means.final for one in row] for row in references])
    errors = np.array([[_error(one.agents.final) for one in row] for row in references])
    agents = np.array([[len(one.agents) for one in row] for row in references])
    known = np.isfinite(finals)
    least = np.where(known, finals, np.inf).min(axis=0)
    spans = np.maximum(np.where(known, finals, -np.inf).max(axis=0) - least, errors.max(axis=0))
    shares = np.where(known, finals - least, 0.0) / np.where(spans > 0, spans, 1.0)
    lost = (agents.max(axis=0) - agents).sum(axis=1) + (~known).sum(axis=1)
    best = rates[max(range(len(rates)), key=lambda i: (-lost[i], shares[i].mean()))]
    for budget in sorted({budget for _, budget in found}):
        if all(reference.learns for reference in found[best, budget].values()):
            return Choice(lr=best, agent_steps=budget)
    return None


def _error(finals: FloatArray) -> float:
    """Return the standard error of the mean of those that are known; 0 of fewer than two."""
    known = finals[np.isfinite(finals)]
    return float(known.std(ddof=1) / math.sqrt(len(known))) if len(known) > 1 else 0.0


def calibrated(
    study: StudyConfig, choice: Choice, folder: StudyFolder, *, trusts_imports: bool = False
) -> StudyConfig:
    """Return the study with what was chosen, its budget in whole updates.

    That is the next larger one that was tried where its arms cannot have that budget, as their
    meta-steps would not divide its total.
    """
    each = study.task.agent_steps_per_update
    agent = replace(study.agent, lr=choice.lr)
    for share in BUDGETS[:-1]:  # the last is the study's own, which its arms have
        tried = round(share * study.task.agent_steps)
        if tried < choice.agent_steps:
            continue
        budget = max(1, round(tried / each)) * each
        found = replace(study, task=replace(study.task, agent_steps=budget), agent=agent)
        with suppress(ValueError):
            cells_of(found, folder.path, trusts_imports=trusts_imports)
            return found
    return replace(study, agent=agent)


def lines_of(found: Found) -> Iterator[str]:
    """Yield the table of what agents from random starts gain."""
    says = {
        "sound": "learns",
        "uncertain": "learns, agents differ much",
        "no gain": "does not learn",
        "long episodes": "episodes are too long",
    }
    most = max(len(one.agents) for members in found.values() for one in members.values())
    yield f"{'agent.lr':>10}  {'agent steps':>12}  {'first':>9}  {'final':>9}"
    for (lr, budget), members in sorted(found.items()):
        for member, reference in members.items():
            means = [reference.means.first, reference.means.final]
            first, final = (number(each) if math.isfinite(each) else "–" for each in means)
            told = says[reference.verdict] if len(reference.agents) else "agents diverged"
            if 0 < (left := len(reference.agents)) < most:
                told += f"; {most - left} of {most} agents diverged"
            yield f"{lr:>10g}  {agent_steps(budget):>12}  {first:>9}  {final:>9}  {member}: {told}"
