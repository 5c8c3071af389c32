"""The agents of a study's cells as one evaluation, and which start is the best."""

from __future__ import annotations

import numpy as np

from leap_rl.evaluation.results import EvaluationResults, LearningCurve
from leap_rl.studies.results import best_run, comparable, of_arms, run_scores


def curve(arm: str, run: int, seed: int, level: float, game: str = "maze") -> LearningCurve:
    steps = np.arange(100, 1100, 100)
    return LearningCurve(
        initialization=arm,
        run=run,
        game=game,
        seed=seed,
        interval_ends=steps,
        rewards=np.ones(10),
        agent_steps=steps,
        returns=level * np.linspace(0.0, 1.0, 10),
    )


def results(*curves: LearningCurve) -> EvaluationResults:
    return EvaluationResults(
        initializations=("random", "leap", "reptile"),
        runs={"random": ["random"], "leap": ["leap-0", "leap-2"], "reptile": ["reptile-0"]},
        own_starts={},
        games=tuple(dict.fromkeys(each.game for each in curves)),
        agents_per_game=1,
        agent_steps=1000,
        curves=curves,
    )


BASE = [curve("random", 0, 0, 1.0), curve("random", 0, 1, 1.2)]


def test_the_best_start_is_the_best_run_of_the_best_arm() -> None:
    found = results(
        *BASE, curve("leap", 0, 0, 3.0), curve("leap", 1, 0, 5.0), curve("reptile", 0, 0, 4.5)
    )
    assert best_run(found) == ("reptile", "reptile-0")  # leap's mean is 4, one of its runs chance
    better = results(
        *BASE, curve("leap", 0, 0, 4.9), curve("leap", 1, 0, 5.0), curve("reptile", 0, 0, 4.5)
    )
    assert best_run(better) == ("leap", "leap-2")
    assert best_run(results(*BASE)) is None


def test_members_count_the_same_whatever_their_returns() -> None:
    scores = run_scores(
        results(
            *(curve("leap", 0, 0, 1000.0, "large"), curve("reptile", 0, 0, 2000.0, "large")),
            *(curve("leap", 0, 0, 0.2, "small"), curve("reptile", 0, 0, 0.1, "small")),
        )
    )
    assert np.isclose(scores["leap", 0], scores["reptile", 0])


def test_an_arm_is_set_against_the_baseline_alone_and_pairs_are_whole() -> None:
    found = results(*BASE, curve("leap", 0, 0, 3.0), curve("reptile", 0, 0, 4.5))
    assert [c.seed for c in comparable(found).of("random", "maze")] == [0]
    alone = of_arms(found, ("random", "leap"))
    assert alone.initializations == ("random", "leap")
    assert {c.initialization for c in alone.curves} == {"random", "leap"}
    assert set(alone.runs) == {"random", "leap"}
