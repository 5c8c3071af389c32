"""Does stable-baselines3's PPO learn faster from a shipped encoder than from random ones?

    pip install stable-baselines3
    .venv/bin/python -m benchmarks.sb3_transfer --out docs/results/sb3_transfer

Pairs of agents share a seed, and so their heads and games; only where the encoder starts differs.
The statistics are those of `leap-rl evaluate`. Finished agents are kept: a command that was stopped
continues with those that are missing. PPO has the library's defaults but for eight environments and
no hidden layers beside the encoder (examples/sb3_minatar.py).
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness import experiment
from benchmarks.harness.cells import Cell, key_of
from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.results import Evaluation, LearningCurve
from leap_rl.evaluation.verdict import verdict_of
from leap_rl.training.rounds.agents import RANDOM

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "sb3_minatar.py"
INTERVALS: Final = 100
"""Intervals of the budget whose rewards are summed up, R."""


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--initialization", default="minatar-leap")
    parser.add_argument("--games", nargs="+", default=["MinAtar/SpaceInvaders-v1"])
    parser.add_argument(
        "--agent_steps",
        type=experiment.positive,
        default=204_800,
        help="of each agent, in whole steps of its eight environments",
    )
    parser.add_argument("--seeds", type=experiment.positive, default=5)
    parser.add_argument("--out", type=Path, required=True, help="folder of cells and table")
    experiment.add_processes(parser)
    return parser


def cells_of(given: argparse.Namespace) -> list[Cell]:
    """Return the agents."""
    return [
        {"initialization": name, "game": game, "seed": seed, "agent_steps": given.agent_steps}
        for seed in range(given.seeds)
        for game in given.games
        for name in (RANDOM, given.initialization)
    ]


def learn(cell: Cell) -> Mapping[str, Any]:
    """Return what an agent earned in each interval [R], and its episodes [E]."""
    budget = cell["agent_steps"]
    ends = np.linspace(0, budget, INTERVALS + 1)[1:].round().astype(np.int64)
    rewards = np.zeros(INTERVALS)
    episodes: list[tuple[int, float]] = []

    def watch(of_the_loop: Mapping[str, Any], _: object) -> bool:
        at: int = of_the_loop["self"].num_timesteps  # over all environments
        rewards[np.searchsorted(ends, at)] += float(np.sum(of_the_loop["rewards"]))
        episodes.extend(
            (at, float(info["episode"]["r"])) for info in of_the_loop["infos"] if "episode" in info
        )
        return bool(at < budget)

    model = runpy.run_path(str(EXAMPLE))["make_model"](
        cell["initialization"], cell["game"], seed=cell["seed"]
    )
    model.learn(budget, callback=watch)
    return {
        "interval_ends": ends.tolist(),
        "rewards": rewards.tolist(),
        "agent_steps": [agent_steps for agent_steps, _ in episodes],
        "returns": [episode_return for _, episode_return in episodes],
    }


def report(given: argparse.Namespace, results: experiment.Results) -> None:
    """Write the verdict and each game's gain."""
    summary = summarize(evaluation_of(given, results))
    (comparison,) = summary.comparisons
    rows = [
        f"| {game} | " + experiment.shown(found.gain, "+.0f", scale=100) + " |"
        for game, found in comparison.games.items()
        if found.gain is not None
    ]
    head = "| game | area under the curve against random starts, % |\n|---|---:|"
    table = given.out / "sb3_transfer.md"
    table.write_text("\n".join([head, *rows, "", verdict_of(comparison), ""]))
    experiment.announce([table])


def evaluation_of(given: argparse.Namespace, results: experiment.Results) -> Evaluation:
    """Return the agents as those of an evaluation."""
    names = (RANDOM, given.initialization)
    curves = []
    for cell in cells_of(given):
        found = results[key_of(cell)]
        curves.append(
            LearningCurve(
                initialization=cell["initialization"],
                game=cell["game"],
                seed=cell["seed"],
                interval_ends=np.array(found["interval_ends"], dtype=np.int64),
                rewards=np.array(found["rewards"]),
                agent_steps=np.array(found["agent_steps"], dtype=np.int64),
                returns=np.array(found["returns"], dtype=np.float64),
            )
        )
    curves.sort(key=lambda one: (names.index(one.initialization), given.games.index(one.game)))
    return Evaluation(
        initializations=names,
        runs={name: [name] for name in names},
        own_starts={},
        games=tuple(given.games),
        seeds=given.seeds,
        agent_steps=given.agent_steps,
        curves=tuple(curves),
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = options().parse_args(words)
    return experiment.run(given, cells_of=cells_of, work=learn, report=report, check=check)


def check(given: argparse.Namespace) -> None:
    """Refuse a budget that does not fit.

    Raises:
        ValueError: It is no whole number of steps of all environments.
    """
    if given.agent_steps % 8:
        raise ValueError(f"--agent_steps {given.agent_steps}: must be a multiple of 8")


if __name__ == "__main__":
    sys.exit(main())
