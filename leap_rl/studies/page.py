"""A study's page, its tables as CSV, and its estimates for programs."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from leap_rl.core.parsing import flatten
from leap_rl.core.version import __version__
from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.estimates import estimates_document
from leap_rl.evaluation.page import Part, Table, csv_files, render
from leap_rl.evaluation.report_plots import evaluation_pictures
from leap_rl.evaluation.summary import Summary
from leap_rl.evaluation.summary_tables import summary_tables
from leap_rl.runs.display import quoted, shown, trusting
from leap_rl.runs.report import command_of
from leap_rl.storage.checksummed_file import CHECKSUM, checksum
from leap_rl.storage.durable_files import remove, write_atomically
from leap_rl.storage.run_folder import INITIALIZATION
from leap_rl.studies.arms import ARMS, RANDOM, mix_of
from leap_rl.studies.cells import Cell
from leap_rl.studies.choice import RULE, Choice, read_choices
from leap_rl.studies.config import StudyConfig
from leap_rl.studies.diagnosis import Diagnosis, diagnose
from leap_rl.studies.folder import StudyFolder
from leap_rl.studies.results import best_run, read_results, training_of

NOTHING = "No agents from random starts are finished yet: there is nothing to compare with."


def write_page(folder: StudyFolder, study: StudyConfig, cells: Sequence[Cell]) -> tuple[str, ...]:
    """Write index.html, a CSV of each of its tables, its figures, and estimates.json.

    Returns:
        The answer, in sentences.

    Raises:
        OSError: A file cannot be written.
    """
    choices = list(read_choices(cells))
    results = read_results(study, cells, choices)
    summary = summarize(results) if RANDOM in results.initializations else None
    contents: dict[Path, bytes] = {}
    diagnosis = None if summary is None else diagnose(cells, summary)
    answer = _sentences(study, cells, summary, diagnosis)
    best = None if summary is None else best_initialization(study, summary, cells, choices)
    with TemporaryDirectory(prefix="leap_rl-") as aside:
        part = Part(
            title=study.question,
            subtitle=_subtitle(study),
            verdict=answer,
            pictures=[] if summary is None else evaluation_pictures(summary, Path(aside)),
            tables=[
                _costs(study, cells),
                *([] if summary is None else summary_tables(summary)),
                *([] if diagnosis is None else diagnosis.tables),
                *_chosen(choices),
                _members(study),
                _cells(folder, cells),
                _options(study),
            ],
            commands=_commands(folder, cells, best),
        )
        for path in sorted(Path(aside).glob("*.*")):
            contents[folder.path / "figures" / path.name] = path.read_bytes()
    contents |= {folder.path / name: table for name, table in csv_files(part).items()}
    document = {
        **({} if summary is None else estimates_document(summary, question=study.question)),
        "answer": answer,
        "best_start": None if best is None else best[0].relative_to(folder.path).as_posix(),
        "best_start_mix": None if best is None else best[1],
    }
    document["files"] = sorted(path.relative_to(folder.path).as_posix() for path in contents)
    document[CHECKSUM] = checksum(document)
    text = json.dumps(document, indent=1, allow_nan=False)
    contents[folder.estimates] = f"{text}\n".encode()
    made = f"Made by leap_rl {__version__} on {datetime.now():%Y-%m-%d at %H:%M}"
    contents[folder.page] = render([part], made=made).encode()  # last: it shows all the others
    before = folder.files_of_page()
    for path, content in contents.items():
        write_atomically(path, content, root=folder.path)
    for path in before - contents.keys():  # of arms or members that are gone
        with suppress(OSError):
            remove(path, root=folder.path)
    return tuple(answer)


def _sentences(
    study: StudyConfig,
    cells: Sequence[Cell],
    summary: Summary | None,
    diagnosis: Diagnosis | None,
) -> list[str]:
    """Return the answer, and what limits it."""
    answer = [NOTHING] if summary is None else list(summary.verdict)
    answer += diagnosis.sentences if diagnosis is not None else []
    if study.quick:
        answer.insert(
            1,
            f"This is a quick study of {_runs(study)} an arm, of {study.meta.meta_steps} "
            f"meta-steps, and {study.agents} new agents each, on small budgets: it proves little. "
            "The same without --quick decides.",
        )
    unfinished = sum(not cell.finished for cell in cells)
    if unfinished:
        answer.append(f"{unfinished} of {len(cells)} cells are not finished yet.")
    return answer


def _subtitle(study: StudyConfig) -> str:
    return (
        f"{len(study.members)} members to learn from, {len(study.held_out_members)} held out; "
        f"{_runs(study)} an arm, {study.agents} new agents a run, "
        f"{study.baseline_agents} from random starts; "
        f"{study.new_agents_task().agent_steps:,} agent steps each"
    )


def _runs(study: StudyConfig) -> str:
    return f"{study.runs} meta-training run{'s' * (study.runs > 1)}"


def _costs(study: StudyConfig, cells: Sequence[Cell]) -> Table:
    """Return what each arm's training takes."""
    trained = training_of(cells)
    rows = []
    for name, own in study.spelled_arms.items():
        cost = trained[name].agent_steps if name in trained else 0.0
        says = ARMS[name].says if name in ARMS else "nothing is trained"
        if name not in (*ARMS, RANDOM):
            says = "an arm of this study"
        told = ", ".join(f"{option} = {value}" for option, value in own.items())
        rows.append(
            {
                "arm": name,
                "what it is": f"{says}; {told}" if told else says,
                "agent steps of a meta-training run": f"{cost:,.0f}",
                "runs": str(study.runs if name in trained else 0),
            }
        )
    return Table(
        title="Arms and what they cost",
        rows=rows,
        says="All arms that are trained learn from the same number of agent steps.",
    )


