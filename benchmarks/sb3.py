"""stable-baselines3 beside leap_rl: its PPO from a learned encoder, and its A2C against ours.

    pip install stable-baselines3
    .venv/bin/python -m benchmarks.sb3 starts --out runs/sb3_starts
    .venv/bin/python -m benchmarks.sb3 agents --games breakout --out runs/sb3_breakout

`starts`: does its PPO learn faster from a shipped encoder than from random ones? Pairs of agents
share a seed, and so their heads and games; only where the encoder starts differs. PPO has the
library's defaults but for eight environments and no hidden layers beside the encoder
(examples/sb3_minatar.py).

`agents`: does our A2C learn as its A2C does, with the same network, the same observations and the
same settings, those of atari.yaml and minatar.yaml, from random encoders? What is left to each is
how weights are drawn and how RMSProp starts.

The statistics are those of `leap-rl evaluate`. Finished agents are kept: a command that was stopped
continues with those that are missing.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import experiment
from benchmarks.harness.agents import Curve, summary_of, write_summary
from benchmarks.harness.agents import learn as learn_task
from benchmarks.harness.cells import Cell
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.initializations import find_initialization
from leap_rl.sharing.exported import PREFIX
from leap_rl.training.rounds.evaluation_slots import RANDOM

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "sb3_minatar.py"
PEER: Final = "stable-baselines3"
OURS: Final = "leap_rl"


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", choices=("starts", "agents"), help="see above")
    parser.add_argument("--initialization", default="minatar-leap", help="of starts")
    parser.add_argument("--games", nargs="+", default=["MinAtar/SpaceInvaders-v1"])
    parser.add_argument(
        "--agent_steps",
        type=experiment.positive,
        default=204_800,
        help="of each agent, in whole updates of both",
    )
    parser.add_argument("--seeds", type=experiment.positive, default=5)
    parser.add_argument("--out", type=Path, required=True, help="folder of cells and table")
    experiment.add_processes(parser)
    return parser


def groups_of(given: argparse.Namespace) -> tuple[str, str]:
    """Return the names of the reference and of what is set against it."""
    return (RANDOM, given.initialization) if given.question == "starts" else (PEER, OURS)


def group_of(cell: Cell) -> str:
    """Return the group that an agent is of."""
    return str(cell.get("initialization") or cell["agent"])


def cells_of(given: argparse.Namespace) -> list[Cell]:
    """Return the agents."""
    group = "initialization" if given.question == "starts" else "agent"
    return [
        {group: name, "game": game, "seed": seed, "agent_steps": given.agent_steps}
        for seed in range(given.seeds)
        for game in given.games
        for name in groups_of(given)
    ]


def learn(cell: Cell) -> Mapping[str, Any]:
    """Have an agent learn; returns what `Curve.result` does."""
    curve = Curve(cell["agent_steps"])
    if cell.get("agent") == OURS:
        learn_ours(cell, curve)
    else:
        make = peers_a2c if "agent" in cell else peers_ppo
        make(cell).learn(curve.budget, callback=watch(curve))
    return curve.result()


def config_of(game: str, agent_steps: int) -> TrainConfig:
    """Return the settings that both A2C agents share."""
    options = {"task.games": [game], "task.agent_steps": agent_steps}
    return TrainConfig.from_yaml("minatar" if "MinAtar" in game else "atari", options)


def learn_ours(cell: Cell, curve: Curve) -> None:
    """Have our A2C learn."""
    config = config_of(cell["game"], curve.budget)
    tasks = make_learner(task=config.task, agent=config.agent)
    with closing(tasks(TaskSpec(game=cell["game"], seed=cell["seed"]))) as task:
        learn_task(task, tasks.random_initialization(cell["seed"]), curve)


def peers_a2c(cell: Cell) -> Any:
    """Return the library's A2C with our settings, over our games, with our encoder."""
    from stable_baselines3 import A2C
    from stable_baselines3.common.env_util import make_vec_env

    from leap_rl.envs.single import GameEnv

    config = config_of(cell["game"], cell["agent_steps"])
    task = config.task
    agent = make_learner(task=task, agent=config.agent).resolved_agent()
    if task.kind == "atari":
        how: dict[str, Any] = {"atari": task.atari.settings, "reward_clip": agent.reward_clip}
    else:
        how = {"palette": True, "reward_clip": float("inf")}
    return A2C(
        "CnnPolicy",
        make_vec_env(lambda: GameEnv(cell["game"], **how), n_envs=task.num_envs),
        learning_rate=agent.lr,
        n_steps=task.unroll_length,
        gamma=agent.gamma,
        ent_coef=agent.entropy_coefficient,
        vf_coef=agent.value_coefficient,
        max_grad_norm=agent.max_grad_norm,
        rms_prop_eps=agent.rmsprop_eps,
        policy_kwargs={
            "features_extractor_class": _features_class(),
            "features_extractor_kwargs": {"encoder": agent.encoder},
            "net_arch": [],
            "normalize_images": False,
        },
        seed=cell["seed"],
        device="cpu",
    )


def _features_class() -> type:
    """Return our encoder as the library takes one; it draws the weights again."""
    import torch
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    from leap_rl.networks.encoders import make_encoder

    class Features(BaseFeaturesExtractor):  # type: ignore[misc]
        def __init__(self, observation_space: Any, encoder: str) -> None:
            channels, height, width = observation_space.shape
            module: Any = make_encoder(encoder, (height, width, channels))
            super().__init__(observation_space, features_dim=module.features)
            self.encoder = module

        def forward(self, observations: torch.Tensor) -> Any:
            return self.encoder(observations.permute(0, 2, 3, 1).to(torch.uint8))

    return Features


def peers_ppo(cell: Cell) -> Any:
    """Return the library's PPO from a start."""
    make = runpy.run_path(str(EXAMPLE))["make_model"]
    return make(cell["initialization"], cell["game"], seed=cell["seed"])


def watch(curve: Curve) -> Callable[[Mapping[str, Any], object], bool]:
    """Return a callback of the library's that adds to a curve; it stops when the budget is used.

    Rewards are those before any clipping, and a life that is lost ends no episode.
    """
    returns: dict[int, float] = {}

    def after_step(of_the_loop: Mapping[str, Any], _: object) -> bool:
        at: int = of_the_loop["self"].num_timesteps  # over all environments
        ended = []
        for index, info in enumerate(of_the_loop["infos"]):
            returns[index] = returns.get(index, 0.0) + info["raw_reward"]
            if of_the_loop["dones"][index] and not info["life_lost"]:
                ended.append(returns.pop(index))
        curve.add(at, sum(info["raw_reward"] for info in of_the_loop["infos"]), ended)
        return at < curve.budget

    return after_step


def report(given: argparse.Namespace, results: experiment.Results) -> None:
    """Write what is saved in each game, and the learning curves."""
    trained = None
    if given.question == "starts":
        trained = find_initialization(PREFIX + given.initialization).trained
    summary = summary_of(cells_of(given), results, group=group_of, trained=trained)
    write_summary(summary, given.out / f"sb3_{given.question}.md")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = options().parse_args(words)
    return experiment.run(given, cells_of=cells_of, work=learn, report=report, check=check)


def check(given: argparse.Namespace) -> None:
    """Refuse a budget that does not fit.

    Raises:
        ValueError: It is no whole number of updates.
    """
    update = 8 if given.question == "starts" else 80  # PPO's own are what it collects until then
    if given.agent_steps % update:
        raise ValueError(f"--agent_steps {given.agent_steps}: must be a multiple of {update}")


if __name__ == "__main__":
    sys.exit(main())
