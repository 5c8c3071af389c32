"""An agent under measurement: a real task with a gradient path watching it, as in a trainer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from leap_rl.bench.stopwatch import Stopwatch
from leap_rl.envs.atari_config import AtariSettings
from leap_rl.envs.emulator import Emulator
from leap_rl.meta.gradient_path import GradientPath, Method
from leap_rl.rl.config import AgentConfig
from leap_rl.seeding import Purpose, derive_seed
from leap_rl.tasks.actor_critic import ActorCriticTask
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.factory import ConfiguredTasks
from leap_rl.tasks.task import TaskSpec

PARTS: Final = (
    "emulation",
    "preprocessing",
    "forward",
    "backward",
    "optimizer",
    "path_sums",
    "other",
    "waiting",
)
"""Where an agent step's time goes. forward: acting, bootstrapping and the loss; optimizer: with the
copies of the parameters that it renews; other: episodes, rewards, arrays, figures, all that has no
part of its own; waiting: the wall clock less the process's CPU time, so other processes' doing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """What happened in a stretch of time."""

    agent_steps: int
    wall_s: float
    cpu_s: float
    """CPU time of this process."""

    @property
    def agent_steps_per_s(self) -> float:
        """Agent steps a second of wall clock."""
        return self.agent_steps / self.wall_s

    @property
    def agent_steps_per_cpu_s(self) -> float:
        """Agent steps a second of CPU time: what it would be if nobody else were there."""
        return self.agent_steps / self.cpu_s


class BenchAgent:
    """Learns a game update by update, for as long as it is told to.

    Args:
        config: The task, of one game.
        agent: The agent's settings.
        method: What watches the gradient path.
        seed: Of the task.
    """

    def __init__(
        self, config: TaskConfig, agent: AgentConfig, *, method: Method, seed: int = 0
    ) -> None:
        tasks = ConfiguredTasks(task=config, agent=agent)
        (game,) = config.resolved_games
        task = tasks(TaskSpec(game=game, seed=derive_seed(seed, Purpose.TASK)))
        assert isinstance(task, ActorCriticTask)
        self.task = task
        self.task.start(tasks.random_initialization(derive_seed(seed, Purpose.INITIALIZATION)))
        self._agent_steps_per_update = config.agent_steps_per_update
        self.watch(method)

    def watch(self, method: Method) -> None:
        """Begin another gradient path where the parameters are now."""
        self.path: GradientPath = method.start(self.task.learner.shared.clone(), borrow=True)

    def run(self, seconds: float) -> Window:
        """Learn for so long, and to the end of an update."""
        until_s = time.perf_counter() + seconds
        return self._run(lambda updates: time.perf_counter() >= until_s)

    def run_updates(self, count: int) -> Window:
        """Learn for so many updates."""
        return self._run(lambda updates: updates >= count)

    def split(self, seconds: float) -> dict[str, float]:
        """Learn for so long with timers on.

        Returns:
            Microseconds an agent step for each of `PARTS`; they add up to its wall clock.
        """
        watch = Stopwatch()
        learner, envs = self.task.learner, self.task.envs._envs
        watch.wrap(envs, "_emulate", "emulation")
        watch.wrap(envs, "_draw", "preprocessing")
        watch.wrap(learner, "act", "forward")
        watch.wrap(learner, "losses", "forward")
        watch.wrap(learner, "backward", "backward")
        watch.wrap(learner, "step", "optimizer")
        watch.wrap(self.path, "observe", "path_sums")
        try:
            window = self.run(seconds)
        finally:
            watch.unwrap()
        taken_s = {part: watch.totals_ns[part] / 1e9 for part in PARTS[:-2]}
        taken_s["other"] = window.cpu_s - sum(taken_s.values())
        taken_s["waiting"] = window.wall_s - window.cpu_s
        return {part: 1e6 * taken_s[part] / window.agent_steps for part in PARTS}

    def _run(self, finished: Callable[[int], bool]) -> Window:
        task, path = self.task, self.path
        updates = 0
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        while not updates or not finished(updates):
            task.advance(path.observe)
            updates += 1
        return Window(
            agent_steps=updates * self._agent_steps_per_update,
            wall_s=time.perf_counter() - wall_s,
            cpu_s=time.process_time() - cpu_s,
        )


class BareEmulators:
    """The limit: emulators that take random actions and are never looked at.

    Args:
        game: The game.
        count: How many take turns; as many as an agent has, so that caches do not flatter.
        settings: For the frames of an agent step.
    """

    def __init__(self, game: str, *, count: int, settings: AtariSettings | None = None) -> None:
        settings = settings or AtariSettings()
        self._emulators = [Emulator(game, settings) for _ in range(count)]
        self._frames = settings.frameskip
        self._random = np.random.default_rng(0)
        for emulator in self._emulators:
            emulator.ale.reset_game()

    def run(self, seconds: float) -> Window:
        """Step for so long; starting a game anew does not count."""
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
