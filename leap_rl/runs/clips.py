"""Records an evaluation's clips: an agent of each initialization in each game."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from leap_rl.runs.config import EvaluateConfig
from leap_rl.runs.display import shown
from leap_rl.storage.run_folder import LONGEST_NAME, RunFolder, file_name
from leap_rl.tracking.console import Console
from leap_rl.tracking.tracker import Tracker

LONGEST_S = 60
"""An episode may take half an hour of play."""
SCALE = 2


def record_clips(
    config: EvaluateConfig,
    folder: RunFolder,
    *,
    tracker: Tracker,
    console: Console,
    check: Callable[[], None],
) -> None:
    """Record the first run's first agent of each initialization in each game, and log the clips.

    An existing clip is logged again, as the driver that logged it may have died. ``check`` is
    called at each frame, and raises if the command is to stop.
    """
    from leap_rl.envs.atari.envs import frames_per_s
    from leap_rl.training.rounds.evaluation_slots import agents_of
    from leap_rl.video.playing import record_video

    settings = config.task.atari.settings
    for slot, agent in enumerate(agents_of(folder.read_state(0)["evaluation"])):
        game, name = agent.game, agent.initialization
        file = folder.agent(slot, game)
        if agent.run > 0 or agent.seed > 0 or not file.exists():  # a dropped task leaves no agent
            continue
        clip = clip_path(folder, name, game)
        if not clip.exists():
            folder.read_result(file, folder.read_state(1))  # which checks it
            console.message(f"recording {game} from {name}: {shown(clip)}")
            record_video(
                file,
                game,
                clip,
                agent=config.agent,
                settings=settings,
                seed=config.seed,
                title=f"{game}, {name}",
                scale=SCALE,
                on_frame=lambda frame: check(),
                max_agent_steps=LONGEST_S * frames_per_s(game) // settings.frameskip,
                root=folder.path,
            )
        tracker.log_file(f"clip/{name}/{game}", clip)


def clip_path(folder: RunFolder, initialization: str, game: str) -> Path:
    """Return the file of an evaluation's clip."""
    names = (file_name(name, LONGEST_NAME // 2) for name in (game, initialization))
    return folder.path / "clips" / f"{'_'.join(names)}.mp4"
