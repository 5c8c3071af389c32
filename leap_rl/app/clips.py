"""Films the agents of an evaluation: a clip of each initialization in each game."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from leap_rl.app.display import shown
from leap_rl.config import EvaluateConfig
from leap_rl.storage.run_folder import RunFolder, file_name
from leap_rl.tracking.console import Console
from leap_rl.tracking.tracker import Tracker

LONGEST_S = 60
"""An episode may take half an hour of play."""
SCALE = 2


def film_agents(
    config: EvaluateConfig,
    folder: RunFolder,
    *,
    tracker: Tracker,
    console: Console,
    check: Callable[[], None],
) -> None:
    """Film an agent of each initialization in each game, into RUN/clips, and log the clips.

    It is the first run's first.

    A clip that is there already is not made again, but is logged: who logged it last may have died.

    Args:
        config: The evaluation's.
        folder: The evaluation's; all of its agents are trained.
        tracker: Logs the clips.
        console: Says what is filmed.
        check: Raises if the command is to stop.
    """
    from leap_rl.compute.determinism import configure_torch
    from leap_rl.training.rounds.agents import agents_of

    state = folder.read_state(0)["evaluation"]
    agents = agents_of(state)
    configure_torch()
    for slot, (initialization, run, game, seed) in enumerate(agents):
        agent = folder.agent(slot, game)
        if run > 0 or seed > 0 or not agent.exists():  # a dropped task leaves no agent
            continue
        clip = clip_path(folder, initialization, game)
        if not clip.exists():
            console.message(f"filming {game} from {initialization}: {shown(clip)}")
            title = f"{game}, {initialization}"
            _film(agent, game, clip, root=folder.path, config=config, title=title, check=check)
        tracker.log_file(f"clip/{initialization}/{game}", clip)


def clip_path(folder: RunFolder, initialization: str, game: str) -> Path:
    """Return the file of an evaluation's clip."""
    return folder.path / "clips" / f"{file_name(game)}_{file_name(initialization)}.mp4"


def _film(
    agent: Path,
    game: str,
    clip: Path,
    *,
    root: Path,
    config: EvaluateConfig,
    title: str,
    check: Callable[[], None],
) -> None:
    from leap_rl.envs.atari.camera import frames_per_s
    from leap_rl.video.agent_file import read_player
    from leap_rl.video.playing import play
    from leap_rl.video.recording import film

    settings = config.task.atari.settings
    rate = frames_per_s(game)
    player = read_player(agent, game, agent=config.agent, settings=settings, seed=config.seed)
    pictures = play(
        game,
        player,
        settings=settings,
        seed=config.seed,
        episodes=1,
        max_agent_steps=LONGEST_S * rate // settings.frameskip,
    )
    film(
        pictures,
        clip,
        title=title,
        episodes=1,
        scale=SCALE,
        frames_per_s=rate,
        tell=lambda picture: check(),
        root=root,
    )
