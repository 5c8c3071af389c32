"""``leap-rl play``: record a trained agent."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from leap_rl.cli import EXIT_USAGE
from leap_rl.core.lines import say
from leap_rl.core.parsing import config_parser, parse
from leap_rl.core.seeding import SEED_BITS
from leap_rl.envs.atari.games import resolve_games
from leap_rl.envs.atari.settings import AtariConfig
from leap_rl.learners.config import AgentConfig, AutoPrecision, Device
from leap_rl.runs.config import check_recordable
from leap_rl.runs.display import shown
from leap_rl.runs.header import read_run
from leap_rl.runs.invocation import Invocation
from leap_rl.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from leap_rl.video.playing import Frame


@dataclass(frozen=True)
class PlayedTask:
    """How the game is run."""

    atari: AtariConfig = field(default_factory=AtariConfig)


@dataclass(frozen=True)
class PlayedAgent:
    """What the agent acts with."""

    encoder: str = "mnih2013"
    """The encoder, as agent.encoder of `leap-rl train`."""

    encoder_arguments: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of an encoder of your own."""

    encoder_sha256: str | None = None
    """SHA-256 of the file that defines an encoder of your own."""

    precision: AutoPrecision = "auto"
    """Weights and activations within the network."""

    device: Device = "auto"
    """Where the network is computed."""


@dataclass(frozen=True)
class PlayConfig:
    """Record a trained agent: every frame of the emulator, at the game's own pace, with the score.

    AGENT is a file in RUN/agents, of a run of `leap-rl learn`. Game and agent are set as in that
    run; for a file elsewhere, as the options say.
    """

    command: ClassVar[str] = "play"

    out: str | None = None
    """The clip, an .mp4 or a .gif. None takes the agent's name, here, as an .mp4."""

    game: str | None = None
    """The game. None takes what the agent learned, as its file's name says."""

    seed: int = 0
    """Of the game and of the agent's actions."""

    episodes: int = 1
    """How many to play."""

    max_agent_steps: int | None = None
    """Stop after so many, over all episodes. None: at the end; of a .gif, after a minute."""

    greedy: bool = False
    """Take the likeliest action always; the agent learned by drawing actions."""

    scale: int | None = None
    """How often each row of the picture is repeated. None: 3, and 1 in a .gif."""

    overwrite: bool = False
    """Replace the clip if there is one."""

    task: PlayedTask = field(default_factory=PlayedTask)
    agent: PlayedAgent = field(default_factory=PlayedAgent)

    @property
    def imports(self) -> dict[str, tuple[str, ...]]:
        """The modules that are imported because an option names them, by that option."""
        return AgentConfig(**asdict(self.agent)).imports

    def __post_init__(self) -> None:
        for name, most in (("episodes", None), ("max_agent_steps", None), ("scale", 8)):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= (most or value):
                limits = "be at least 1" if most is None else f"lie in 1..{most}"
                raise ValueError(f"{name} = {value}: must {limits}")
        if not 0 <= self.seed < 2**SEED_BITS:
            raise ValueError(f"seed = {self.seed}: must be at least 0 and below 2**{SEED_BITS}")


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    parser = config_parser(PlayConfig, program="leap-rl play AGENT")
    if not argv or argv[0].startswith("-"):
        parser.print_help()
        return 0 if argv and argv[0] in ("-h", "--help") else EXIT_USAGE
    path = Path(argv[0])
    defaults, game = _of_run(path)
    config: PlayConfig = parse(
        parser, PlayConfig, argv[1:], defaults=defaults, trusts_imports=call.trusts_imports
    )
    _record(path, _resolve(config.game or game, path), config)
    return 0


def _of_run(path: Path) -> tuple[Mapping[str, Any], str | None]:
    """Return the options and the game of an agent's run; none for a file elsewhere."""
    if not path.is_file():
        raise ValueError(f"{path}: is no file; name one of the files in RUN/agents")
    folder = RunFolder(path.absolute().parent.parent)
    if path.absolute().parent.name != "agents" or not folder.exists():
        return {}, None
    config = read_run(folder).config
    check_recordable(config.task, config.agent, str(path))
    if folder.latest():
        folder.read_result(path.absolute(), folder.read_state(1))
    agent = {one.name: getattr(config.agent, one.name) for one in fields(PlayedAgent)}
    named = re.fullmatch(r"\d{3,}_(.+)", path.stem) if not config.task.mix_games else None
    defaults = {"task": {"atari": config.task.atari.resolved()}, "agent": agent}
    return defaults, named[1] if named else None


def _resolve(game: str | None, path: Path) -> str:
    if game is None:
        raise ValueError(f"game = null: say which game {path} has learned, such as --game pong")
    try:
        games = resolve_games([game])
    except ValueError as error:
        raise ValueError(str(error).replace("task.games", "game", 1)) from None
    if len(games) > 1:
        raise ValueError(f"game = {game}: must be one Atari game")
    return games[0]


def _record(path: Path, game: str, config: PlayConfig) -> None:
    """Play with a progress bar on a terminal, and write the clip."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from leap_rl.learners.hardware import check_machine, resolve
    from leap_rl.video.playing import record_video

    out, longest = _out(path, game, config)
    agent = resolve(AgentConfig(**asdict(config.agent)))
    check_machine(agent)
    before = 0  # agent steps of the episodes that are over

    def on_frame(frame: Frame) -> None:
        nonlocal before
        done = before + frame.agent_steps
        text = f"episode {frame.episode} of {config.episodes}, score {frame.score:,}"
        progress.update(bar, completed=done, description=f"{text}, agent step {done:,}")
        if frame.last:
            before = done

    with Progress(
        *(BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn()),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        bar = progress.add_task("playing", total=longest)
        ends = record_video(
            path,
            game,
            out,
            agent=agent,
            settings=config.task.atari.settings,
            seed=config.seed,
            title=game,
            scale=config.scale or (1 if out.suffix == ".gif" else 3),
            on_frame=on_frame,
            episodes=config.episodes,
            max_agent_steps=longest,
            greedy=config.greedy,
        )
    for end in ends:
        how = "" if end.last else ", cut off there"
        say(f"episode {end.episode}: score {end.score:,} in {end.agent_steps:,} agent steps{how}")
    say(f"clip: {shown(out)}")


def _out(path: Path, game: str, config: PlayConfig) -> tuple[Path, int | None]:
    """Return the clip's path, and its limit of agent steps."""
    from leap_rl.envs.atari.envs import frames_per_s
    from leap_rl.video.clip import GIF_LARGEST_SCALE, GIF_LONGEST_S, check_format

    out, longest = Path(config.out or f"{path.stem}.mp4"), config.max_agent_steps
    check_format(out)
    if out.exists() and not config.overwrite:
        raise ValueError(f"out = {out}: exists; choose another name, or say --overwrite true")
    if not out.parent.is_dir():
        raise ValueError(f"out = {out}: there is no folder {out.parent}; make it first")
    if out.suffix == ".gif":
        most = GIF_LONGEST_S * frames_per_s(game) // config.task.atari.settings.frameskip
        longest = longest or most
        if longest > most:
            raise ValueError(
                f"max_agent_steps = {longest}: a .gif holds {GIF_LONGEST_S} s, which are {most}; "
                "take so many, or write an .mp4"
            )
        if (config.scale or 1) > GIF_LARGEST_SCALE:
            raise ValueError(
                f"scale = {config.scale}: must be at most {GIF_LARGEST_SCALE} in a .gif; "
                "take that, or write an .mp4"
            )
    return out, longest
