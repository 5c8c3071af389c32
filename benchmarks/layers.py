"""Which layers of a meta-trained encoder help agents, and what their features are.

    .venv/bin/python -m benchmarks.layers --init pretrained:minatar-leap \\
        --games MinAtar/Freeway-v1 MinAtar/Breakout-v1 --agent_steps 200000 --out runs/layers

New agents learn from random encoders, from the initialization, and from mixtures: of one layer the
initialization's parameters, of the others random ones. Agents of the same seed share everything
else, random parameters too. Settings are those of the run that made the initialization.

Before and after they learn, each encoder sees the same observations, of random play. Dead units of
its last layer and the features' effective rank are as in `leap_rl.evaluation.diagnosis`.

Finished agents are kept: a command that was stopped continues with those that are missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.harness import experiment
from benchmarks.harness.agents import Curve, learn, summary_of, write_summary
from benchmarks.harness.cells import Cell, key_of
from leap_rl.core.parsing import parse_options
from leap_rl.evaluation.diagnosis import played_at_random, start_features
from leap_rl.evaluation.page import Table
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.registry import encoder_shared_by, make_game_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.networks.parameters import Layout
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.initializations import find_initialization, read_theta0
from leap_rl.runs.kinds import make_tasks
from leap_rl.training.rounds.evaluation_slots import RANDOM

WHOLE: Final = "whole encoder"


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--init", required=True, help="as `leap-rl evaluate` takes it")
    parser.add_argument("--games", nargs="+", required=True)
    parser.add_argument("--agent_steps", type=experiment.positive, required=True, help="an agent's")
    parser.add_argument("--seeds", type=experiment.positive, default=5)
    parser.add_argument("--out", type=Path, required=True, help="folder of cells and table")
    experiment.add_processes(parser)
    return parser


def config_of(init: str, games: Sequence[str], agent_steps: int) -> TrainConfig:
    """Return the config of the run that made an initialization, with other games and budget.

    Raises:
        ValueError: There is no such initialization, or it is no agent's whole encoder.
    """
    made = find_initialization(init).options
    if made is None:
        raise ValueError(f"--init {init}: lies in no run, so its network is not known")
    changed = {"task.games": list(games), "task.agent_steps": agent_steps}
    config = parse_options(TrainConfig, changed, defaults=made)
    if encoder_shared_by(config.task, config.agent) is None or config.agent.share != "encoder":
        what = f"task.kind = {config.task.kind}, agent.share = {config.agent.share}"
        raise ValueError(f"--init {init}: is no whole encoder of an agent of ours ({what})")
    return config


def layers_of(layout: Layout) -> list[str]:
    """Return the names of the layers in the shared parameters, in their order."""
    return list(dict.fromkeys(leaf.name.rpartition(".")[0] for leaf in layout.leaves))


def cells_of(given: argparse.Namespace) -> list[Cell]:
    """Return the agents."""
    layout = make_tasks(config_of(given.init, given.games, given.agent_steps)).shared_layout()
    layers = layers_of(layout)
    return [
        {
            "init": given.init,
            "learned": learned,
            "game": game,
            "seed": seed,
            "agent_steps": given.agent_steps,
        }
        for seed in range(given.seeds)
        for game in given.games
        for learned in (RANDOM, *(layers if len(layers) > 1 else []), WHOLE)
    ]


def mixed(layout: Layout, random: Tensor, learned: Tensor, *, layer: str) -> Tensor:
    """Return shared parameters [P]: one layer's learned, the others random.

    Args:
        layout: Of the shared parameters.
        random: [P].
        learned: [P].
        layer: The layer's name; `random` and `whole encoder` stand for none and all.
    """
    views, source = layout.named(both := random.clone()), layout.named(learned)
    for name, view in views.items():
        if layer in (WHOLE, name.rpartition(".")[0]):
            view.copy_(source[name])
    return both


def work(cell: Cell) -> Mapping[str, Any]:
    """Have an agent learn; returns its curve, and what its encoder held before and after."""
    config = config_of(cell["init"], [cell["game"]], cell["agent_steps"])
    tasks = make_game_learner(task=config.task, agent=config.agent)
    curve = Curve(cell["agent_steps"])
    layout = tasks.shared_layout()
    learned, _ = read_theta0(find_initialization(cell["init"]), layout)
    random = tasks.random_initialization(cell["seed"])
    start = mixed(layout, random, learned, layer=cell["learned"])
    observations = random_play(tasks, cell["game"])
    with closing(tasks(TaskSpec(game=cell["game"], seed=cell["seed"]))) as task:
        learn(task, start, curve)
        parameters = task.named_parameters()
    end = layout.pack(
        {leaf.name: parameters[f"encoder.{leaf.name}"].cpu() for leaf in layout.leaves}
    )
    moved = float((end - start).norm() / start.norm())
    held = [start_features(tasks, vector, observations) for vector in (start, end)]
    features = {"dead": [one.dead for one in held], "rank": [one.rank for one in held]}
    return {**curve.result(), "moved": moved, **features}


def random_play(tasks: GameLearner, game: str) -> NDArray[Any]:
    """Return observations of random play, uint8 [N, H, W, C]; the same in each process."""
    with closing(tasks.make_envs(game)(0)) as envs:
        return played_at_random(envs, np.random.default_rng(0))


def report(given: argparse.Namespace, results: experiment.Results) -> None:
    """Write what each mixture saves in each game, what its encoders hold, and the curves."""
    cells = cells_of(given)
    trained = find_initialization(given.init).trained
    summary = summary_of(cells, results, group=lambda cell: str(cell["learned"]), trained=trained)
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for cell in cells:
        found.setdefault((cell["game"], cell["learned"]), []).append(results[key_of(cell)])
    rows = [
        {
            "game": game,
            "learned": learned,
            "moved": f"{np.mean([one['moved'] for one in agents]):.2f}",
            "dead units, before → after": _before_and_after(agents, "dead", ".0%"),
            "effective rank": _before_and_after(agents, "rank", ".1f"),
        }
        for (game, learned), agents in found.items()
    ]
    held = Table(title="What encoders hold", rows=rows)
    write_summary(summary, given.out / "layers.md", more=[held])


def _before_and_after(found: Sequence[Mapping[str, Any]], name: str, form: str) -> str:
    return " → ".join(format(np.mean([one[name][i] for one in found]), form) for i in (0, 1))


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = options().parse_args(words)
    return experiment.run(given, cells_of=cells_of, work=work, report=report)


if __name__ == "__main__":
    sys.exit(main())
