"""A trained agent plays, frame by frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.atari.camera import RecordedAtari
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.state import Observations
from leap_rl.envs.vector import GameVector
from leap_rl.learners.a2c.a2c import A2CLearner
from leap_rl.learners.a2c.categorical import Categorical
from leap_rl.learners.config import AgentConfig


class Player:
    """An agent that acts, with the very network that it learned with.

    Args:
        agent: Its settings; the encoder, the precision and the device count.
        parameters: Of a file in RUN/agents: encoder.*, policy.* and value.*, by name.
        observation_shape: (height, width, channels).
        num_actions: Of the game.
        seed: Actions are drawn from it.
        greedy: Take the likeliest action, where learning draws one.

    Raises:
        ValueError: The parameters are those of another network.
    """

    def __init__(
        self,
        agent: AgentConfig,
        parameters: Mapping[str, Tensor],
        *,
        observation_shape: tuple[int, int, int],
        num_actions: int,
        seed: int,
        greedy: bool,
    ) -> None:
        self._generator = torch.Generator().manual_seed(derive_seed(seed, Purpose.ACTIONS))
        self._greedy = greedy
        self._learner = A2CLearner(
            agent,
            observation_shape=observation_shape,
            policies=Categorical(num_actions),
            head_generator=torch.Generator(),  # the heads are overwritten
            action_generator=self._generator,
        )
        flat = self._learner.flat
        flat.vector.copy_(flat.layout.pack(parameters))
        self._learner.passes.refresh()

    def act(self, observations: Observations) -> NDArray[np.int64]:
        """Return actions, int64 [B], for observations [B, ...]."""
        logits = self._learner.passes.forward(torch.from_numpy(observations)).logits.cpu()
        policies = self._learner.policies
        actions = (
            policies.mode(logits) if self._greedy else policies.sample(logits, self._generator)
        )
        return np.asarray(actions.numpy())


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """A frame, and how the episode stands by then."""

    screen: NDArray[np.uint8]
    """[height, 160, 3], RGB."""
    episode: int
    """From 1."""
    agent_steps: int
    """Of the episode, this frame's included."""
    score: int
    """The sum of the game's own rewards in the episode, neither clipped nor discounted."""
    last: bool = False
    """Whether the episode ends with this frame."""


def play(
    game: str,
    player: Player,
    *,
    settings: AtariSettings,
    seed: int,
    episodes: int,
    max_agent_steps: int | None = None,
) -> Iterator[Frame]:
    """Play a game and yield every frame of the emulator.

    Args:
        game: Its name, in its one spelling.
        player: Chooses the actions.
        settings: How the emulator is run.
        seed: Of the game: no-ops and sticky actions are drawn from it.
        episodes: How many to play.
        max_agent_steps: Stop after so many, over all episodes.
    """
    seed = derive_seed(seed, Purpose.ENVIRONMENTS)
    camera = RecordedAtari(game, settings=settings)
    games = GameVector(camera, seed=seed)
    observations = games.reset()
    episode, agent_steps, score, total = 1, 0, 0, 0
    while episode <= episodes and (max_agent_steps is None or total < max_agent_steps):
        step = games.step(player.act(observations))
        observations = step.observations
        agent_steps, total = agent_steps + 1, total + 1
        over = bool(step.terminated[0] or step.truncated[0])
        shots = camera.shots
        for number, shot in enumerate(shots, start=1):
            score += shot.reward
            yield Frame(
                screen=shot.screen,
                episode=episode,
                agent_steps=agent_steps,
                score=score,
                last=over and number == len(shots),
            )
        if over:
            episode, agent_steps, score = episode + 1, 0, 0
    games.close()
