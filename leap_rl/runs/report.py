"""Writes the page on runs and evaluations."""

from __future__ import annotations

import shlex
import webbrowser
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from leap_rl.core.lines import say
from leap_rl.core.parsing import flatten, spelled
from leap_rl.core.regular_file import read_regular
from leap_rl.core.version import __version__
from leap_rl.evaluation.comparison import read_summary
from leap_rl.evaluation.meta_run import closed_slots, game_rows, history_sentence, run_verdict
from leap_rl.evaluation.page import Clip, Part, Table, csv_files, render
from leap_rl.evaluation.report_plots import evaluation_pictures, meta_run_pictures
from leap_rl.evaluation.results import EvaluationResults
from leap_rl.evaluation.summary import Summary
from leap_rl.evaluation.summary_tables import summary_tables
from leap_rl.meta.config import MetaConfig
from leap_rl.runs.clips import clip_path
from leap_rl.runs.config import Config, EvaluateConfig, TrainConfig
from leap_rl.runs.display import next_step, program, quoted, shown, trusting
from leap_rl.runs.header import LoadedRun, read_run, to_mapping
from leap_rl.storage.durable_files import write_atomically
from leap_rl.storage.run_folder import RunFolder

_LEAST: dict[str, dict[str, Any]] = {"evaluate": {"init": ["-"]}}
"""Required arguments per command."""

MOST_CLIPS = 12
"""Of a report, which embeds them."""

LARGEST_CLIP = 8 << 20
"""Bytes; a minute of a game has less than one million."""


def page_of(folder: RunFolder) -> Path:
    """Return the default path of a folder's page."""
    return folder.path / "report" / "index.html"


MakePart: TypeAlias = Callable[[LoadedRun, Path, Summary | None], Part]
"""Makes the report's part on a run and writes its plots to a folder; `kinds.report_part`."""


def write_report(
    folders: Sequence[RunFolder],
    out: Path | None = None,
    *,
    make_part: MakePart,
    summary: Summary | None = None,
) -> Path:
    """Write the page on runs and evaluations.

    Args:
        folders: Of runs and evaluations.
        out: The page; `page_of` the first folder unless given.
        make_part: Makes the page's part on each.
        summary: Of the first folder's evaluation, if it is known; others are computed.

    Raises:
        RunFolderError: One holds no run, a damaged one, or links.
        ValueError: One is of a command that there is nothing to report of.
        OSError: The page cannot be written.
    """
    out = out or page_of(folders[0])
    if out.is_dir():
        raise ValueError(f"out = {out}: is a folder; name a file, such as {out / 'index.html'}")
    if out.suffix not in (".html", ".htm"):
        raise ValueError(f"out = {out}: must end in .html, such as {out.with_suffix('.html')}")
    out = out.absolute()  # as the folders are
    made = f"Made by leap_rl {__version__} on {datetime.now():%Y-%m-%d at %H:%M}"
    with TemporaryDirectory(prefix="leap_rl-") as aside:
        figures = Path(aside)
        parts = [
            make_part(
                read_run(folder),
                figures / (f"{number}" if number else ""),
                None if number else summary,
            )
            for number, folder in enumerate(folders)
        ]
        files = {path.relative_to(figures): path for path in sorted(figures.rglob("*.*"))}
        contents = {out.parent / name: path.read_bytes() for name, path in files.items()}
    for number, part in enumerate(parts):
        beside = out.parent / (f"{number}" if number else "")
        contents |= {beside / name: table for name, table in csv_files(part).items()}
    contents[out] = render(parts, made=made).encode()
    within = next((folder.path for folder in folders if out.is_relative_to(folder.path)), None)
    for path, content in contents.items():
        write_atomically(path, content, root=within)
    for folder in folders:
        if out.is_relative_to(folder.path):
            whole = out.parent if out.parent != folder.path else out
            folder.publish(whole.relative_to(folder.path).as_posix())
    return out


def announce_report(page: Path, *, opens: bool = False) -> None:
    """Print the page's path; `opens` shows it in the browser."""
    say(f"  report  {shown(page)}")
    if opens and not webbrowser.open(page.absolute().as_uri()):
        say(f"          no browser was found here; open it elsewhere, or {program()} report --help")


def meta_run_part(run: LoadedRun, config: TrainConfig, figures: Path) -> Part:
    """Return the report's part on a meta-training run; write its plots to ``figures``."""
    folder = run.folder
    rows = folder.rows()
    slots = closed_slots(folder)
    games = game_rows(rows)
    latest, where = folder.latest() or 0, quoted(folder)
    next_steps = [_resume(run)] if latest < config.meta.meta_steps else []
    if latest:
        advice = next_step(config.task, config.agent, where)
        next_steps += [f"leap-rl {advice[1]}"] if advice else []
    return Part(
        title=folder.path.name,
        subtitle=_subtitle(run, f"meta-training by {config.meta.method}"),
        verdict=[*run_verdict(rows, config.meta.meta_steps), history_sentence(slots)],
        pictures=meta_run_pictures(rows, figures),
        tables=[*_table("Games", games), *_background(run, slots)],
        commands=_commands(next_steps, run),
    )


