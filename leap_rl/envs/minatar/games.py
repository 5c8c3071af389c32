"""MinAtar's games by their ids, B of them at once, in their own channels or in common colors.

MinAtar shows a game as 10 × 10 cells with a plane of booleans for each kind of thing. How many
planes there are, and what they mean, differs from game to game: the second is the ball in Breakout
and a car in Freeway. With `palette` all games are painted as pictures in which things of the same
role have the same color, for an encoder that games share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from leap_rl.core.kernels import kernel
from leap_rl.envs.minatar import asterix, breakout, freeway, seaquest, space_invaders
from leap_rl.envs.minatar.common import SIZE
from leap_rl.envs.names import parse_game
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

COLORS: dict[str, tuple[int, int, int]] = {
    # What shows which way something goes, or how fast.
    "trail": (96, 96, 96),
    "speed1": (64, 0, 0),
    "speed2": (96, 0, 0),
    "speed3": (128, 0, 0),
    "speed4": (160, 0, 0),
    "speed5": (192, 0, 0),
    # What is to be avoided, or shot.
    "enemy": (255, 0, 0),
    "car": (255, 0, 0),
    "alien": (255, 0, 0),
    "alien_left": (255, 64, 0),
    "alien_right": (255, 0, 64),
    "enemy_fish": (255, 0, 0),
    "enemy_sub": (255, 64, 64),
    "enemy_bullet": (255, 0, 255),
    # What is to be had, or hit.
    "gold": (255, 255, 0),
    "brick": (255, 255, 0),
    "diver": (255, 255, 0),
    "friendly_bullet": (0, 255, 255),
    "ball": (255, 255, 255),
    # The player, and what is left to him.
    "oxygen_guage": (0, 0, 255),
    "diver_guage": (0, 128, 255),
    "sub_back": (0, 128, 0),
    "player": (0, 255, 0),
    "paddle": (0, 255, 0),
    "chicken": (0, 255, 0),
    "sub_front": (0, 255, 0),
    "cannon": (0, 255, 0),
}
"""The color of each of MinAtar's kinds of things. What comes later covers what comes earlier."""

ORIENTATIONS = range(8)
"""Of a square: q quarter turns counterclockwise are q, and 4 + q if it is mirrored, left for right,
before that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GameOptions:
    """The options of a game, named as in minatar."""

    sticky_action_prob: float = 0.1
    """Probability that the last action is taken again."""
    difficulty_ramping: bool = True
    """Whether Asterix, Seaquest and SpaceInvaders get faster."""
    use_minimal_action_set: bool = False
    """Whether the actions that do nothing are left out."""
    orientation: int = 0
    """How the cells are turned, one of `ORIENTATIONS`; minatar has no such option."""
    permutation: int = 0
    """How the actions are ordered: the number, from 0, of that order among all orders, which begin
    with the game's own and go on lexicographically; minatar has no such option."""

    max_episode_steps: int | None = None
    """Agent steps after which an episode is truncated, an argument of `gymnasium.make`."""

    def actions_of(self, module: ModuleType) -> NDArray[np.int64]:
        """Return what each action does, as numbers of minatar's actions."""
        actions = module.ACTIONS if self.use_minimal_action_set else range(ALL_ACTIONS)
        order = next(islice(permutations(actions), self.permutation, None))
        return np.array(order, dtype=np.int64)


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
    for flag in ("difficulty_ramping", "use_minimal_action_set"):
        if (value := getattr(options, flag)) not in (True, False):  # also 1 and 0
            raise ValueError(f"task.games: {game!r}: {flag} = {value}: must be true or false")
    if type(sticky) not in (int, float) or not 0 <= sticky <= 1:
        raise ValueError(f"task.games: {game!r}: sticky_action_prob = {sticky}: must lie in 0..1")
    if limit is not None and not (type(limit) is int and limit > 0):
        raise ValueError(f"task.games: {game!r}: max_episode_steps = {limit}: must be at least 1")
    if options.orientation not in ORIENTATIONS or isinstance(options.orientation, bool):
        raise ValueError(
            f"task.games: {game!r}: orientation = {options.orientation}: must be a whole number "
            f"from 0 to {ORIENTATIONS[-1]}"
        )
    orders = math.factorial(len(replace(options, permutation=0).actions_of(GAMES[name])))
    if type(options.permutation) is not int or not 0 <= options.permutation < orders:
        raise ValueError(
            f"task.games: {game!r}: permutation = {options.permutation}: must be a whole number "
            f"from 0 to {orders - 1}"
        )
    return name, options


class MinAtarGames:
    """B games, each in an episode of its own; see `envs.games.Games` and `make_games`."""

    def __init__(self, game: str, *, count: int, palette: bool) -> None:
        name, options = options_of(game)
        module = self._module = GAMES[name]
        self._actions = options.actions_of(module)
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
        self._lengths[which] = 0
        self._module.start(self._games, which, seeds)

    def step(
        self, actions: NDArray[np.int64], which: slice = slice(None)
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        games, taken = self._games[which], self._actions[actions]
        rewards, over = np.empty(len(games)), np.empty(len(games), dtype=np.bool_)
        self._module.step(games, taken, self._sticky, self._ramps, rewards, over)
        truncated = np.zeros(len(games), dtype=np.bool_)
        if self._limit is not None:
            self._lengths[which] += 1
            truncated = self._lengths[which] == self._limit
        return rewards, over, truncated

    def show(self, observations: Observations) -> None:
        self._module.draw(self._games, self._cells)
        show(self._turned, self._table, observations)

    def close(self) -> None:
        """There is nothing to free."""


def turned(cells: NDArray[np.uint16], orientation: int) -> NDArray[np.uint16]:
    """Return a view of square cells [B, N, N] in one of `ORIENTATIONS`."""
    mirrored = cells[:, :, ::-1] if orientation >= 4 else cells
    return np.rot90(mirrored, orientation % 4, axes=(1, 2))


def cell_table(things: Sequence[str], *, palette: bool) -> NDArray[np.uint8]:
    """Return how a cell looks, uint8 [2**C, K], by the bits of its C kinds of things.

    With `palette` in `COLORS` on black, so K = 3; otherwise 255 in the channel of each kind, K = C.
    """
    bits = np.arange(2 ** len(things))[:, None] >> np.arange(len(things)) & 1
    if not palette:
        return (bits * 255).astype(np.uint8)
    table = np.zeros((len(bits), 3), dtype=np.uint8)
    for name, color in COLORS.items():
        if name in things:
            table[bits[:, things.index(name)] == 1] = color
    return table


@kernel
def show(cells: Any, table: Any, observations: Any) -> None:
    """Write what cells [B, 10, 10] look like into the corner of uint8 [B, H, W, C]."""
    for b in range(cells.shape[0]):
        for row in range(cells.shape[1]):
            for column in range(cells.shape[2]):
                look = table[cells[b, row, column]]
                for k in range(look.shape[0]):
                    observations[b, row, column, k] = look[k]
