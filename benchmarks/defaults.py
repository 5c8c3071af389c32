"""Do agents learn with the default settings, from scratch? Ours beside stable-baselines3's A2C.

    pip install stable-baselines3 'leap-rl[families]'
    PYTHONPATH=examples .venv/bin/python -m benchmarks.defaults --out runs/defaults

Each game is learned by agents of both, from random weights and with every option at its default, in
16 environments; and played by random actions. A row of the table is a game: the mean return of the
episodes that ended in the last tenth of the agent steps, as mean, least and greatest over seeds.

`--options normalize_observations=true initial_log_std=-1` adds a column: ours with these options.

stable-baselines3 has `MlpPolicy` everywhere: its `CnnPolicy` takes no image of less than 36 pixels.
Finished agents are kept in the folder: a command that was stopped continues with the missing ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from leap_rl.core import plain_yaml
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.games import make_one, random_actions
from leap_rl.envs.vector import EpisodeAccounting
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.registry import make_game_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.tasks.config import TaskConfig

BUDGETS: Final = {
    "CartPole-v1": 50_000,
    "Acrobot-v1": 100_000,
    "LunarLander-v3": 200_000,
    "Pendulum-v1": 200_000,
    "half_cheetah:Run-v0@speed=2.0": 200_000,
    "MinAtar/Breakout-v1": 200_000,
    "MinAtar/SpaceInvaders-v1": 200_000,
    "minigrid_layouts:Layout-v0@name=Empty-8x8": 200_000,
}
"""Agent steps of each game."""

ENVIRONMENTS: Final = 16
RANDOM_SHARE: Final = 0.1
"""Of the budget, that random actions play."""


class Ended(NamedTuple):
    """An episode that ended."""

    agent_steps: int
    episode_return: float


def tasks_of(game: str, agent_steps: int, agent: AgentConfig | None = None) -> GameLearner:
    """Return what makes tasks of the game, with default agents unless others are given."""
    task = TaskConfig(
        kind="gymnasium", games=[game], agent_steps=agent_steps, num_envs=ENVIRONMENTS
    )
    return make_game_learner(task=task, agent=agent or AgentConfig())


def ours(
    game: str, agent_steps: int, seed: int, agent: AgentConfig | None = None
) -> Iterator[Ended]:
    """Yield the episodes of an agent of leap_rl."""
    tasks = tasks_of(game, agent_steps, agent)
    spec = TaskSpec(game=game, seed=derive_seed(seed, Purpose.TASK))
    with closing(tasks(spec)) as task:
        task.start(tasks.random_initialization(derive_seed(seed, Purpose.INITIALIZATION)))
        while not task.done:
            for episode in task.advance(lambda point: None).episodes:
                yield Ended(episode.agent_steps, episode.episode_return)


def theirs(game: str, agent_steps: int, seed: int) -> Iterator[Ended]:
    """Yield the episodes of an agent of stable-baselines3."""
    from stable_baselines3 import A2C
    from stable_baselines3.common.env_util import make_vec_env

    from leap_rl.envs.single import GameEnv

    make = GameEnv if game.startswith("MinAtar/") else make_one
    envs = make_vec_env(lambda: make(game), n_envs=ENVIRONMENTS, seed=seed)
    ended: list[Ended] = []

    def after_step(of_the_loop: dict[str, Any], _: object) -> bool:
        at = of_the_loop["self"].num_timesteps
        infos = (info["episode"]["r"] for info in of_the_loop["infos"] if "episode" in info)
        ended.extend(Ended(at, float(total)) for total in infos)
        return True

    A2C("MlpPolicy", envs, seed=seed, device="cpu").learn(agent_steps, callback=after_step)
    envs.close()
    yield from ended


def at_random(game: str, agent_steps: int, seed: int) -> Iterator[Ended]:
    """Yield the episodes of random actions; all count as the last ones."""
    draws = np.random.default_rng(seed)
    accounting = EpisodeAccounting(ENVIRONMENTS)
    with closing(tasks_of(game, agent_steps).make_envs(game)(seed)) as envs:
        envs.reset()
        for _ in range(round(RANDOM_SHARE * agent_steps / ENVIRONMENTS)):
            step = envs.step(random_actions(envs, ENVIRONMENTS, draws))
            for episode in accounting.record(step, agent_steps):
                yield Ended(agent_steps, episode.episode_return)


AGENTS: Final[dict[str, Callable[[str, int, int], Iterator[Ended]]]] = {
    "random actions": at_random,
    "leap_rl": ours,
    "stable-baselines3": theirs,
}


def final_return(episodes: Sequence[Ended], agent_steps: int) -> float | None:
    """Return the mean return in the last tenth; None if no episode ended there."""
    late = [one.episode_return for one in episodes if one.agent_steps > 0.9 * agent_steps]
    return float(np.mean(late)) if late else None


def spread(values: Sequence[float | None]) -> str:
    """Return the mean, the least and the greatest in words."""
    known = [value for value in values if value is not None]
    if not known:
        return "none ended"
    digits = 0 if max(map(abs, known)) >= 10 else 2
    mean, least, most = (f"{f(known):.{digits}f}" for f in (np.mean, min, max))
    return f"{mean} ({least} to {most})"


def table(results: dict[tuple[str, str, int], float | None]) -> str:
    """Return the table in Markdown, of the games and agents that have results."""
    agents = list(dict.fromkeys(agent for _, agent, _ in results))
    rows = [
        f"| game | agent steps | {' | '.join(agents)} |",
        "|---|---:|" + "---:|" * len(agents),
    ]
    for game in dict.fromkeys(game for game, _, _ in results):
        cells = [
            spread([value for key, value in results.items() if key[:2] == (game, agent)])
            for agent in agents
        ]
        rows.append(f"| `{game}` | {BUDGETS[game]:,} | {' | '.join(cells)} |")
    return "\n".join(rows)


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of results and table")
    parser.add_argument("--games", nargs="+", default=list(BUDGETS), choices=list(BUDGETS))
    parser.add_argument("--agents", nargs="*", default=list(AGENTS), choices=list(AGENTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--options", nargs="+", default=[], metavar="NAME=VALUE", help="of ours")
    return parser


def with_options(words: Sequence[str]) -> dict[str, Callable[[str, int, int], Iterator[Ended]]]:
    """Return our agent with other options than its defaults, by the name of its column."""
    if not words:
        return {}
    given = {name: plain_yaml.load(value) for name, _, value in (w.partition("=") for w in words)}
    return {f"leap_rl, {', '.join(words)}": partial(ours, agent=AgentConfig(**given))}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = options().parse_args(words)
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    results: dict[tuple[str, str, int], float | None] = {}
    agents = {name: AGENTS[name] for name in given.agents} | with_options(given.options)
    for seed, game, agent in product(given.seeds, given.games, agents):
        name = game.rpartition(":")[2].replace("/", "-")
        file = given.out / f"{name}-{agent.replace(', ', '-').replace(' ', '-')}-{seed}.json"
        if not file.exists():
            budget = BUDGETS[game]
            final = final_return(list(agents[agent](game, budget, seed)), budget)
            file.write_text(json.dumps(final))
            print(f"{game}, {agent}, seed {seed}: {final}", flush=True)
        results[game, agent, seed] = json.loads(file.read_text())
    (given.out / "defaults.md").write_text(table(results) + "\n")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
