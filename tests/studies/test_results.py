"""The agents of a study's cells as one evaluation, and which start is the best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.estimates import estimate_rows
from leap_rl.evaluation.results import EvaluationResults, LearningCurve, Training
from leap_rl.storage.run_folder import INITIALIZATION
from leap_rl.studies import page
from leap_rl.studies.cells import cells_of
from leap_rl.studies.config import configure
from leap_rl.studies.results import best_run, of_arms

BUDGET = 100_000
EPISODES = 400
AGENTS = 3
RUNS = {"random": ["random"], "leap": ["leap-0", "leap-2"], "reptile": ["reptile-0"]}


def agents(
    arm: str, run: int, *, speed: float, scale: float = 1.0, game: str = "maze"
) -> list[LearningCurve]:
    """Agents that come to the scale, at so many times random's speed."""
    steps = np.linspace(0, BUDGET, EPISODES + 1).astype(np.int64)[1:]
    level = np.minimum(1.0, speed * steps / BUDGET)
    noise = np.random.default_rng([len(arm), run])
    return [
        LearningCurve(
            initialization=arm,
            run=run,
            game=game,
            seed=seed,
            interval_ends=steps,
            rewards=np.ones(EPISODES),
            agent_steps=steps,
            returns=scale * (level + noise.normal(0.0, 0.05, EPISODES)),
        )
        for seed in range(AGENTS)
    ]


def results(*groups: list[LearningCurve]) -> EvaluationResults:
    curves = [curve for group in groups for curve in group]
    names = [name for name in RUNS if any(each.initialization == name for each in curves)]
    return EvaluationResults(
        initializations=tuple(names),
        runs={name: RUNS[name] for name in names},
        own_starts={},
        games=tuple(dict.fromkeys(each.game for each in curves)),
        agents_per_game=AGENTS,
        agent_steps=BUDGET,
        curves=tuple(curves),
    )


def best(*groups: list[LearningCurve]) -> tuple[str, str] | None:
    return best_run(summarize(results(agents("random", 0, speed=1.0), *groups)))


def test_the_best_start_is_the_best_run_of_the_arm_that_saves_most() -> None:
    # The mean of leap's runs is less, though one of them, which may be chance, saves most.
    runs = [agents("leap", 0, speed=1.1), agents("leap", 1, speed=8.0)]
    assert best(*runs, agents("reptile", 0, speed=4.0)) == ("reptile", "reptile-0")
    runs = [agents("leap", 0, speed=6.0), agents("leap", 1, speed=8.0)]
    assert best(*runs, agents("reptile", 0, speed=4.0)) == ("leap", "leap-2")
    assert best() is None


def test_where_nothing_can_be_saved_returns_decide() -> None:
    flat = agents("random", 0, speed=0.0, scale=0.0)
    found = summarize(
        results(
            [replace(one, returns=np.zeros(EPISODES)) for one in flat],
            agents("leap", 0, speed=1.0),
            agents("reptile", 0, speed=0.5),
        )
    )
    assert best_run(found) == ("leap", "leap-0")


def test_where_random_starts_fall_no_agent_steps_are_counted_and_returns_decide() -> None:
    falling = [
        replace(one, returns=np.linspace(1.0, 0.5, EPISODES))
        for one in agents("random", 0, speed=0.0)
    ]
    high, low = (
        [replace(one, returns=np.full(EPISODES, end)) for one in agents(arm, 0, speed=1.0)]
        for arm, end in (("leap", 10.0), ("reptile", 0.0))
    )
    found = summarize(results(falling, high, low))
    assert best_run(found) == ("leap", "leap-0")
    assert all("saves" not in sentence for sentence in found.verdict)
    assert not {"agent_steps_saved", "break_even_tasks"} & {
        row["measure"] for row in estimate_rows(found)
    }


def test_the_best_run_is_not_the_one_that_falls_where_random_starts_fall() -> None:
    speeds = {("random", 0): 1.0, ("leap", 0): 2.0, ("leap", 1): 8.0}
    mazes = [agents(arm, run, speed=speed) for (arm, run), speed in speeds.items()]
    falls = {("random", 0): 0.2, ("leap", 0): 9.0, ("leap", 1): 0.0}
    pits = [
        [
            replace(each, returns=1.0 - each.returns)
            for each in agents(*one, speed=speed, game="pit")
        ]
        for one, speed in falls.items()
    ]
    found = summarize(results(*mazes, *pits))
    assert found.games["pit"].reference.falls
    assert best_run(found) == ("leap", "leap-2")


def test_a_run_without_agents_in_a_game_is_not_taken_for_the_next() -> None:
    mazes = [agents("random", 0, speed=1.0, game=game) for game in ("maze", "other")]
    some = [agents("leap", 1, speed=4.0, game=game) for game in ("maze", "other")]
    found = summarize(results(*mazes, agents("leap", 0, speed=9.0, game="other"), *some))
    assert best_run(found) == ("leap", "leap-2")


@pytest.mark.parametrize("still", [False, True])
def test_the_best_start_is_of_the_arm_that_the_answer_names(still: bool) -> None:
    """It counts games that no arm learned from alone, and none in which nothing can be saved."""
    maze, other = (agents("random", 0, speed=1.0, game=game) for game in ("maze", "other"))
    ours = [agents("leap", 0, speed=4.0), agents("leap", 0, speed=1.0, game="other")]
    theirs = [agents("reptile", 0, speed=1.5), agents("reptile", 0, speed=99.0, game="other")]
    if still:
        other = [replace(one, returns=np.zeros(EPISODES)) for one in other]
        theirs[1] = [replace(one, returns=one.returns + 100.0) for one in theirs[1]]
    seen = Training(agent_steps=1e6, games=("other",))
    training = {} if still else {"leap": seen, "reptile": seen}
    found = summarize(replace(results(maze, other, *ours, *theirs), training=training))
    assert found.ranking is not None
    assert found.ranking.best == "leap", "by which the answer names the best"
    assert best_run(found) == ("leap", "leap-0")


def test_an_arm_is_set_against_the_baseline_alone() -> None:
    found = results(
        agents("random", 0, speed=1.0),
        agents("leap", 0, speed=2.0),
        agents("reptile", 0, speed=2.0),
    )
    alone = of_arms(found, ("random", "leap"))
    assert alone.initializations == ("random", "leap")
    assert {c.initialization for c in alone.curves} == {"random", "leap"}
    assert set(alone.runs) == {"random", "leap"}


def test_the_best_start_of_an_arm_that_takes_a_part_of_it_has_that_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = "{half: {mix: 0.5}}"
    study = configure(["--games", "CartPole-v1", "--arms", arms, "--also_seen", "true"])
    monkeypatch.setattr(page, "best_run", lambda summary: ("half", "half-1"))
    cells = cells_of(study, tmp_path)
    found = page.best_initialization(
        study, summarize(results(agents("leap", 0, speed=4))), cells, []
    )
    (trained,) = (cell for cell in cells if cell.members is None and cell.run == 1)
    assert found == (trained.folder.checkpoint(trained.rounds) / INITIALIZATION, 0.5)
