"""What is measured: an agent that learns a real task, and its upper bound without an agent."""

from __future__ import annotations

import copy
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch

from leap_rl.bench.config import ThroughputConfig
from leap_rl.bench.machine import MB
from leap_rl.bench.roofline import Rate, Work, highest_rate, work_of
from leap_rl.core.choices import LossDifference
from leap_rl.core.machine import cpu_s, resident_bytes
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.atari.emulator import Emulator
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.games import random_actions
from leap_rl.envs.normalized import NormalizedVector
from leap_rl.envs.workers import WorkerEnvs
from leap_rl.learners.a2c.task import ActorCriticTask
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.registry import make_game_learner, make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.meta.gradient_path import GradientPath, Method
from leap_rl.tasks.config import TaskConfig

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
"""Parts of an agent step's time; docs/performance.md explains them. With environment processes
`emulation` is the time until all have answered; for Gymnasium's environments, the whole step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Agent steps and time of one window of measurement."""

    agent_steps: int
    wall_s: float
    cpu_s: float
    """CPU time of this process and its environment processes."""

    @property
    def agent_steps_per_s(self) -> float:
        return self.agent_steps / self.wall_s


class Stopwatch:
    """Sums the time of wrapped methods; the wrapped methods that one calls are not counted in it.

    The default clock, in ns, is the thread's CPU time: it stops while another process has the core.
    """

    def __init__(self, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self.totals_ns: dict[str, int] = defaultdict(int)
        self._clock = clock
        self._inner_ns = 0  # of the wrapped calls inside the running one
        self._wrapped: list[tuple[Any, str, Any]] = []

    def wrap(self, owner: Any, method: str, part: str) -> None:
        """Add the time of an object's method to a part, until `unwrap`.

        Stopwatches can wrap the same method; they are unwrapped in reverse order.
        """
        before = vars(owner).get(method)
        function = getattr(owner, method)
        clock, totals_ns = self._clock, self.totals_ns

        def timed(*arguments: Any, **options: Any) -> Any:
            outer_ns, self._inner_ns = self._inner_ns, 0
            started_ns = clock()
            try:
                return function(*arguments, **options)
            finally:
                taken_ns = clock() - started_ns
                totals_ns[part] += taken_ns - self._inner_ns
                self._inner_ns = outer_ns + taken_ns

        setattr(owner, method, timed)
        self._wrapped.append((owner, method, before))

    def unwrap(self) -> None:
        """Restore the objects' own methods."""
        for owner, method, before in reversed(self._wrapped):
            if before is None:
                delattr(owner, method)
            else:
                setattr(owner, method, before)
        self._wrapped.clear()


class BenchAgent:
    """Learns the one game of a task in windows; a method's gradient path observes the updates.

    `index` is the trainer's number, by which its task and its encoder are seeded.
    """

    def __init__(
        self,
        config: TaskConfig,
        agent: AgentConfig,
        index: int = 0,
        *,
        method: Method,
        loss_difference: LossDifference = "next_batch",
        env_processes: int = 1,
    ) -> None:
        tasks = make_learner(
            task=config, agent=agent, loss_difference=loss_difference, env_processes=env_processes
        )
        (game,) = config.resolved_games
        task = tasks(TaskSpec(game=game, seed=derive_seed(index, Purpose.TASK)))
        assert isinstance(task, ActorCriticTask)
        self.task = task
        self.task.start(tasks.random_initialization(derive_seed(index, Purpose.INITIALIZATION)))
        self.path: GradientPath = method.start(task.learner.shared.clone(), borrow=True)
        self._unroll = config.unroll_length
        games = self.task.envs
        if isinstance(games, NormalizedVector):
            games = games._games
        self._envs = games._envs
        self._has_emulators = config.suite.frames_per_agent_step(config) > 0
        self.env_processes: list[int] = []
        if isinstance(self._envs, WorkerEnvs):
            self.env_processes = [worker.pid for worker in self._envs._workers]

    def run(self, seconds: float = 0.0, *, updates: int = 1) -> Window:
        """Learn until `seconds` are over and at least `updates` updates are done."""
        task, path, done = self.task, self.path, 0
        before = task._agent_steps
        wall_s, cpu_s = time.perf_counter(), self.cpu_s()
        while done < updates or time.perf_counter() - wall_s < seconds:
            task.advance(path.visit)
            done += 1
        return Window(
            agent_steps=task._agent_steps - before,
            wall_s=time.perf_counter() - wall_s,
            cpu_s=self.cpu_s() - cpu_s,
        )

    def split(self, seconds: float) -> dict[str, float]:
        """Learn with timers on; return the µs of an agent step for each of `PARTS`.

        They add up to its wall clock.
        """
        watch, away = Stopwatch(), Stopwatch(time.perf_counter_ns)
        learner, envs = self.task.learner, self._envs
        if self.env_processes:
            watch.wrap(envs, "_ask", "emulation")
            away.wrap(envs, "_ask", "emulation")
        elif self._has_emulators:
            emulators: Any = envs
            watch.wrap(emulators, "_emulate", "emulation")
            watch.wrap(emulators._renderer, "draw", "preprocessing")
        else:
            watch.wrap(envs, "step", "emulation")
        for method in ("act", "losses", "evaluate"):
            watch.wrap(learner, method, "forward")
        watch.wrap(learner, "backward", "backward")
        watch.wrap(learner, "step", "optimizer")
        watch.wrap(self.path, "visit", "path_sums")
        cpu_s = -time.process_time()
        try:
            window = self.run(seconds)
        finally:
            away.unwrap()
            watch.unwrap()
        cpu_s += time.process_time()
        taken_s = {part: watch.totals_ns[part] / 1e9 for part in PARTS[:-2]}
        taken_s["other"] = cpu_s - sum(taken_s.values())
        taken_s["waiting"] = window.wall_s - cpu_s
        if self.env_processes:
            asleep_s = away.totals_ns["emulation"] / 1e9 - taken_s["emulation"]
            taken_s["emulation"] += asleep_s
            taken_s["waiting"] -= asleep_s
        return {part: 1e6 * taken_s[part] / window.agent_steps for part in PARTS}

    @cached_property
    def work(self) -> Work:
        """Operations of an agent step, and the matrix products of an update."""
        network = copy.deepcopy(self.task.learner.network).to("cpu").requires_grad_(True)
        return work_of(network, self.task._observations, unroll=self._unroll)

    def peak(self, seconds: float) -> Rate:
        """Measure how fast the processor multiplies matrices of the layers' shapes."""
        config = self.task.learner.config
        dtype = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
        return highest_rate(self.work.products, dtype=dtype, device=config.device, seconds=seconds)

    def cpu_s(self) -> float:
        """Return the CPU time so far of this process and its environment processes."""
        return time.process_time() + cpu_s(self.env_processes)

    def report(self) -> dict[str, Any]:
        """Return the resolved encoder, precision and device, resident memory, and operations."""
        resolved = self.task.learner.config
        return {
            "encoder": resolved.encoder,
            "precision": resolved.precision,
            "device": resolved.device,
            "resident_mb": resident_bytes([os.getpid(), *self.env_processes]) / MB,
            "operations": self.work.operations,
        }


class BareEnvironments:
    """Gymnasium's environments of a task of one game, stepped with random actions."""

    def __init__(self, config: TaskConfig) -> None:
        tasks = make_game_learner(task=config, agent=AgentConfig())
        (game,) = config.resolved_games
        self._envs = tasks.make_envs(game)(0)
        self._random = np.random.default_rng(0)
        self._envs.reset()

    def run(self, seconds: float) -> Window:
        """Step for `seconds`; resets are timed too."""
        agent_steps, envs = 0, self._envs
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        while not agent_steps or time.perf_counter() - wall_s < seconds:
            agent_steps += envs.step(random_actions(envs, envs.num_envs, self._random)).agent_steps
        return Window(
            agent_steps=agent_steps,
            wall_s=time.perf_counter() - wall_s,
            cpu_s=time.process_time() - cpu_s,
        )


class BareEmulators:
    """Emulators that take random actions and whose screens are never read.

    There are as many as an agent has, since fewer would stay in the processor's caches.
    """

    def __init__(self, game: str, *, count: int, settings: AtariSettings) -> None:
        self._emulators = [Emulator(game, settings) for _ in range(count)]
        self._frames = settings.frameskip
        self._random = np.random.default_rng(0)
        for emulator in self._emulators:
            emulator.ale.reset_game()

    def run(self, seconds: float) -> Window:
        """Step for `seconds`; resets are not timed."""
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


def make_limit(config: ThroughputConfig, index: int) -> BareEmulators | BareEnvironments:
    """Make the environments of one environment process of a trainer."""
    share, processes = index % config.env_processes, config.env_processes
    count = config.envs * (share + 1) // processes - config.envs * share // processes
    if config.task.suite.frames_per_agent_step(config.task) == 0:
        budget = count * config.unroll  # unused, but must be a multiple of an update
        return BareEnvironments(replace(config.task, num_envs=count, agent_steps=budget))
    (game,) = config.task.resolved_games
    return BareEmulators(game, count=count, settings=config.atari.settings)
