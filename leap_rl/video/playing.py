"""Trained agents play, frame by frame, and are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.determinism import configure_torch
from leap_rl.core.regular_file import LARGEST, read_given
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.atari.envs import RecordedAtari, frames_per_s
from leap_rl.envs.atari.games import ACTION_COUNTS
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.names import split_name
from leap_rl.envs.state import Observations
from leap_rl.envs.vector import GameVector
from leap_rl.learners.a2c.a2c import A2CLearner
from leap_rl.learners.a2c.distributions import Categorical
from leap_rl.learners.config import AgentConfig
from leap_rl.sharing.initialization import load_tensors
from leap_rl.video.clip import FrameRenderer, write_clip


class Player:
    """An agent that acts, with the very network that it learned with.

    Of `agent` the encoder, the precision and the device count. `parameters` are of a file in
    RUN/agents: encoder.*, policy.* and value.*, by name; ValueError if of another network. With
    `greedy` it takes the likeliest action; otherwise actions are drawn, from the seed.
    """

    def __init__(
        self,
        agent: AgentConfig,
        parameters: Mapping[str, Tensor],
        *,
        observation_shape: tuple[int, ...],
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
        """Return actions, int64 [B], for observations [B, ...] as environments show them."""
        logits = self._learner.passes.forward(torch.from_numpy(observations)).logits.cpu()
        policies = self._learner.policies
        actions = (
            policies.mode(logits) if self._greedy else policies.sample(logits, self._generator)
        )
        return np.asarray(actions.numpy())


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """A frame, and the state of its episode."""

    screen: NDArray[np.uint8]
    """[height, 160, 3], RGB."""
    episode: int
    """From 1."""
    agent_steps: int
    """Of the episode, this frame's included."""
    score: int
    """The sum of the game's own rewards in the episode, neither clipped nor discounted."""
    last: bool = False


def play(
    game: str,
    player: Player,
    *,
    settings: AtariSettings,
    seed: int,
    episodes: int,
    max_agent_steps: int | None = None,
) -> Iterator[Frame]:
    """Play a game and yield every frame of the emulator; see `record_video` for the arguments."""
    camera = RecordedAtari(game, settings=settings)
    games = GameVector(camera, seed=derive_seed(seed, Purpose.ENVIRONMENTS))
    observations = games.reset()
    episode, agent_steps, score, total = 1, 0, 0, 0
    while episode <= episodes and (max_agent_steps is None or total < max_agent_steps):
        step = games.step(player.act(observations))
        observations = step.observations
        agent_steps, total = agent_steps + 1, total + 1
        over = bool(step.terminated[0] or step.truncated[0])
        shots = camera.shots
        for number, (screen, reward) in enumerate(shots, start=1):
            score += reward
            yield Frame(
                screen=screen,
                episode=episode,
                agent_steps=agent_steps,
                score=score,
                last=over and number == len(shots),
            )
        if over:
            episode, agent_steps, score = episode + 1, 0, 0
    games.close()


def record_video(
    agent_file: Path,
    game: str,
    out: Path,
    *,
    agent: AgentConfig,
    settings: AtariSettings,
    seed: int,
    title: str,
    scale: int,
    on_frame: Callable[[Frame], None],
    episodes: int = 1,
    max_agent_steps: int | None = None,
    greedy: bool = False,
    root: Path | None = None,
) -> list[Frame]:
    """Let a trained agent play, and write a clip of every frame at the game's own pace.

    Args:
        agent_file: One of RUN/agents.
        game: What it has learned, or a flavour of it.
        out: An .mp4 or a .gif, see `write_clip`, as for `root`.
        agent: See `Player`, as for `greedy`.
        seed: Of the game (no-ops and sticky actions) and of the actions.
        title: Goes above each frame.
        scale: How often each row of a frame is repeated.
        on_frame: Called with each frame.
        episodes: How many to play; of several, each frame says which it is of.
        max_agent_steps: Stop after so many, over all episodes.

    Returns:
        The last frame of each episode.

    Raises:
        ValueError: The file is no agent, is damaged, or has not learned this game.
        OSError: The clip could not be written; there is none then.
    """
    configure_torch()
    try:
        player = _read_player(agent_file, game, agent, settings, seed=seed, greedy=greedy)
    except ValueError as error:
        raise ValueError(f"{agent_file}: {error}") from None
    played = play(
        game,
        player,
        settings=settings,
        seed=seed,
        episodes=episodes,
        max_agent_steps=max_agent_steps,
    )
    first = next(played)
    renderer = FrameRenderer(height=len(first.screen), scale=scale)
    ends: dict[int, Frame] = {}

    def frames() -> Iterator[NDArray[np.uint8]]:
        for frame in chain([first], played):
            caption = f"score {frame.score:,}   agent step {frame.agent_steps:,}"
            if episodes > 1:
                caption = f"episode {frame.episode}   {caption}"
            yield renderer.draw(frame.screen, title=title, caption=caption)
            ends[frame.episode] = frame
            on_frame(frame)

    width, height, rate = renderer.width, renderer.height, frames_per_s(game)
    write_clip(out, frames(), width=width, height=height, frames_per_s=rate, root=root)
    return list(ends.values())


def _read_player(
    path: Path, game: str, agent: AgentConfig, settings: AtariSettings, *, seed: int, greedy: bool
) -> Player:
    num_actions = ACTION_COUNTS[split_name(game)[0]]
    try:
        parameters = load_tensors(read_given(path, LARGEST))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if "policy.bias" not in parameters:
        raise ValueError("is no agent's file: it has no policy; take one of RUN/agents")
    for name, tensor in parameters.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{name}: holds NaN or infinity")
    own_actions = len(parameters["policy.bias"])
    if own_actions != num_actions:
        raise ValueError(
            f"has {own_actions} actions, and {game} has {num_actions}: name the game that it "
            "has learned, or a flavour of it"
        )
    return Player(
        agent,
        parameters,
        observation_shape=settings.observation_shape,
        num_actions=num_actions,
        seed=seed,
        greedy=greedy,
    )
