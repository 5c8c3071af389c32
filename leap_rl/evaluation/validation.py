"""Refuses curves that do not belong together, in one line."""

from __future__ import annotations

import numpy as np

from leap_rl.evaluation.results import Evaluation, LearningCurve


def check_evaluation(
    evaluation: Evaluation, *, reference: str | None = None, window: int | None = None
) -> None:
    """Refuse what cannot be compared.

    Raises:
        ValueError: A curve is damaged, comes twice, is of nothing that the evaluation names or of
            another budget; or `reference` or `window` is no good.
    """
    if not evaluation.initializations or not evaluation.games:
        raise ValueError("evaluation: has no initializations or no games, so nothing to measure")
    if reference is not None and reference not in evaluation.initializations:
        raise ValueError(
            f"reference = {reference!r}: is none of {', '.join(evaluation.initializations)}"
        )
    if window is not None and window < 1:
        raise ValueError(f"window = {window}: a mean is over at least 1 episode")
    seen = set()
    for curve in evaluation.curves:
        agent = (curve.initialization, curve.run, curve.game, curve.seed)
        if agent in seen:
            raise ValueError(f"{_named(curve)}: comes twice; keep one of the two")
        seen.add(agent)
        _check_curve(curve, evaluation)


def _check_curve(curve: LearningCurve, evaluation: Evaluation) -> None:
    for kind, name, known in (
        ("initialization", curve.initialization, evaluation.initializations),
        ("game", curve.game, evaluation.games),
    ):
        if name not in known:
            raise ValueError(
                f"{_named(curve)}: the evaluation has no {kind} {name!r}, but {', '.join(known)}"
            )
    runs = len(evaluation.runs[curve.initialization])
    if not 0 <= curve.run < runs:
        raise ValueError(f"{_named(curve)}: {curve.initialization} has {runs} runs, from 0")
    if not 0 <= curve.seed < evaluation.seeds:
        raise ValueError(f"{_named(curve)}: the evaluation has {evaluation.seeds} seeds, from 0")
    if not len(curve.agent_steps) == len(curve.returns) == len(curve.lengths):
        raise ValueError(f"{_named(curve)}: its columns differ in length; the curve is damaged")
    if len(curve.returns):
        _check_episodes(curve, evaluation)
    _check_rewards(curve, evaluation)


def _check_episodes(curve: LearningCurve, evaluation: Evaluation) -> None:
    if not np.isfinite(curve.returns).all() or (np.diff(curve.agent_steps) < 0).any():
        raise ValueError(
            f"{_named(curve)}: has returns that are not finite, or agent steps out of order; the "
            "curve is damaged"
        )
    if curve.agent_steps[-1] > evaluation.agent_steps:
        raise ValueError(
            f"{_named(curve)}: has an episode that ended at agent step {curve.agent_steps[-1]:,}, "
            f"past the budget of {evaluation.agent_steps:,}; curves of several budgets do not "
            "compare: evaluate all with one"
        )


def _check_rewards(curve: LearningCurve, evaluation: Evaluation) -> None:
    if not np.array_equal(curve.interval_ends, evaluation.curves[0].interval_ends):
        raise ValueError(
            f"{_named(curve)}: its rewards are of other intervals than the first agent's; curves "
            "of several budgets do not compare: evaluate all with one"
        )
    if len(curve.rewards) != len(curve.interval_ends) or not np.isfinite(curve.rewards).all():
        raise ValueError(
            f"{_named(curve)}: its rewards are not finite, or not one an interval; the curve is "
            "damaged"
        )


def _named(curve: LearningCurve) -> str:
    run = f" (run {curve.run})" if curve.run else ""
    return f"{curve.initialization}{run}, {curve.game}, seed {curve.seed}"