def _chosen(choices: Sequence[Choice]) -> Iterator[Table]:
    """Yield which starts new agents chose, and what the others cost them; nothing without any."""
    groups: dict[tuple[str, str], list[Choice]] = {}
    for each in choices:
        groups.setdefault((each.curve.initialization, each.curve.game), []).append(each)
    rows = [
        {
            "arm": arm,
            "new member": game,
            "chosen": ", ".join(
                f"{member} by {agents}"
                for member, agents in Counter(each.member for each in group).most_common()
            ),
            "agent steps charged, mean": f"{fmean(each.charged for each in group):,.0f}",
        }
        for (arm, game), group in groups.items()
    ]
    if rows:
        yield Table(title="Starts that new agents chose", rows=rows, says=RULE, folded=True)


def _members(study: StudyConfig) -> Table:
    rows = [
        {
            "member": name,
            "learned from": "yes" if name in study.members else "no",
            "learned by new agents": "yes" if name in study.evaluated else "no",
        }
        for name in (*study.members, *study.held_out_members)
    ]
    return Table(title="Members", rows=rows)


def _cells(folder: StudyFolder, cells: Sequence[Cell]) -> Table:
    rows = [
        {
            "folder": cell.path.relative_to(folder.path).as_posix(),
            "agent steps": f"{cell.agent_steps:,}",
            "finished": "yes" if cell.finished else "no",
        }
        for cell in cells
    ]
    return Table(title="Cells", rows=rows, says="Each is an ordinary run.", folded=True)


def _options(study: StudyConfig) -> Table:
    options = flatten(study.to_mapping(), whole=("arms",))
    rows = [{"option": name, "value": _in_words(value)} for name, value in options.items()]
    return Table(title="Config", rows=rows, folded=True)


def _in_words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _commands(
    folder: StudyFolder, cells: Sequence[Cell], best: tuple[Path, float | None] | None
) -> Mapping[str, Sequence[str]]:
    imports = {name: of for cell in cells for name, of in cell.config.imports.items() if of}
    study = f"leap-rl study {quoted(folder.path)}{trusting(imports)}"
    found: dict[str, list[str]] = {"This study": [study]}
    if best is not None:
        path, mix = best
        taken = "" if mix is None else f", which new agents took as --init exported@mix={mix}"
        start = shlex.quote(shown(path))
        found[f"The best start{taken}"] = [f"leap-rl export {start} --out exported"]
    trained = {(cell.arm, cell.alone): cell for cell in reversed(cells) if cell.members is None}
    if trained:
        found["The first run of each arm, by itself"] = [
            command_of(cell.config) for cell in trained.values()
        ]
    return found


def best_initialization(
    study: StudyConfig, summary: Summary, cells: Sequence[Cell], choices: Sequence[Choice]
) -> tuple[Path, float | None] | None:
    """Return the file of the initialization to start from, see `best_run`, and the arm's mix.

    Of an arm whose agents choose it is the start that most of them chose.
    """
    best = best_run(summary)
    if best is None:
        return None
    chosen = Counter(
        each.member
        for each in choices
        if (each.curve.initialization, f"{best[0]}-{each.curve.run}") == best
        and not each.curve.restarted
    )
    alone = chosen.most_common(1)[0][0] if chosen else None
    cell = next(
        c.after
        for c in cells
        if c.after and (c.arm, f"{c.arm}-{c.run}") == best and c.alone == alone
    )
    mix = mix_of(best[0], study.spelled_arms[best[0]])
    return cell.folder.checkpoint(cell.rounds) / INITIALIZATION, mix
