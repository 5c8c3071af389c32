"""The limit of an agent's throughput: emulators or environments without an agent."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from leap_rl.bench.agent import Window
from leap_rl.bench.config import ThroughputConfig
from leap_rl.envs.atari.emulator import Emulator
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.games import random_actions
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.registry import make_learner
from leap_rl.tasks.config import TaskConfig


class BareEnvironments:
    """Gymnasium's environments of a task of one game, stepped with random actions."""

    def __init__(self, config: TaskConfig) -> None:
        tasks = make_learner(task=config, agent=AgentConfig())
        (game,) = config.resolved_games
        self._envs = tasks.make_envs(game)(0)
        self._random = np.random.default_rng(0)
        self._envs.reset()

    def run(self, seconds: float) -> Window:
        """Step for so long, the starts of episodes included."""
        agent_steps, envs = 0, self._envs
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        while not agent_steps or time.perf_counter() - wall_s < seconds:
            envs.step(random_actions(envs, envs.num_envs, self._random))
            agent_steps += envs.num_envs
        return Window(
            agent_steps=agent_steps,
            wall_s=time.perf_counter() - wall_s,
            cpu_s=time.process_time() - cpu_s,
        )

    def cpu_s(self) -> float:
        """Return the CPU time of this process so far."""
        return time.process_time()


class BareEmulators:
    """Emulators that take random actions and whose screens are never read.

    As many take turns as an agent has, so that caches do not flatter.
    """

    def __init__(self, game: str, *, count: int, settings: AtariSettings) -> None:
        self._emulators = [Emulator(game, settings) for _ in range(count)]
        self._frames = settings.frameskip
        self._random = np.random.default_rng(0)
        for emulator in self._emulators:
            emulator.ale.reset_game()

    def run(self, seconds: float) -> Window:
        """Step for so long; resets do not count."""
        window_s, window_cpu_s, agent_steps = 0.0, 0.0, 0
        emulators, frames = self._emulators, range(self._frames)
        moves = emulators[0].actions
        while not agent_steps or window_s < seconds:
            actions = self._random.choice(moves, size=len(emulators)).tolist()
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            for emulator, action in zip(emulators, actions, strict=True):
                act = emulator.ale.act
                for _ in frames:
                    act(action)
            window_s += time.perf_counter() - wall_s
            window_cpu_s += time.process_time() - cpu_s
            agent_steps += len(emulators)
            for emulator in emulators:
                if emulator.ale.game_over():
                    emulator.ale.reset_game()
        return Window(agent_steps=agent_steps, wall_s=window_s, cpu_s=window_cpu_s)

    def cpu_s(self) -> float:
        """Return the CPU time of this process so far."""
        return time.process_time()


def make_limit(config: ThroughputConfig, index: int) -> BareEmulators | BareEnvironments:
    """Make a process's share of what a trainer's agent plays."""
    share = index % config.env_processes
    shared, processes = config.envs, config.env_processes
    count = shared * (share + 1) // processes - shared * share // processes
    if not config.task.has_emulators:
        budget = count * config.unroll  # which nobody counts
        return BareEnvironments(replace(config.task, num_envs=count, agent_steps=budget))
    (game,) = config.task.resolved_games
    return BareEmulators(game, count=count, settings=config.atari.settings)
