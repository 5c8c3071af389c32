"""Trained agents that act, from the files of a run."""

from __future__ import annotations

from pathlib import Path

from leap_rl.envs.atari.games import ACTION_COUNTS
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.names import split_name
from leap_rl.rl.config import AgentConfig
from leap_rl.training.initialization import load_tensors
from leap_rl.video.playing import Player


def read_player(
    path: Path,
    game: str,
    *,
    agent: AgentConfig,
    settings: AtariSettings,
    seed: int,
    greedy: bool = False,
) -> Player:
    """Return the agent of a file, ready to play.

    Args:
        path: One of RUN/agents.
        game: What it has learned, or a flavour of it.
        agent: See `Player`, as for `seed` and `greedy`.
        settings: How the game is run.
        seed: Of the actions.
        greedy: Take the likeliest action.

    Raises:
        ValueError: It is no agent, it is damaged, or it has not learned this game; the message
            lacks the path.
    """
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
