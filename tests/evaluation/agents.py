"""Evaluations that tests make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from leap_rl.evaluation.results import EvaluationResults, LearningCurve, Training
from leap_rl.evaluation.summary import Comparison, Summary
from leap_rl.training.rounds.evaluation_slots import RANDOM


def agent(
    agent_steps: Sequence[int],
    returns: Sequence[float],
    *,
    initialization: str = RANDOM,
    run: int = 0,
    game: str = "breakout",
    seed: int = 0,
    budget: int = 100_000,
    restarted: bool = False,
) -> LearningCurve:
    """An agent with these episodes, that earned each one's return when it ended."""
    ends = np.array(agent_steps, dtype=np.int64)
    interval_ends = np.arange(1, 101) * budget // 100
    rewards = np.zeros(100)
    np.add.at(rewards, np.minimum(np.searchsorted(interval_ends, ends), 99), returns)
    return LearningCurve(
        initialization=initialization,
        run=run,
        game=game,
        seed=seed,
        restarted=restarted,
        interval_ends=interval_ends,
        rewards=rewards,
        agent_steps=ends,
        returns=np.array(returns, dtype=np.float64),
    )


def flat(value: float, *, budget: int = 100_000, **named: Any) -> LearningCurve:
    """An agent whose every episode has the same return."""
    return agent(range(1000, budget + 1, 1000), [value] * (budget // 1000), **named)


def learner(
    initialization: str,
    game: str,
    seed: int,
    *,
    budget: int = 100_000,
    episodes: int = 300,
    start: float = 10.0,
    end: float = 50.0,
    half: float = 0.4,
    noise: float = 8.0,
    luck: float = 4.0,
    floor: float = -np.inf,
    run: int = 0,
) -> LearningCurve:
    """An agent whose returns rise like a sigmoid, earlier or later from one seed to the next.

    `half` is the part of the budget at which half of the rise is over. Agents of the same game and
    seed share some of their luck.
    """
    key = [sum(map(ord, text)) for text in (initialization + str(run or ""), game)]
    shared, own = np.random.default_rng([seed, key[1]]), np.random.default_rng([seed, *key])
    ends = np.sort(own.integers(1, budget + 1, episodes))
    when = half * np.exp(0.15 * own.normal() + 0.1 * shared.normal())
    height = end + luck * (own.normal() + shared.normal())
    rise = 1 / (1 + np.exp(-12 * (ends / budget - when)))
    slow = np.convolve(own.normal(size=episodes), np.ones(40) / 40, mode="same")
    returns = start + (height - start) * rise * (1 + slow) + noise * own.normal(size=episodes)
    return agent(
        [int(end) for end in ends],
        [float(each) for each in np.maximum(returns, floor).round()],
        initialization=initialization,
        run=run,
        game=game,
        seed=seed,
        budget=budget,
    )


def evaluation(
    curves: Sequence[LearningCurve],
    *,
    budget: int = 100_000,
    seeds: int | None = None,
    initializations: Sequence[str] | None = None,
    games: Sequence[str] | None = None,
    own_starts: Mapping[str, str] | None = None,
    training: Mapping[str, Training] | None = None,
) -> EvaluationResults:
    """An evaluation with these finished agents, of whatever they are of."""
    names = initializations or [*dict.fromkeys(curve.initialization for curve in curves)]
    runs = {
        name: 1 + max((each.run for each in curves if each.initialization == name), default=0)
        for name in names
    }
    return EvaluationResults(
        initializations=tuple(names),
        runs={name: [f"{name}-{run}" for run in range(count)] for name, count in runs.items()},
        own_starts=own_starts or {},
        games=tuple(games or dict.fromkeys(curve.game for curve in curves)),
        agents_per_game=seeds or 1 + max((curve.seed for curve in curves), default=0),
        agent_steps=budget,
        curves=tuple(curves),
        training=training or {},
    )


def only(summary: Summary) -> Comparison:
    """The one comparison of a summary."""
    (comparison,) = summary.comparisons
    return comparison
