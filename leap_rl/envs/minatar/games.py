"""MinAtar's games by their ids, and B episodes of one of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_rl.envs.gymnasium.ids import GymnasiumGame
from leap_rl.envs.minatar import asterix, breakout, freeway, seaquest, space_invaders
from leap_rl.envs.minatar.common import SIZE

NAMESPACE = "MinAtar/"
"""What their ids begin with."""

GAMES: Mapping[str, ModuleType] = {
    "Asterix": asterix,
    "Breakout": breakout,
    "Freeway": freeway,
    "Seaquest": seaquest,
    "SpaceInvaders": space_invaders,
}
"""By name, as between `NAMESPACE` and the version."""

ALL_ACTIONS = 6

_MINIMAL = {"v0": False, "v1": True}


@dataclass(frozen=True, kw_only=True, slots=True)
class GameOptions:
    """What can be set about a game, by the names that minatar has for it."""

    sticky_action_prob: float = 0.1
    """That an action is not taken, but the last one again."""
    difficulty_ramping: bool = True
    """Whether Asterix, Seaquest and SpaceInvaders get faster."""
    use_minimal_action_set: bool = False
    """Whether the actions that do nothing are left out."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A probability is none.
        """
        sticky = self.sticky_action_prob
        if not (isinstance(sticky, int | float) and 0 <= sticky <= 1):
            raise ValueError(f"sticky_action_prob = {sticky}: must lie in 0..1")


def name_and_options(game_id: str) -> tuple[str, dict[str, Any]]:
    """Return the name of an id's game, and the options that the id stands for.

    Raises:
        ValueError: MinAtar has no such game.
    """
    name, _, version = game_id.removeprefix(NAMESPACE).rpartition("-")
    if name not in GAMES or version not in _MINIMAL:
        raise ValueError(
            f"MinAtar has no such game; it has {', '.join(GAMES)}, each as -v0 with all six "
            "actions and as -v1 with those that do something"
        )
    return name, {"use_minimal_action_set": _MINIMAL[version]}


def options_of(game: GymnasiumGame) -> tuple[str, GameOptions] | None:
    """Return the name and the options of a game that `Episodes` can play.

    Returns:
        None for a game that is not of MinAtar's, has another argument (`gymnasium.make` knows some
        more), or one that cannot be meant; `single.make` says why.
    """
    fields = GameOptions.__dataclass_fields__
    if not game.id.startswith(NAMESPACE) or not set(game.arguments) <= set(fields):
        return None
    arguments: dict[str, Any] = dict(game.arguments)
    try:
        name, options = name_and_options(game.id)
        return name, GameOptions(**{**options, **arguments})
    except ValueError:
        return None


class Episodes:
    """B games of one kind, each in an episode of its own.

    Args:
        name: a key of `GAMES`.
        options: of the game.
        count: B.
    """

    def __init__(self, name: str, options: GameOptions, *, count: int) -> None:
        module = GAMES[name]
        self.things: tuple[str, ...] = module.THINGS
        """Kinds of things, in the order of the channels."""
        minimal = options.use_minimal_action_set
        self._actions = np.array(module.ACTIONS if minimal else range(ALL_ACTIONS), dtype=np.int64)
        self.num_actions = len(self._actions)
        self._start: Callable[..., None] = module.start
        self._step: Callable[..., None] = module.step
        self._draw: Callable[..., None] = module.draw
        self._sticky = float(options.sticky_action_prob)
        self._ramps = bool(options.difficulty_ramping)
        self._games = np.zeros(count, dtype=module.GAME)
        self._cells = np.zeros((count, SIZE, SIZE), dtype=np.uint16)

    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        """Begin an episode in the games [K] with each one's seed."""
        self._start(self._games, which, seeds)

    def step(
        self, actions: NDArray[np.int64], which: slice = slice(None)
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Take an action in 0..A-1 in each of the games, or of some.

        Returns:
            Rewards and whether the episode is over, of each of these games.
        """
        games, taken = self._games[which], self._actions[actions]
        rewards, over = np.empty(len(games)), np.empty(len(games), dtype=np.bool_)
        self._step(games, taken, self._sticky, self._ramps, rewards, over)
        return rewards, over

    def cells(self) -> NDArray[np.uint16]:
        """Return what is where, [B, 10, 10]: the bit of each kind of thing. Valid until the next
        call."""
        self._draw(self._games, self._cells)
        return self._cells
