"""Records trained agents, from the files of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leap_rl.core.determinism import configure_torch
from leap_rl.envs.atari.camera import frames_per_s
from leap_rl.envs.atari.games import ACTION_COUNTS
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.names import split_name
from leap_rl.learners.config import AgentConfig
from leap_rl.sharing.initialization import load_tensors
from leap_rl.video.clip import write_clip
from leap_rl.video.playing import Frame, Player, play
from leap_rl.video.renderer import Drawing


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
    tell: Callable[[Frame], None],
    episodes: int = 1,
    max_agent_steps: int | None = None,
    greedy: bool = False,
    root: Path | None = None,
) -> list[Frame]:
    """Let a trained agent play, and write a clip of every frame at the game's own pace.

    Args:
        agent_file: One of RUN/agents.
        game: What it has learned, or a flavour of it.
        out: An .mp4 or a .gif.
        agent: See `Player`, as for `greedy`.
        settings: How the game is run.
        seed: Of the game and of the actions.
        title: Goes above each picture.
        scale: How often each row of a picture is repeated.
        tell: Called with each picture.
        episodes: How many to play; of several, each picture says which it is of.
        max_agent_steps: Stop after so many, over all episodes.
        root: A folder that the clip lies in, below which no link is followed.

    Returns:
        The last picture of each episode.

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
    drawing = Drawing(height=len(first.screen), scale=scale)
    ends: dict[int, Frame] = {}

    def frames() -> Iterator[NDArray[np.uint8]]:
        for picture in chain([first], played):
            caption = f"score {picture.score:,}   agent step {picture.agent_steps:,}"
            if episodes > 1:
                caption = f"episode {picture.episode}   {caption}"
            yield drawing.draw(picture.screen, title=title, caption=caption)
            ends[picture.episode] = picture
            tell(picture)

    width, height, rate = drawing.width, drawing.height, frames_per_s(game)
    write_clip(out, frames(), width=width, height=height, frames_per_s=rate, root=root)
    return list(ends.values())


def _read_player(
    path: Path, game: str, agent: AgentConfig, settings: AtariSettings, *, seed: int, greedy: bool
) -> Player:
    num_actions = ACTION_COUNTS[split_name(game)[0]]
    parameters = load_tensors(path.read_bytes())
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
