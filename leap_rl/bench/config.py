"""Options of measurements. Importing this does not import torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from leap_rl.core.machine import cores
from leap_rl.envs.atari.games import is_game
from leap_rl.envs.atari.settings import AtariConfig
from leap_rl.envs.gymnasium_config import GymnasiumConfig
from leap_rl.learners.config import AgentConfig
from leap_rl.tasks.config import TaskConfig

LONGEST_S = 1e6


def trainers_here(env_processes: int) -> int:
    """Return how many trainers fit this machine's cores, counted as a Ray cluster counts them."""
    return max(1, cores() // env_processes)


def check_seconds(seconds: float) -> None:
    """Raise ValueError unless a measurement takes some time, and not forever."""
    if not 0 < seconds <= LONGEST_S:
        raise ValueError(f"seconds = {seconds}: must be greater than 0 and at most {LONGEST_S:.0f}")


def check_count(name: str, count: int) -> None:
    """Raise ValueError for a count below one."""
    if count < 1:
        raise ValueError(f"{name} = {count}: must be at least 1")


@dataclass(frozen=True, kw_only=True)
class AgentBench:
    """Options that all measurements of a learning agent have."""

    game: str
    """The game: of Atari, or a Gymnasium id such as MinAtar/Breakout-v1."""

    seconds: float
    """Time to measure for."""

    envs: int = 32
    """Environments of each agent."""

    unroll: int = 5
    """Agent steps in each environment between two updates."""

    atari: AtariConfig = field(default_factory=AtariConfig)
    gymnasium: GymnasiumConfig = field(default_factory=GymnasiumConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)

    def __post_init__(self) -> None:
        check_seconds(self.seconds)
        for name in ("envs", "unroll"):
            check_count(name, getattr(self, name))
        games = self.task.resolved_games
        if len(games) > 1:
            raise ValueError(
                f"game = {self.game}: is a pool of {len(games)} games, and one is measured; "
                f"name one of them, such as {games[0]!r}"
            )

    @property
    def imports(self) -> dict[str, tuple[str, ...]]:
        """Modules that are imported because an option names them, by option."""
        return {"game": self.task.suite.imports(self.task), **self.agent.imports}

    @property
    def task(self) -> TaskConfig:
        """An endless task of the game."""
        each = self.envs * self.unroll
        has_version = re.search(r"-v\d+$", self.game.partition("@")[0])
        return TaskConfig(
            kind="gymnasium" if has_version and not is_game(self.game) else "atari",
            games=[self.game],
            agent_steps=each * (2**40 // each),
            num_envs=self.envs,
            unroll_length=self.unroll,
            atari=self.atari,
            gymnasium=self.gymnasium,
        )

    @property
    def atari_resolved(self) -> dict[str, Any] | None:
        """The emulator's settings, none where there is no emulator."""
        has_emulators = self.task.suite.frames_per_agent_step(self.task) > 0
        return self.atari.resolved() if has_emulators else None


@dataclass(frozen=True, kw_only=True)
class ThroughputConfig(AgentBench):
    """Measure how fast trainers learn a game, against the bare emulator, and where the time goes.

    Windows of learning, of the bare emulator, of matrix products and of learning with timers on
    take turns; each figure is the median over its windows. The roofline is the bare emulator's time
    and that of the network's operations at the processor's highest rate. For Gymnasium's ids bare
    environments, stepped with random actions, take the emulator's place.
    """

    seconds: float = 30.0
    """Time to measure for: half of it learning, a quarter the bare emulator, a fifth the split, and
    the rest matrix products."""

    trainers: int | Literal["auto"] = "auto"
    """Trainers that learn at the same time, each of one thread beside its env_processes. auto: as
    many as there are cores for, env_processes of them for each."""

    env_processes: int = 1
    """Processes that each trainer spreads its emulators over, as in runtime.env_processes; the
    limit is then that of bare emulators in as many processes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("env_processes", self.env_processes)
        if self.env_processes > self.envs:
            raise ValueError(
                f"env_processes = {self.env_processes}: must be at most envs = {self.envs}, "
                "the emulators that they share"
            )
        check_count("trainers", self.trainers_counted)

    @property
    def trainers_counted(self) -> int:
        return trainers_here(self.env_processes) if self.trainers == "auto" else self.trainers
