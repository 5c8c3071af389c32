"""Why starts help or do not: how far they moved, how members pulled, what features they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leap_rl.evaluation.diagnosis import (
    Features,
    contributions_in_words,
    in_words,
    observe,
    start_features,
)
from leap_rl.evaluation.meta_run import cosine_table
from leap_rl.evaluation.page import Table
from leap_rl.evaluation.summary import Comparison, Saved, Summary
from leap_rl.evaluation.verdict import conclusion_of
from leap_rl.learners.game_learner import GameLearner
from leap_rl.runs.kinds import make_tasks
from leap_rl.sharing.initialization import read_initialization
from leap_rl.storage.run_folder import INITIALIZATION
from leap_rl.studies.cells import Cell

if TYPE_CHECKING:
    from torch import Tensor

    from leap_rl.learners.learner import Learner

HARDLY: Final = 0.02
"""Of its norm: a start that moved less is as good as random."""
FAR: Final = 1.0
"""Of its norm: a start that moved more has left what it was drawn as."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What is to be said of the starts, and the numbers behind it."""

    sentences: Sequence[str]
    tables: Sequence[Table]


def diagnose(cells: Sequence[Cell], summary: Summary) -> Diagnosis:
    """Look at the starts of all arms that are finished.

    Sentences are of arms that are measured and do not help, in new games where these are told.
    What cannot be looked at here, such as a member whose environment is missing, is left out.
    """
    trained = [cell for cell in cells if cell.members is None and cell.finished]
    unhelpful = {
        each.initialization: over.games
        for each in summary.comparisons
        if (over := _judged(each)) is not None and conclusion_of(over.saved) in ("open", "hurts")
    }
    sentences: list[str] = []
    moves = []
    for arm in dict.fromkeys(cell.arm for cell in trained):
        runs = [cell for cell in trained if cell.arm == arm]
        moved, cosine = float(np.mean([_moved(cell) for cell in runs])), _cosines(runs)
        if arm in unhelpful:
            sentences += _moved_in_words(arm, moved)
            if said := contributions_in_words(cosine):
                sentences.append(f"{arm}: {said}")
        mean = f"{np.mean(list(cosine.values())):+.2f}" if cosine else "–"
        moves.append({"arm": arm, "moved": f"{moved:.0%} of its norm", "mean cosine": mean})
    features = []
    for (arm, member), (start, random) in _features(cells).items():
        if member in unhelpful.get(arm, ()):
            sentences += in_words(arm, member, start, random)
        features.append(
            {
                "arm": arm,
                "member": member,
                "features": str(start.units),
                "dead": f"{start.dead:.0%} ({random.dead:.0%} of a random start's)",
                "effective rank": f"{start.rank:.1f} ({random.rank:.1f})",
            }
        )
    return Diagnosis(
        sentences=sentences,
        tables=[
            Table(title=title, rows=rows, says=says, folded=True)
            for title, rows, says in (
                ("Starts: how far they moved", moves, _MOVES),
                ("Starts: their features before learning", features, _FEATURES),
            )
            if rows
        ],
    )


def _judged(comparison: Comparison) -> Saved | None:
    """Return the mean by which a start is judged: over new games, if these can be measured."""
    new = comparison.over.get("new")
    return new if new is not None and new.games else comparison.over.get("all")


_MOVES: Final = (
    "From version 0 to the last, means over runs. The cosine is that between the contributions of "
    "two members in one meta-step, a mean over pairs: above 0 they pull the same way."
)
_FEATURES: Final = (
    "Of the first run's start, over observations of agents that act at random. Dead: the same in "
    "all of them. The effective rank is that of their matrix (Roy and Vetterli 2007)."
)


def _moved(cell: Cell) -> float:
    """Return how far a run's start moved, as a share of the norm that it began with."""
    learner = make_tasks(cell.config)
    first, last = (_start(cell, learner, number) for number in (0, cell.rounds))
    return float((last.double() - first.double()).norm() / first.double().norm())


def _moved_in_words(arm: str, moved: float) -> list[str]:
    if moved < HARDLY:
        return [
            f"{arm}'s start moved by {moved:.1%} of its norm, so it is hardly more than a random "
            "one: take a larger meta.meta_lr, or more meta-steps."
        ]
    if moved > FAR:
        return [
            f"{arm}'s start moved by {moved:.1f} times its norm, far beyond what weights are drawn "
            "as, and agents may learn slowly from it: take a smaller meta.meta_lr."
        ]
    return []


def _cosines(runs: Sequence[Cell]) -> Mapping[tuple[str, str], float]:
    """Return the mean cosine of each pair of different members, over meta-steps and runs."""
    found: dict[tuple[str, str], list[float]] = {}
    for cell in runs:
        games, means = cosine_table(cell.folder.rows())
        for row, column in np.argwhere(np.isfinite(means)):
            if row < column:
                pair = tuple(sorted((games[row], games[column])))
                found.setdefault((pair[0], pair[1]), []).append(float(means[row, column]))
    return {pair: float(np.mean(values)) for pair, values in found.items()}


def _features(
    cells: Sequence[Cell],
) -> dict[tuple[str, str], tuple[Features, Features]]:
    """Return by arm and member the features of the first run's start, and of its version 0."""
    found = {}
    seen: dict[str, Any] = {}
    for cell in cells:
        if cell.after is None or cell.run or cell.mix is not None or not cell.after.finished:
            continue  # a mix has its own features for each agent
        if cell.alone is not None:
            continue  # there is one start for each member, of which agents choose
        learner = make_tasks(cell.config)
        if not isinstance(learner, GameLearner):
            continue
        starts = [_start(cell.after, learner, number) for number in (cell.after.rounds, 0)]
        for member in cell.config.task.resolved_games:
            try:
                if member not in seen:
                    seen[member] = observe(learner, member)
                last, first = (start_features(learner, each, seen[member]) for each in starts)
            except (ValueError, RuntimeError):  # no whole encoder, or no such environment here
                continue
            found[cell.arm, member] = last, first
    return found


def _start(cell: Cell, learner: Learner, number: int) -> Tensor:
    path = cell.folder.checkpoint(number) / INITIALIZATION
    return read_initialization(str(path), learner.shared_layout())[0]
