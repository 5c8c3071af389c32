"""Catch: a small game of our own, of Atari's observation size, learned in a minute on one core.

A ball falls through a grid of 7 by 7 cells, one row each agent step, and a paddle 3 cells wide in
the last row moves one cell to the left, one to the right, or stays. When the ball arrives after 6
agent steps the reward is +1 if the paddle is there and -1 if not, and the next ball starts in the
first row. An episode is 10 balls, so 60 agent steps; it terminates, and is never truncated. The
column in which a ball starts is drawn uniformly, as is the paddle's place at the start of an
episode; between balls the paddle stays where it is.

Expected return of an episode: 10 with perfect play, as no column is more than 4 moves away;
10 · (2 · 3/7 − 1) = −10/7 ≈ −1.43 with random actions, as with any that do not look at the ball.

Four variants make a family of related tasks: `catch`; `catch_mirrored`, where left and right are
swapped; `catch_up`, where the ball rises to a paddle in the first row; and `catch_dark`, with all
colors inverted (black behind, not white).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from leap_rl.envs.state import (
    IDENTITY,
    State,
    check_state,
    restore_generators,
    save_generators,
    text_array,
)
from leap_rl.envs.vector import RestorableEnvs, Stepped, environment_seeds

GRID = 7
"""Rows and columns, in cells."""
CELL = 12
"""Height and width of a cell, in pixels: 7 · 12 = 84."""
PADDLE = 3
"""Width of the paddle, in cells."""
BALLS = 10
"""Balls in an episode."""

_MOVES = np.array([0, -1, 1])  # stay, left, right
_BACKGROUND, _BALL, _PADDLE = (255, 255, 255), (0, 0, 255), (255, 0, 0)
_COUNTS = ("balls_left", "ball_rows", "ball_columns", "paddle_columns")


class CatchEnvs(RestorableEnvs):
    """B games of one of `tasks.suites.CATCH_GAMES`; what one plays does not depend on B."""

    balls_left: NDArray[np.int64]
    ball_rows: NDArray[np.int64]
    ball_columns: NDArray[np.int64]
    paddle_columns: NDArray[np.int64]

    def __init__(self, name: str, *, num_envs: int) -> None:
        shape = (GRID * CELL, GRID * CELL, 3)
        super().__init__(num_envs, Box(0, 255, shape, np.uint8), len(_MOVES))
        variant = {what: name == f"catch_{what}" for what in ("dark", "mirrored", "up")}
        self._identity = f"catch {json.dumps(variant)}"
        self._moves = -_MOVES if variant["mirrored"] else _MOVES
        self._up = variant["up"]
        self._colors = np.array([_BACKGROUND, _BALL, _PADDLE], dtype=np.uint8)
        if variant["dark"]:
            self._colors = 255 - self._colors
        self._blank = np.broadcast_to(self._colors[0], (num_envs, *shape)).copy()
        self._environments = np.arange(num_envs)
        for count in _COUNTS:
            setattr(self, count, np.zeros(num_envs, dtype=np.int64))
        self._generators = [np.random.default_rng() for _ in range(num_envs)]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        if seed is not None:
            self._generators = [
                np.random.default_rng(sequence)
                for sequence in environment_seeds(seed, self.num_envs)
            ]
        self._start_balls(self._environments)
        self._start_episodes(self._environments)
        return self._render(), {}

    def step(self, actions: NDArray[np.int64]) -> Stepped:
        moved = self.paddle_columns + self._moves[actions]
        self.paddle_columns = np.clip(moved, 0, GRID - PADDLE)
        self.ball_rows += 1
        arrived = self.ball_rows == GRID - 1
        offsets = self.ball_columns - self.paddle_columns
        caught = (offsets >= 0) & (offsets < PADDLE)
        rewards = np.where(arrived, np.where(caught, 1.0, -1.0), 0.0)
        self.balls_left -= arrived
        terminated = self.balls_left == 0

        info: dict[str, Any] = {}
        if terminated.any():
            info = {"final_obs": self._render(), "_final_obs": terminated}
        self._start_balls(np.flatnonzero(arrived))
        self._start_episodes(np.flatnonzero(terminated))
        return self._render(), rewards, terminated, np.zeros_like(terminated), info

    def state(self) -> State:
        return {
            IDENTITY: text_array(self._identity),
            **{count: getattr(self, count).copy() for count in _COUNTS},
            "generators": save_generators(self._generators),
            "observations": self._render(),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
        check_state(state, like=self.state())
        for count in _COUNTS:
            setattr(self, count, state[count].copy())
        self._generators = restore_generators(state["generators"])
        return self._render()

    def _start_balls(self, environments: NDArray[np.int64]) -> None:
        self.ball_rows[environments] = 0
        self.ball_columns[environments] = self._draw(GRID, environments)

    def _start_episodes(self, environments: NDArray[np.int64]) -> None:
        self.balls_left[environments] = BALLS
        self.paddle_columns[environments] = self._draw(GRID - PADDLE + 1, environments)

    def _draw(self, columns: int, environments: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([self._generators[index].integers(columns) for index in environments], int)

    def _render(self) -> NDArray[np.uint8]:
        """Paint all games: uint8 [B, 84, 84, 3]."""
        _, ball, paddle = self._colors
        observations = self._blank.copy()
        cells = observations.reshape(self.num_envs, GRID, CELL, GRID, CELL, 3)
        last = GRID - 1
        ball_rows = last - self.ball_rows if self._up else self.ball_rows
        paddle_row = 0 if self._up else last
        for cell in range(PADDLE):
            cells[self._environments, paddle_row, :, self.paddle_columns + cell] = paddle
        # The ball last: where it was caught it is seen in front of the paddle.
        cells[self._environments, ball_rows, :, self.ball_columns] = ball
        return observations
