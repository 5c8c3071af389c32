"""One environment in Gymnasium's interface, with the observations of our agents.

For other people's algorithms: it is environment 0 of the vector that our own agent plays, so that
the same seed and actions give the same observations, rewards and episodes, to the bit; but vectors
of bytes are scaled here, which our encoders do themselves.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from leap_rl.envs.atari.envs import AtariEnvs
from leap_rl.envs.atari.games import is_game, resolve_games
from leap_rl.envs.atari.settings import PRESETS, AtariSettings
from leap_rl.envs.games import common_shape
from leap_rl.envs.replayed import ReplayedEnvs
from leap_rl.envs.state import Observations


class SingleEnv(gymnasium.Env[Observations, Any]):
    """Environment 0 of a vector of one, in Gymnasium's interface.

    Where learning treats the loss of a life as an end (`AtariSettings.life_loss_ends`), the
    episode terminates there, and the next `reset` without a seed resumes the game. Rewards are
    clipped to [-reward_clip, reward_clip], in what an algorithm reports too. Vectors of bytes, as
    of a Discrete, are shown as float32 in 0..1: libraries scale images alone.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], *, reward_clip: float = math.inf) -> None:
        if not reward_clip > 0:
            raise ValueError(f"reward_clip = {reward_clip}: must be greater than 0")
        self._envs = envs
        self._reward_clip = reward_clip
        self._next: Observations | None = None  # of an episode that has begun already
        self.observation_space = envs.single_observation_space
        shape, dtype = self.observation_space.shape, self.observation_space.dtype
        self._is_scaled = dtype == np.uint8 and shape is not None and len(shape) == 1
        if self._is_scaled:
            self.observation_space = Box(0.0, 1.0, shape, np.float32)
        self.action_space = envs.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode; with a seed, the first of those that the seed stands for."""
        super().reset(seed=seed)
        begun, self._next = self._next, None
        if seed is None and begun is not None:
            return begun, {}
        observations, _ = self._envs.reset(seed=seed)
        return self._shown(observations[0]), {}

    def _shown(self, observation: Any) -> Observations:
        shown: Observations = np.array(observation)
        if self._is_scaled:
            scaled: NDArray[np.float32] = np.true_divide(shown, 255).astype(np.float32)
            return scaled
        return shown

    def step(self, action: Any) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """Take an action; ValueError if the game has no such one.

        In the info are `raw_reward`, the reward before any clipping, and `life_lost`, whether that
        is why the episode ends.
        """
        if isinstance(self.action_space, Box):  # of float64, say
            action = np.asarray(action, dtype=self.action_space.dtype)
        if not self.action_space.contains(action):
            raise ValueError(f"action = {action}: must lie in {self.action_space}")
        actions = np.array([action], dtype=self.action_space.dtype)
        observations, rewards, terminated, truncated, info = self._envs.step(actions)
        reward = float(np.clip(rewards[0], -self._reward_clip, self._reward_clip))
        is_over, is_cut = bool(terminated[0]), bool(truncated[0] and not terminated[0])
        observation = self._shown(observations[0])
        life_lost = False
        if is_over or is_cut:  # the vector has begun the next episode in the same step
            self._next, observation = observation, self._shown(info["final_obs"][0])
        elif life_lost := "life_lost" in info and bool(info["life_lost"][0]):
            self._next, is_over = observation, True
        about = {"raw_reward": float(rewards[0]), "life_lost": life_lost}
        return observation, reward, is_over, is_cut, about

    def close(self) -> None:
        self._envs.close()


class GameEnv(SingleEnv):
    """A game: an Atari game, or any Gymnasium id that our agent can play, MinAtar's among them.

    Observations are uint8 [H, W, C] in 0..255, not scaled, channels last, a stack's oldest frame
    first; or vectors, float32 [L]. The encoders take them as they are. Actions are discrete, or
    float32 [D], of which -1 and 1 are the game's own bounds.

    Args:
        game: As `task.games` spells it: `breakout`, `pong@mode=1`, `MinAtar/Breakout-v1`.
        atari: How the emulator is run: the name of a preset, or settings. Of Atari games alone.
        palette: Paint MinAtar's games in common colors, 10 × 10 × 3. Of those games alone.
        observation_shape: Of an observation; a smaller one gets zeros at its ends. None: the
            game's own. Of Gymnasium ids alone.
        remake: Make a Gymnasium environment again for each episode. Not of MinAtar's games.
        reward_clip: See `SingleEnv`.

    Raises:
        ValueError: There is no such game or preset, an option is of another kind of game, or the
            observations do not fit.
    """

    def __init__(
        self,
        game: str,
        *,
        atari: str | AtariSettings = "paper",
        palette: bool = False,
        observation_shape: tuple[int, ...] | None = None,
        remake: bool = False,
        reward_clip: float = math.inf,
    ) -> None:
        is_atari, is_minatar = is_game(game), game.startswith("MinAtar/")
        # Whether each option is given, and whether it has an effect.
        given = {
            "atari": (atari != "paper", is_atari),
            "palette": (palette, is_minatar),
            "observation_shape": (observation_shape is not None, not is_atari),
            "remake": (remake, not (is_atari or is_minatar)),
        }
        for name, (is_given, has_effect) in given.items():
            if is_given and not has_effect:
                raise ValueError(f"{name}: has no effect on the game {game!r}; leave it out")
        envs: VectorEnv[Any, Any, Any]
        if is_atari:
            if isinstance(atari, str):
                if atari not in PRESETS:
                    raise ValueError(f"atari = {atari!r}: must be one of {', '.join(PRESETS)}")
                atari = PRESETS[atari]
            (name,) = resolve_games([game])
            envs = AtariEnvs(name, num_envs=1, settings=atari)
        else:
            wanted = None if observation_shape is None else tuple(observation_shape)
            shape = common_shape((game,), pad="zeros", palette=palette, wanted=wanted)
            envs = ReplayedEnvs(game, num_envs=1, shape=shape, remake=remake, palette=palette)
        super().__init__(envs, reward_clip=reward_clip)
