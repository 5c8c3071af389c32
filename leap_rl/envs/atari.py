"""Atari 2600 games, as the paper's agent sees them.

What each choice rests on; "the paper" is its appendix "Experiment details: Atari".

* Observations are 84 × 84 × 3 RGB (the paper): the emulator's 210 × 160 screen, averaged over
  areas. One frame, no stack, since the paper gives three channels and they are RGB.
* Actions are the game's minimal set (the paper: its table's action counts are those).
* An action is repeated for 4 frames (Mnih et al. 2013, whose network the paper uses) and the
  observation is the maximum of the last two (Mnih et al. 2015). The paper is silent.
* An episode starts with 0 to 30 no-ops, drawn uniformly (after Mnih et al. 2015, where it is
  "up to 30"). They are no agent steps.
* An action is never repeated by chance: "sticky actions" (Machado et al. 2018) are off, as in the
  literature that the paper follows; the paper is silent.
* Rewards are the game's own. The paper clips them to ±5, which is the agent's business.
* An episode terminates when the game is over, not when a life is lost, and is truncated after
  108,000 frames, which are 27,000 agent steps or half an hour, counted from the first observation
  (ours to say: the paper is silent on both).
* No FIRE is pressed for the agent at the start of an episode: the paper mentions none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from leap_rl.envs.games import ACTION_COUNTS
from leap_rl.envs.vector import GameVector, environment_seeds

SCREEN = 84
"""Height and width of an observation, in pixels."""

_NO_FRAME_CAP = 2**31 - 2  # ale_py holds its cap, plus one, in an int32


@dataclass(frozen=True, kw_only=True, slots=True)
class AtariSettings:
    """How the emulator is run; the defaults are explained at the top of this module."""

    frameskip: int = 4
    """Frames in an agent step. From 2 on the observation is the maximum of the last two."""
    noop_max: int = 30
    """The most no-ops, of one frame each, at the start of an episode."""
    sticky: float = 0.0
    """Probability that a frame repeats the action of the frame before it."""
    max_frames: int = 108_000
    """Frames after which an episode is truncated; a multiple of `frameskip`."""

    def __post_init__(self) -> None:
        if self.frameskip < 1:
            raise ValueError(f"atari.frameskip = {self.frameskip}: must be at least 1")
        if self.noop_max < 0:
            raise ValueError(f"atari.noop_max = {self.noop_max}: must be at least 0")
        if not 0.0 <= self.sticky < 1.0:
            raise ValueError(f"atari.sticky = {self.sticky}: must lie in [0, 1)")
        if self.max_frames < 1 or self.max_frames % self.frameskip:
            raise ValueError(
                f"atari.max_frames = {self.max_frames}: must be a positive multiple of "
                f"atari.frameskip = {self.frameskip}"
            )


class _AleEnvs(AtariVectorEnv):
    """ale_py's, which writes its autoreset mode into the class's dict: here, one of its own."""

    # Without it the dict would be VectorEnv's, and every environment would seem to be in SAME_STEP.
    metadata: dict[str, Any] = {}  # noqa: RUF012


class _AtariEnvs(VectorEnv[NDArray[np.uint8], NDArray[np.int64], NDArray[Any]]):
    """ale_py's vector environment with observations [B, 84, 84, 3] and our own frame cap.

    ale_py's own cap hands out a wrong last observation: it breaks off before it reads the screen
    of the last frame, and pools the one before with a leftover of the step before (0.12.1). So its
    cap is out of reach, and an episode that comes to ours is reset by hand. Its next episode is
    the very one that ale_py would have started.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, game: str, *, num_envs: int, settings: AtariSettings, threads: int) -> None:
        self._ale_envs = _AleEnvs(
            game,
            num_envs,
            num_threads=threads,
            max_num_frames_per_episode=_NO_FRAME_CAP,
            repeat_action_probability=settings.sticky,
            full_action_space=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
            img_height=SCREEN,
            img_width=SCREEN,
            grayscale=False,
            stack_num=1,
            frameskip=settings.frameskip,
            maxpool=True,
            noop_max=settings.noop_max + 1,  # ale_py draws fewer than its noop_max
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
            use_fire_reset=False,
        )
        self.num_envs = num_envs
        self.single_observation_space = Box(0, 255, (SCREEN, SCREEN, 3), np.uint8)
        self.single_action_space = self._ale_envs.single_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = self._ale_envs.action_space
        self._max_agent_steps = settings.max_frames // settings.frameskip
        self._agent_steps = np.zeros(num_envs, dtype=np.int64)  # of the running episodes

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode in every environment, each with a seed of its own out of the one."""
        # ale_py would take the int, but then environment 1 of seed 7 plays the games of
        # environment 0 of seed 8; and its seeds have 31 bits.
        seeds = None if seed is None else _int32_seeds(seed, self.num_envs)
        observations: NDArray[np.uint8] = self._ale_envs.reset(seed=seeds)[0]
        self._agent_steps[:] = 0
        return observations[:, 0], {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[
        NDArray[np.uint8], NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
    ]:
        """Take one action in each environment."""
        observations, rewards, terminated, _, ale_info = self._ale_envs.step(actions)
        self._agent_steps += 1
        truncated = (self._agent_steps == self._max_agent_steps) & ~terminated
        ended = terminated | truncated
        self._agent_steps[ended] = 0

        info: dict[str, Any] = {}
        if ended.any():
            last = observations[:, 0].copy()
            if terminated.any():
                last[terminated] = ale_info["final_obs"][terminated, 0]
            info = {"final_obs": last, "_final_obs": ended}
        if truncated.any():
            observations = self._ale_envs.reset(options={"reset_mask": truncated})[0]
        return observations[:, 0], rewards, terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """Stop ale_py's threads, which end with its destructor only."""
        # Gymnasium's destructor closes too, also what an interrupt left half constructed.
        self.__dict__.pop("_ale_envs", None)


def _int32_seeds(seed: int, num_envs: int) -> NDArray[np.int64]:
    """Return seeds in [0, 2**31) for the environments."""
    words = [sequence.generate_state(1)[0] >> 1 for sequence in environment_seeds(seed, num_envs)]
    return np.array(words, dtype=np.int64)


def make_atari(
    game: str,
    *,
    num_envs: int,
    seed: int,
    settings: AtariSettings | None = None,
    threads: int = 1,
) -> GameVector:
    """Make B environments of one Atari game.

    Args:
        game: a key of `games.ACTION_COUNTS`.
        num_envs: B.
        seed: the sole source of randomness.
        settings: how the emulator is run; by default as in the paper.
        threads: how many step the environments; changes no bit.

    Raises:
        ValueError: there is no such game, or fewer than one thread.
    """
    if game not in ACTION_COUNTS:
        raise ValueError(f"game = {game!r}: no Atari game has that name (leap-rl games lists all)")
    if threads < 1:
        raise ValueError(f"threads = {threads}: must be at least 1")  # ale_py takes 0 for "all"
    envs = _AtariEnvs(
        game, num_envs=num_envs, settings=settings or AtariSettings(), threads=threads
    )
    return GameVector(envs, seed=seed)
