"""``leap-rl verify``: read every file of a run and say what is wrong. It repairs nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from safetensors import SafetensorError
from safetensors.numpy import load

from leap_rl.cli import EXIT_FAILED, command_parser
from leap_rl.core.lines import say
from leap_rl.core.regular_file import read_regular
from leap_rl.runs.display import shown
from leap_rl.runs.header import LoadedRun, read_run
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.kinds import kind_of
from leap_rl.storage.checksummed_file import ChecksumError, decode_arrays
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.open_run import open_run
from leap_rl.storage.run_folder import SEALED, RunFolder
from leap_rl.storage.safe_open import files_below
from leap_rl.studies.folder import StudyFolder
from leap_rl.tracking.jsonl import read_rows
from leap_rl.training.rounds.rows import read_episodes

States: TypeAlias = dict[int, dict[str, Any]]
"""Of the whole checkpoints, by number."""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status: 0 where all is well, 1 where something is wrong."""
    parser = command_parser(
        "verify",
        "Read every file of the run or the study in the folder RUN: sums, fingerprints, the chain "
        "of checkpoints, rows, curves, agents. Print a line for each error, and change nothing.",
    )
    parser.add_argument(
        "run", metavar="RUN", help="the run's folder, or its URL in an object store"
    )
    folder = open_run(parser.parse_args(argv).run)
    holder = folder.worker()
    if holder is not None:
        say(f"{shown(folder)}: {holder} works on it; what it writes meanwhile may be reported")
    found = 0
    for found, problem in enumerate(problems(folder), start=1):  # noqa: B007
        say(problem)
    files = sum(1 for _ in files_below(folder.path))
    verdicts = {0: "nothing is wrong", 1: "1 thing is wrong"}
    say(f"{shown(folder)}: {files} files, {verdicts.get(found, f'{found} things are wrong')}")
    return EXIT_FAILED if found else 0


def problems(folder: RunFolder) -> Iterator[str]:
    """Yield what is wrong with a run or a study, a line each, with the file's name."""
    study = StudyFolder(folder.path)
    if folder.url is None and study.file.exists() and not folder.exists():
        yield from _study(study)
    else:
        yield from _run(folder)


def _run(folder: RunFolder) -> Iterator[str]:
    try:
        run = read_run(folder)
    except ValueError as error:
        yield str(error)
        return
    states: States = {}
    yield from _checkpoints(folder, run, states)
    yield from _rows(folder, run, states)
    yield from _sealed_files(folder, run, states)
    yield from _results(folder, states)
    for path in sorted(path for path in files_below(folder.path) if path.suffix == ".damaged"):
        yield f"{path}: was set aside as damaged; what it held was computed again"


def _study(study: StudyFolder) -> Iterator[str]:
    """Check a study's own files and its cells; its page and tables are made from them."""
    yield from study.links()
    for read in (study.load, *([study.read_estimates] if study.estimates.exists() else [])):
        try:
            read()
        except ValueError as error:
            yield str(error)
    cells = study.path / "runs"
    for cell in sorted(cells.iterdir() if cells.is_dir() and not cells.is_symlink() else ()):
        if not cell.is_symlink():
            yield from _run(RunFolder(cell))  # a study within a study is none of it


def _checkpoints(folder: RunFolder, run: LoadedRun, states: States) -> Iterator[str]:
    """Check the checkpoints and that none is missing; note the states that are whole."""
    try:
        latest, best = folder.latest(), folder.best()
    except RunFolderError as error:
        yield str(error)
        latest = best = None
    there = folder.checkpoints()
    first = run.header.first_checkpoint
    for number in range(first, max([first, *there]) + 1):
        try:
            states[number] = folder.read_state(number)
            if not folder.is_thinned_out(number):
                folder.read_checkpoint(number)
            # Evaluations of random starts alone have no parameters.
            elif number in (first, latest, best) and states[number]["sha256"]:
                yield f"{folder.checkpoint(number)}: its parameters are missing"
            if states[number].get("fingerprint", run.header.fingerprint) != run.header.fingerprint:
                yield f"{folder.checkpoint(number)}: belongs to another run"
        except RunFolderError as error:
            yield str(error)
    pointers = folder.path / "checkpoints"
    if latest is None and not (pointers / "latest").exists():
        yield f"{pointers / 'latest'}: is missing"
    elif latest is not None and [latest] != there[-1:]:
        yield f"{pointers / 'latest'}: is {latest}, and the newest checkpoint is {there[-1:]}"
    if best is not None and best not in there:
        yield f"{pointers / 'best'}: is {best}, and there is no such checkpoint"