def evaluation_part(
    run: LoadedRun, config: EvaluateConfig, figures: Path, summary: Summary | None
) -> Part:
    """Return the report's part on an evaluation; write its plots to ``figures``."""
    folder = run.folder
    summary = summary or read_summary(folder)
    evaluation, slots = summary.evaluation, closed_slots(folder)
    nothing = ["No agent is finished yet: there is nothing to compare."]
    verdict = summary.verdict if evaluation.curves else nothing
    of = [
        f"{name} ({', '.join(runs)})" if len(runs) > 1 else name
        for name, runs in evaluation.runs.items()
    ]
    agents = f"agents from {', '.join(of)}, {config.seeds} of each run a game"
    if config.random_agents is not None:
        agents += f", {config.random_agents} from random starts"
    next_steps = [] if evaluation.complete else [_resume(run)]
    return Part(
        title=folder.path.name,
        subtitle=_subtitle(run, f"{agents}, {evaluation.agent_steps:,} agent steps"),
        verdict=[*verdict, history_sentence(slots)],
        clips=_clips(folder, evaluation),
        pictures=evaluation_pictures(summary, figures) if evaluation.curves else [],
        tables=[*summary_tables(summary), *_background(run, slots)],
        commands=_commands(next_steps, run),
    )


def _clips(folder: RunFolder, evaluation: EvaluationResults) -> list[Clip]:
    """Return the evaluation's first clips, those of a game side by side."""
    found = []
    for game in evaluation.games:
        for name in evaluation.initializations:
            path = clip_path(folder, name, game)
            if path.exists() and path.stat().st_size <= LARGEST_CLIP:
                found.append(Clip(title=f"{game}, from {name}", mp4=read_regular(path)))
    return found[:MOST_CLIPS]


def _subtitle(run: LoadedRun, what: str) -> str:
    return f"{what}; seed {run.config.seed}; made by {run.maker}"


def _resume(run: LoadedRun) -> str:
    return f"leap-rl resume {quoted(run.folder)}{trusting(run.config.imports)}"


def _commands(next_steps: Sequence[str], run: LoadedRun) -> dict[str, Sequence[str]]:
    """Return commands by title: what to do next, and what makes the run again."""
    commands = {"What to do next": next_steps} if next_steps else {}
    if (origin := run.header.origin) is None:
        what = "evaluation" if run.config.command == "evaluate" else "run"
        return {**commands, f"The command that makes this {what}": [command_of(run.config)]}
    fork = f"leap-rl fork {shlex.quote(origin.run)} --at {origin.at}{trusting(run.config.imports)}"
    return {**commands, "A fork, whose options are under Config": [fork]}


def _background(run: LoadedRun, slots: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return tables of failures, versions, machines and options."""
    dropped = [
        {"dropped task": f"{slot['game']} in round {slot['round']}: {slot['dropped']}"}
        for slot in slots
        if "dropped" in slot
    ]
    versions = [dict(versions) for versions in run.header.made_by]
    says = "From the meta-step on that each row begins with."
    processors = Counter(slot["processor"] for slot in slots if slot.get("processor"))
    machines = [{"processor": kind, "tasks": count} for kind, count in processors.items()]
    options = flatten({name: value for name, value in run.options.items() if name != "run_dir"})
    config = [{"option": name, "value": _in_words(value)} for name, value in options.items()]
    return [
        *_table("Failures", dropped),
        *_table("Versions", versions, says=says),
        *_table("Machines", machines),
        Table(title="Config", rows=config, folded=True),
    ]


def _table(title: str, rows: Sequence[Mapping[str, Any]], *, says: str = "") -> list[Table]:
    """Return the table, unless it is empty."""
    return [Table(title=title, rows=rows, says=says)] if rows else []


def _in_words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else _spelled(value)


def command_of(config: Config) -> str:
    """Return a command whose config is this one, without folder, tracking and runtime."""
    defaults = _defaults(type(config))
    words: list[str] = []
    for name, value in flatten(to_mapping(config)).items():
        if name.partition(".")[0] in ("run_dir", "tracking", "runtime"):
            continue
        if value != defaults.get(name):
            # Of an evaluation each is an option of its own.
            for one in value if name == "init" and isinstance(value, list) else [value]:
                words += [f"--{name}", _spelled(one)]
    return shlex.join(["leap-rl", config.command, *words]) + trusting(config.imports)


def _defaults(kind: type[Config]) -> Mapping[str, Any]:
    default = kind(**_LEAST.get(kind.command, {}))
    # `to_mapping` omits options without effect on the default's kind of tasks.
    defaults = {**flatten(asdict(default)), **flatten(to_mapping(default))}
    # Options that others resolve keep their unresolved defaults.
    return {**defaults, **flatten({"meta": asdict(MetaConfig())})}


def _spelled(value: object) -> str:
    return value if isinstance(value, str) else spelled(value)
