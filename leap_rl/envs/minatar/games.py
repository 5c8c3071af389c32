"""MinAtar's games by their ids, B of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from leap_rl.envs.gymnasium.ids import parse_game
from leap_rl.envs.minatar import asterix, breakout, freeway, seaquest, space_invaders
from leap_rl.envs.minatar.colors import ORIENTATIONS, cell_table, show, turned
from leap_rl.envs.minatar.common import SIZE
from leap_rl.envs.state import Observations

GAMES: Mapping[str, ModuleType] = {
    "Asterix": asterix,
    "Breakout": breakout,
    "Freeway": freeway,
    "Seaquest": seaquest,
    "SpaceInvaders": space_invaders,
}
"""By name, as between `MinAtar/` and the version."""

ALL_ACTIONS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class GameOptions:
    """The options of a game, by the names that minatar has for them."""

    sticky_action_prob: float = 0.1
    """Probability that the last action is taken again."""
    difficulty_ramping: bool = True
    """Whether Asterix, Seaquest and SpaceInvaders get faster."""
    use_minimal_action_set: bool = False
    """Whether the actions that do nothing are left out."""
    orientation: int = 0
    """How what is seen is turned, one of `colors.ORIENTATIONS`; minatar has no such option."""
    max_episode_steps: int | None = None
    """Agent steps after which an episode is truncated, an argument of `gymnasium.make`."""


def options_of(game: str) -> tuple[str, GameOptions]:
    """Return a game's name and options; ValueError if MinAtar has no such game, option or value."""
    parsed = parse_game(game)
    name, _, version = parsed.id.removeprefix("MinAtar/").rpartition("-")
    if name not in GAMES or version not in ("v0", "v1"):
        raise ValueError(
            f"task.games: {game!r}: MinAtar has no such game; it has {', '.join(GAMES)}, each as "
            "-v0 with all six actions and as -v1 with those that do something"
        )
    arguments: dict[str, Any] = {"use_minimal_action_set": version == "v1", **parsed.arguments}
    known = GameOptions.__dataclass_fields__
    if unknown := ", ".join(arguments.keys() - known):
        raise ValueError(
            f"task.games: {game!r}: MinAtar's games have no {unknown}; they have {', '.join(known)}"
        )
    options = GameOptions(**arguments)
    sticky, limit = options.sticky_action_prob, options.max_episode_steps
    if not (isinstance(sticky, int | float) and 0 <= sticky <= 1):
        raise ValueError(f"task.games: {game!r}: sticky_action_prob = {sticky}: must lie in 0..1")
    if limit is not None and not (isinstance(limit, int) and limit > 0):
        raise ValueError(f"task.games: {game!r}: max_episode_steps = {limit}: must be at least 1")
    if options.orientation not in ORIENTATIONS or isinstance(options.orientation, bool):
        raise ValueError(
            f"task.games: {game!r}: orientation = {options.orientation}: must be a whole number "
            f"from 0 to {ORIENTATIONS[-1]}"
        )
    return name, options


class MinAtarGames:
    """B games, each in an episode of its own; see `envs.games.Games` and `make_games`."""

    def __init__(self, game: str, *, count: int, palette: bool) -> None:
        name, options = options_of(game)
        module = self._module = GAMES[name]
        minimal = options.use_minimal_action_set
        self._actions = np.array(module.ACTIONS if minimal else range(ALL_ACTIONS), dtype=np.int64)
        self.num_actions, self.continuous = len(self._actions), False
        self._sticky = float(options.sticky_action_prob)
        self._ramps = bool(options.difficulty_ramping)
        self._limit = options.max_episode_steps
        self._lengths = np.zeros(count, dtype=np.int64)
        self._games = np.zeros(count, dtype=module.GAME)
        self._cells = np.zeros((count, SIZE, SIZE), dtype=np.uint16)
        self._turned = turned(self._cells, options.orientation)
        self._table = cell_table(module.THINGS, palette=palette)
        self.observation_space = Box(0, 255, (SIZE, SIZE, self._table.shape[1]), np.uint8)

    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        """Begin an episode in the games [K] with each one's seed."""
        self._lengths[which] = 0
        self._module.start(self._games, which, seeds)

    def step(
        self, actions: NDArray[np.int64], which: slice = slice(None)
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Take an action in each game, or in some; see `envs.games.Games`."""
        games, taken = self._games[which], self._actions[actions]
        rewards, over = np.empty(len(games)), np.empty(len(games), dtype=np.bool_)
        self._module.step(games, taken, self._sticky, self._ramps, rewards, over)
        truncated = np.zeros_like(over)
        if self._limit is not None:
            self._lengths[which] += 1
            truncated = self._lengths[which] == self._limit
        return rewards, over, truncated

    def show(self, observations: Observations) -> None:
        """Write what the games look like into the corner of uint8 [B, H, W, C]."""
        self._module.draw(self._games, self._cells)
        show(self._turned, self._table, observations)

    def close(self) -> None:
        """There is nothing to free."""
