"""What can be set about measurements. Importing this costs no import of torch."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from leap_rl.envs.atari.games import ACTION_COUNTS, resolve_games
from leap_rl.envs.gymnasium.ids import parse_game
from leap_rl.rl.config import AgentConfig
from leap_rl.tasks.atari import AtariConfig
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.gymnasium import GymnasiumConfig

LONGEST_S = 1e6


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def trainers_here(env_processes: int) -> int:
    """Return for how many trainers there are cores, as a cluster of this machine counts them."""
    return max(1, cores() // env_processes)


def check_seconds(seconds: float) -> None:
    """Refuse a measurement that is no time at all, or endless.

    Raises:
        ValueError: The seconds are out of range.
    """
    if not 0 < seconds <= LONGEST_S:
        raise ValueError(f"seconds = {seconds}: must be greater than 0 and at most {LONGEST_S:.0f}")


def check_count(name: str, count: int) -> None:
    """Refuse to count what is not there.

    Raises:
        ValueError: There is less than one.
    """
    if count < 1:
        raise ValueError(f"{name} = {count}: must be at least 1")


def is_gymnasium_id(game: str) -> bool:
    """Whether a game is an id of Gymnasium's, which ends in a version, and no Atari game's name."""
    return re.search(r"-v\d+$", game.partition("@")[0]) is not None


def resolve_any_game(game: str) -> str:
    """Return the one spelling of the game that is measured, an Atari game or a Gymnasium id.

    Raises:
        ValueError: It is neither, or a pool of games.
    """
    if not is_gymnasium_id(game):
        return resolve_game(game)
    try:
        return parse_game(game).name
    except ValueError as error:
        raise ValueError(str(error).replace("task.games", "game", 1)) from None


def resolve_game(game: str) -> str:
    """Return the name of the one Atari game that is measured, in snake_case.

    Raises:
        ValueError: It is no game, or a pool of them.
    """
    try:
        games = resolve_games([game])
    except ValueError as error:
        if "@" in game or ":" in game:
            raise ValueError(str(error).replace("task.games", "game", 1)) from None
        close = get_close_matches(game.lower(), ACTION_COUNTS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(
            f"game = {game}: there is no such game; {hint}`leap-rl games` lists all"
        ) from None
    if len(games) > 1:
        raise ValueError(
            f"game = {game}: is a pool of {len(games)} games, and one is measured; "
            f"name one of them, such as {games[0]!r}"
        )
    return games[0]


@dataclass(frozen=True, kw_only=True)
class AgentBench:
    """What measurements of a learning agent have in common."""

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
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range, or there is no such game.
        """
        check_seconds(self.seconds)
        for name in ("envs", "unroll"):
            check_count(name, getattr(self, name))
        _ = self.task

    @property
    def task(self) -> TaskConfig:
        """An endless task of the game."""
        each = self.envs * self.unroll
        return TaskConfig(
            kind="gymnasium" if is_gymnasium_id(self.game) else "atari",
            games=[resolve_any_game(self.game)],
            agent_steps=each * (2**40 // each),
            num_envs=self.envs,
            unroll_length=self.unroll,
            atari=self.atari,
            gymnasium=self.gymnasium,
        )

    @property
    def atari_resolved(self) -> dict[str, Any] | None:
        """The emulator's settings, none where there is no emulator."""
        return self.atari.resolved() if self.task.kind == "atari" else None


@dataclass(frozen=True, kw_only=True)
class ThroughputConfig(AgentBench):
    """Measure how fast trainers learn a game, against the bare emulator, and where the time goes.

    Windows of learning, of the bare emulator and of learning with timers on take turns; each
    figure is the median over its windows. For Gymnasium's ids bare environments, stepped with
    random actions, take the emulator's place.
    """

    seconds: float = 30.0
    """Time to measure for: half of it learning, a quarter each the bare emulator and the split."""

    trainers: int | Literal["auto"] = "auto"
    """Trainers that learn at the same time, each of one thread beside its env_processes. auto: as
    many as there are cores for, env_processes of them for each."""

    env_processes: int = 1
    """Processes that each trainer spreads its emulators over, as in runtime.env_processes; the
    limit is then that of bare emulators in as many processes."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range, or there is no such game.
        """
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
        """The number of trainers."""
        return trainers_here(self.env_processes) if self.trainers == "auto" else self.trainers
