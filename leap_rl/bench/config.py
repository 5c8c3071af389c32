"""What can be set about measurements. Importing this costs no import of torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from leap_rl.rl.config import AgentConfig
from leap_rl.tasks.config import TaskConfig

LONGEST_S = 1e6


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def check_seconds(seconds: float) -> None:
    """Refuse a measurement that is no time at all, or endless.

    Raises:
        ValueError: The seconds are out of range.
    """
    if not 0 < seconds <= LONGEST_S:
        raise ValueError(f"seconds = {seconds}: must be greater than 0 and at most {LONGEST_S:.0f}")


def check_trainers(name: str, trainers: int) -> None:
    """Refuse a number of trainers that cannot be.

    Raises:
        ValueError: There is less than one.
    """
    if trainers < 1:
        raise ValueError(f"{name} = {trainers}: must be at least 1")


def _one_game_task(game: str, *, envs: int, unroll: int) -> TaskConfig:
    """Return an endless task of one game."""
    for name, value in (("envs", envs), ("unroll", unroll)):
        if value < 1:
            raise ValueError(f"{name} = {value}: must be at least 1")
    each = envs * unroll
    endless = each * (2**40 // each)
    return TaskConfig(games=[game], agent_steps=endless, num_envs=envs, unroll_length=unroll)


@dataclass(frozen=True)
class ThroughputConfig:
    """Measure how fast trainers learn a game, against the bare emulator, and where the time goes.

    Windows of learning, of the bare emulator and of learning with timers on take turns; each
    figure is the median over its windows.
    """

    game: str
    """The game."""

    trainers: int | Literal["auto"] = "auto"
    """Processes that learn at the same time, one thread each. auto: one for each core."""

    seconds: float = 30.0
    """Time to measure for: half of it learning, a quarter each the bare emulator and the split."""

    envs: int = 32
    """Environments of each agent."""

    unroll: int = 5
    """Agent steps in each environment between two updates."""

    agent: AgentConfig = field(default_factory=AgentConfig)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range, or there is no such game.
        """
        check_trainers("trainers", self.processes)
        check_seconds(self.seconds)
        _ = self.task

    @property
    def processes(self) -> int:
        """The number of trainers."""
        return cores() if self.trainers == "auto" else self.trainers

    @property
    def task(self) -> TaskConfig:
        """What each trainer learns."""
        return _one_game_task(self.game, envs=self.envs, unroll=self.unroll)


@dataclass(frozen=True)
class OverheadConfig:
    """Measure what Leap's sums cost an agent: the same agent with and without, in turns.

    Blocks of a few updates take turns: without sums, with them, and so on; each share is the
    median over neighboring blocks, with its 95 % interval.
    """

    game: str = "breakout"
    """The game."""

    seconds: float = 60.0
    """Time to measure for."""

    envs: int = 32
    """Environments of the agent."""

    unroll: int = 5
    """Agent steps in each environment between two updates."""

    agent: AgentConfig = field(default_factory=AgentConfig)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range, or there is no such game.
        """
        check_seconds(self.seconds)
        _ = self.task

    @property
    def task(self) -> TaskConfig:
        """What the agent learns."""
        return _one_game_task(self.game, envs=self.envs, unroll=self.unroll)


@dataclass(frozen=True)
class ServerConfig:
    """Measure the parameter server on Ray: messages and megabytes a second, and their cost.

    Tasks that compute nothing stream contributions of the real size as fast as the protocol lets
    them, one on the way at a time.
    """

    trainers: list[int] | int = field(default_factory=lambda: [1, 2, 4])
    """Numbers of trainers, measured one after another, as in 1 2 4."""

    seconds: float = 5.0
    """Time to measure for, for each number of trainers."""

    agent: AgentConfig = field(default_factory=AgentConfig)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range.
        """
        if not self.counts:
            raise ValueError("trainers = []: name at least one number of trainers, as in 1 2 4")
        for number in self.counts:
            check_trainers("trainers", number)
        check_seconds(self.seconds)

    @property
    def counts(self) -> list[int]:
        """The numbers of trainers."""
        return [self.trainers] if isinstance(self.trainers, int) else self.trainers


@dataclass(frozen=True)
class StartupConfig:
    """Measure the way from the command to an agent's first update, part by part."""

    game: str = "breakout"
    """The game."""

    envs: int = 32
    """Environments of the agent."""

    repeats: int = 3
    """How often each is measured; the median counts."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range, or there is no such game.
        """
        if self.repeats < 1:
            raise ValueError(f"repeats = {self.repeats}: must be at least 1")
        _ = _one_game_task(self.game, envs=self.envs, unroll=1)