def _rows(folder: RunFolder, run: LoadedRun, states: States) -> Iterator[str]:
    """Compare metrics.jsonl with the rows of the checkpoints."""
    path = folder.path / "metrics.jsonl"
    try:
        rows = read_rows(path)
    except (OSError, ValueError) as error:
        yield str(error)
        return
    if not kind_of(run.config).row_per_round:
        recorded = [row["values"] for state in states.values() for row in state["rows"]]
        if len(states) > 1 and rows != recorded[: len(rows)]:
            yield f"{path}: has other rows than the checkpoint's state.json"
        return
    logged = {row.get("meta_step"): row for row in rows}
    before = 0
    for number, state in states.items():
        where = folder.checkpoint(number) / "state.json"
        if not isinstance(state.get("agent_steps"), int) or state["agent_steps"] < before:
            yield f"{where}: agent_steps = {state.get('agent_steps')}, after {before}"
            continue
        before = state["agent_steps"]
        for row in state["rows"]:
            if row["values"].get("meta_step") != number - 1:
                yield f"{where}: has the row of meta-step {row['values'].get('meta_step')}"
            elif logged.get(number - 1, row["values"]) != row["values"]:
                yield f"{path}: its row of meta-step {number - 1} is not that of {where}"
            elif number - 1 not in logged and any((step or 0) >= number for step in logged):
                yield (
                    f"{path}: lacks the row of meta-step {number - 1}; delete the file, and a "
                    "resume writes it again"
                )
    if len(logged) != len(rows):
        yield f"{path}: has {len(rows) - len(logged)} rows twice"


def _sealed_files(folder: RunFolder, run: LoadedRun, states: States) -> Iterator[str]:
    """Check the files of open slots and the agents that continue from round to round."""
    slots = (folder.path / "slots").glob("[0-9]*/*")
    carried = (folder.path / "carried_over").glob("[0-9]*/*.safetensors")
    names = (".lease", ".snapshot", ".safetensors")
    for path in sorted(chain(carried, (path for path in slots if path.suffix in names))):
        try:
            _, header = decode_arrays(read_regular(path))
        except (OSError, ChecksumError, ValueError) as error:
            yield f"{path}: {getattr(error, 'strerror', None) or error}"
            continue
        if not isinstance(header, dict) or header.get("fingerprint") != run.header.fingerprint:
            yield f"{path}: belongs to another run"
    newest = states.get(max(states, default=0), {})
    for game, number in newest.get("carried_over", {}).items():
        if not folder.carried_agent(number, game).exists():
            yield f"{folder.carried_agent(number, game)}: is missing"


def _results(folder: RunFolder, states: States) -> Iterator[str]:
    """Check curves and agents, by the sums that the checkpoints have of them, and event files."""
    sums = {
        folder.path / name: digest
        for state in states.values()
        for name, digest in state.get(SEALED, {}).items()
    }
    expected = {folder.curves(n - 1) for n, state in states.items() if state.get("slots")}
    agents = set((folder.path / "agents").glob("*.safetensors")) | (sums.keys() - expected)
    curves = expected | set((folder.path / "curves").glob("*.parquet"))
    yield from _unreadable(curves, read_episodes, sums)
    yield from _unreadable(agents - curves, load, sums)
    if events := list((folder.path / "tensorboard").glob("events.out.tfevents.*")):
        from leap_rl.tracking.tensorboard import check_events

        yield from _unreadable(events, check_events, {})


def _unreadable(
    paths: Iterable[Path], read: Callable[[bytes], object], sums: Mapping[Path, str]
) -> Iterator[str]:
    for path in sorted(paths):
        try:
            data = read_regular(path)
            if path in sums and hashlib.sha256(data).hexdigest() != sums[path]:
                raise ValueError("is damaged (its SHA-256 is not the one recorded)")
            read(data)
        except (OSError, ValueError, SafetensorError, KeyError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            yield f"{path}: {' '.join(reason.split())[:200]}"
