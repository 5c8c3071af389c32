"""Composes what a report says of a run's or an evaluation's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leap_rl.app.clips import clip_path
from leap_rl.app.command_line import command_of
from leap_rl.app.display import quoted
from leap_rl.app.errors import UsageError
from leap_rl.app.record import StoredRun, read_run
from leap_rl.config import EvaluateConfig, TrainConfig, flatten
from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.page import Clip, Commands, Part, Picture, Table
from leap_rl.evaluation.report_plots import evaluation_pictures, meta_run_pictures
from leap_rl.evaluation.results import Evaluation, read_evaluation
from leap_rl.evaluation.run_part import (
    SlotHistory,
    game_rows,
    history_sentence,
    run_verdict,
    slot_history,
)
from leap_rl.evaluation.summary_tables import summary_tables
from leap_rl.evaluation.verdict import notes_of, verdict_of
from leap_rl.storage.links import read_regular
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.jsonl import read_rows

MOST_CLIPS = 12
"""In a report, which holds them itself."""

LARGEST_CLIP = 8 << 20
"""Bytes; a minute of a game has less than one million."""


def part_of(folder: RunFolder, figures: Path) -> Part:
    """Return what a report says of a folder; its figures are written to ``figures``.

    Raises:
        RunFolderError: It holds no run, or a damaged one.
        UsageError: It is of a command that there is nothing to report of.
    """
    run = read_run(folder)
    if isinstance(run.config, TrainConfig):
        return _of_meta_run(folder, run, run.config, figures)
    if isinstance(run.config, EvaluateConfig):
        return _of_evaluation(folder, run, run.config, figures)
    raise UsageError(
        f"{folder.path}: is a run of leap-rl {run.config.command}, of which its metrics.jsonl says "
        "all; name a run of leap-rl train or of leap-rl evaluate"
    )


def _of_meta_run(folder: RunFolder, run: StoredRun, config: TrainConfig, figures: Path) -> Part:
    rows = read_rows(folder.path / "metrics.jsonl")
    history = slot_history(folder)
    tables = [Table(title="Games", rows=games)] if (games := game_rows(rows)) else []
    latest = folder.latest() or 0
    where = quoted(folder)
    commands = [
        *(["leap-rl resume " + where] if latest < config.meta.meta_steps else []),
        *([f"leap-rl evaluate --init {where} --seeds 10"] if latest else []),
    ]
    return Part(
        title=folder.path.name,
        subtitle=_subtitle(run, f"meta-training by {config.meta.method}"),
        verdict=[*run_verdict(rows, config.meta.meta_steps), history_sentence(history)],
        pictures=meta_run_pictures(rows, figures),
        tables=[*tables, *_background(run, history)],
        commands=[
            *([Commands(title="What to do next", lines=commands)] if commands else []),
            Commands(title="The command that makes this run", lines=[command_of(config)]),
        ],
    )


def _of_evaluation(
    folder: RunFolder, run: StoredRun, config: EvaluateConfig, figures: Path
) -> Part:
    evaluation = read_evaluation(folder)
    history = slot_history(folder)
    where = quoted(folder)
    if not evaluation.curves:
        verdict = ["No agent is finished yet: there is nothing to compare."]
        pictures: Sequence[Picture] = []
        tables: list[Table] = []
    else:
        summary = summarize(evaluation)
        verdict = [*map(verdict_of, summary.comparisons), *notes_of(summary)]
        pictures = evaluation_pictures(summary, figures)
        tables = summary_tables(summary)
    commands = [
        Commands(title="The command that makes this evaluation", lines=[command_of(config)])
    ]
    if not evaluation.complete:
        resume = Commands(title="What to do next", lines=[f"leap-rl resume {where}"])
        commands.insert(0, resume)
    of = [
        f"{name} ({', '.join(runs)})" if len(runs) > 1 else name
        for name, runs in evaluation.runs.items()
    ]
    agents = f"agents from {', '.join(of)}, {config.seeds} of each run a game"
    return Part(
        title=folder.path.name,
        subtitle=_subtitle(run, f"{agents}, {evaluation.agent_steps:,} agent steps"),
        verdict=[*verdict, history_sentence(history)],
        clips=_clips(folder, evaluation),
        pictures=pictures,
        tables=[*tables, *_background(run, history)],
        commands=commands,
    )


def _clips(folder: RunFolder, evaluation: Evaluation) -> list[Clip]:
    """Return the videos that there are, those of a game side by side; of many the first ones."""
    found = []
    for game in evaluation.games:
        for name in evaluation.initializations:
            path = clip_path(folder, name, game)
            if path.exists() and path.stat().st_size <= LARGEST_CLIP:
                found.append(Clip(title=f"{game}, from {name}", mp4=read_regular(path)))
    return found[:MOST_CLIPS]


def _subtitle(run: StoredRun, what: str) -> str:
    return f"{what}; seed {run.config.seed}; made by {run.maker}"


def _background(run: StoredRun, history: SlotHistory) -> list[Table]:
    """Return what went wrong, by what versions it was computed, and all options."""
    made_by = [dict(versions) for versions in run.record.made_by]
    tables = []
    if history.dropped:
        rows = [{"dropped task": line} for line in history.dropped]
        tables.append(Table(title="Failures", rows=rows))
    if made_by:
        tables.append(
            Table(
                title="Versions",
                rows=made_by,
                says="From the meta-step on that each row begins with.",
            )
        )
    if history.processors:
        rows_of = [
            {"processor": kind, "tasks": count} for kind, count in history.processors.items()
        ]
        tables.append(Table(title="Machines", rows=rows_of))
    options = [{"option": name, "value": _in_words(value)} for name, value in _options(run).items()]
    return [*tables, Table(title="Config", rows=options, folded=True)]


def _options(run: StoredRun) -> Mapping[str, Any]:
    return flatten({name: value for name, value in run.options.items() if name != "run_dir"})


def _in_words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)
