"""Atari 2600 games as the paper's agent sees them; `settings` explains every choice.

B emulators are stepped one after another: ALE's Python binding holds the interpreter's lock anyway.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeAlias, cast

import numpy as np
from ale_py import ALEInterface
from gymnasium.spaces import Box
from numpy.typing import NDArray

from leap_rl.envs.atari.emulator import PAL_GAMES, Emulator, Starts, luminances, palette
from leap_rl.envs.atari.games import find_mode
from leap_rl.envs.atari.preprocessing import FrameRenderer
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.state import (
    IDENTITY,
    State,
    check_state,
    join_bytes,
    restore_generators,
    save_generators,
    split_bytes,
    text_array,
)
from leap_rl.envs.vector import RestorableEnvs, Stepped, environment_seeds


class AtariEnvs(RestorableEnvs):
    """B emulators of one game.

    Environment i draws from a generator of its own, `environment_seeds(seed, B)[i]`: at the start
    of an episode the number of no-ops (none is drawn if `noop_max` is 0), in an agent step one
    number a frame where actions are sticky. So what it plays does not depend on B.

    Differences to ale-py's own `AtariVectorEnv` with the same settings: later episodes start as the
    first one did, see `emulator`; the draws are others; FIRE follows the no-ops and is held for a
    whole agent step; the first frame fills the stack, where ale-py leaves black; and the
    observation at a game's end is the last two frames', where ale-py leaves it half updated
    (0.12.1).

    `game` is a key of `games.ACTION_COUNTS`, or a mode's name in its canonical spelling; `first` is
    the number of the first of these environments among all, for `workers`.
    """

    def __init__(
        self, game: str, *, num_envs: int, settings: AtariSettings, first: int = 0
    ) -> None:
        self._identity = f"atari {game} {json.dumps(asdict(settings), sort_keys=True)}"
        self._settings = settings
        self._first = first
        self._emulators = [Emulator(game, settings) for _ in range(num_envs)]
        one = self._emulators[0]
        self._starts = Starts(one, settings)
        colors = palette(one.game)
        self._renderer = FrameRenderer(
            one.height,
            luminances(colors)[:, None] if settings.grayscale else colors,
            num_envs=num_envs,
            frames=settings.frame_stack,
        )
        space = Box(0, 255, settings.observation_shape, np.uint8)
        super().__init__(num_envs, space, len(one.actions))
        self._max_agent_steps = settings.max_frames // settings.frameskip
        self._agent_steps = [0] * num_envs  # of the running episodes
        self._lives = [0] * num_envs
        self._generators = [np.random.default_rng() for _ in range(num_envs)]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        if seed is not None:
            seeds = environment_seeds(seed, self._first + self.num_envs)
            self._generators = [np.random.default_rng(one) for one in seeds[self._first :]]
        for index in range(self.num_envs):
            self._begin(index)
        return self._renderer.observations.copy(), {}

    def step(self, actions: NDArray[np.int64]) -> Stepped:
        emulate, draw = self._emulate, self._renderer.draw
        agent_steps, limit = self._agent_steps, self._max_agent_steps
        watches_lives = self._settings.life_loss_ends
        rewards = []
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        info: dict[str, Any] = {}
        if watches_lives:
            info["life_lost"] = np.zeros(self.num_envs, dtype=np.bool_)
        for index, action in enumerate(np.asarray(actions).tolist()):
            rewards.append(emulate(index, action))
            draw(index)
            agent_steps[index] += 1
            over = self._emulators[index].ale.game_over()
            if over or agent_steps[index] == limit:
                (terminated if over else truncated)[index] = True
                if "final_obs" not in info:
                    info["final_obs"] = np.zeros_like(self._renderer.observations)
                info["final_obs"][index] = self._renderer.observations[index]
                self._begin(index)
            elif watches_lives:
                lives = self._emulators[index].ale.lives()
                # In some games lives are 0 for a few frames before the game is over.
                info["life_lost"][index] = 0 < lives < self._lives[index]
                self._lives[index] = lives
        if "final_obs" in info:
            info["_final_obs"] = terminated | truncated
        observations = self._renderer.observations.copy()
        return observations, np.array(rewards, dtype=np.float64), terminated, truncated, info

    def state(self) -> State:
        emulators = self._emulators
        states, states_sizes = join_bytes(
            [emulator.snapshot(self._starts.switched_on) for emulator in emulators]
        )
        pressed, pressed_sizes = join_bytes([bytes(one.pressed or b"") for one in emulators])
        return {
            IDENTITY: text_array(self._identity),
            "emulators": states,
            "emulators_sizes": states_sizes,
            "pressed": pressed,
            "pressed_sizes": pressed_sizes,
            "held": np.array([emulator.held for emulator in emulators]),
            "agent_steps": np.array(self._agent_steps),
            "lives": np.array(self._lives),
            "generators": save_generators(self._generators),
            "observations": self._renderer.observations.copy(),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
        check_state(state, like=self.state())
        states = split_bytes(state["emulators"], state["emulators_sizes"])
        pressed = split_bytes(state["pressed"], state["pressed_sizes"])
        held = state["held"].tolist()
        for emulator, *parts in zip(self._emulators, states, pressed, held, strict=True):
            emulator.restore(*parts)
        self._agent_steps = state["agent_steps"].tolist()
        self._lives = state["lives"].tolist()
        self._generators = restore_generators(state["generators"])
        for index, observation in enumerate(state["observations"]):
            self._renderer.observations[index] = observation
            self._renderer.forget(index)
        return self._renderer.observations.copy()

    def close_extras(self, **kwargs: Any) -> None:
        # Gymnasium's destructor closes too, even half constructed environments.
        self.__dict__.pop("_emulators", None)

    def _begin(self, index: int) -> None:
        noop_max = self._settings.noop_max
        noops = int(self._generators[index].integers(noop_max + 1)) if noop_max else 0
        start = self._starts.start(self._emulators[index], noops)
        self._renderer.fill(index, start.screen)
        self._agent_steps[index] = 0
        self._lives[index] = start.lives

    def _emulate(self, index: int, action: int) -> int:
        emulator = self._emulators[index]
        ale, move = emulator.ale, emulator.actions[action]
        frameskip = self._settings.frameskip
        reward: int = 0
        if self._settings.sticky or emulator.replayed:
            act, moves = emulator.press, self._moves(index, move)
        else:
            act, moves = ale.act, [move] * frameskip
        for move in moves[:-1]:
            reward += act(move)
        ale.getScreen(self._renderer.screens[0])
        reward += act(moves[-1])
        ale.getScreen(self._renderer.screens[1])
        if frameskip == 1:
            self._renderer.screens[0] = self._renderer.screens[1]
        return reward

    def _moves(self, index: int, move: int) -> list[int]:
        sticky = self._settings.sticky
        if not sticky:
            return [move] * self._settings.frameskip
        held, moves = self._emulators[index].held, []
        for draw in self._generators[index].random(self._settings.frameskip).tolist():
            if draw >= sticky:
                held = move
            moves.append(held)
        return moves


Shot: TypeAlias = tuple[NDArray[np.uint8], int]
"""A frame: the emulator's own picture, RGB [height, 160, 3], and its reward."""


class _Camera:
    def __init__(self, ale: ALEInterface) -> None:
        self._ale = ale
        self.shots: list[Shot] = []

    def act(self, action: int) -> int:
        reward: int = self._ale.act(action)
        self.shots.append((self._ale.getScreenRGB(), reward))
        return reward

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ale, name)


class RecordedAtari(AtariEnvs):
    """One environment of a game, and the frames of its last agent step."""

    def __init__(self, game: str, *, settings: AtariSettings) -> None:
        super().__init__(game, num_envs=1, settings=settings)
        (emulator,) = self._emulators
        self._camera = _Camera(emulator.ale)
        emulator.ale = cast(ALEInterface, self._camera)

    def step(self, actions: NDArray[np.int64]) -> Stepped:
        self._camera.shots.clear()
        return super().step(actions)

    @property
    def shots(self) -> list[Shot]:
        """The frames of the last agent step, without those that start the next episode."""
        return self._camera.shots[: self._settings.frameskip]


def frames_per_s(game: str) -> int:
    """Return the television's frame rate in a game: 60 Hz (NTSC) or 50 Hz (PAL), to the nearest."""
    return 50 if find_mode(game).game in PAL_GAMES else 60
