"""A study in its folder: carried out and reported on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from leap_rl.core.errors import ClusterLostError, RunFailedError
from leap_rl.core.lines import say
from leap_rl.core.parsing import TRUST_IMPORTS, flatten
from leap_rl.evaluation.comparison import summarize
from leap_rl.runs.display import program, quoted, shown, tell
from leap_rl.studies.arms import RANDOM
from leap_rl.studies.cells import Cell, cells_of
from leap_rl.studies.config import StudyConfig
from leap_rl.studies.execution import Execution, Failure
from leap_rl.studies.folder import StudyFolder
from leap_rl.studies.page import write_page
from leap_rl.studies.plan import refuse_slow
from leap_rl.studies.progress import Progress
from leap_rl.studies.results import of_arms, read_results
from leap_rl.studies.trainers import trainers_of
from leap_rl.training.interrupts import Interrupts, StopReason


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a study ends."""

    status: int
    """The command's exit status."""
    answer: tuple[str, ...] = ()
    """In sentences, if it came to its end."""
    busy_share: float | None = None
    """Of its trainers' time, what went to tasks; none if all had been computed before."""


def carry_out(
    folder: StudyFolder,
    study: StudyConfig,
    *,
    trusts_imports: bool = False,
    started_s: float,
) -> Outcome:
    """Carry out a study, or what is left of it, and write its page.

    Args:
        folder: Where; it may hold the study already, finished in part, or another version of it.
        study: What is asked for.
        trusts_imports: Whether modules may be imported that its options name.
        started_s: When the command started, on the monotonic clock.

    Raises:
        ValueError: The study cannot be, or the folder holds something else.
        RunFailedError: A cell failed; all others are finished.
        OSError: A file cannot be written.
    """
    folder.check()
    study = folder.as_begun(study)
    cells = cells_of(study, folder.path, trusts_imports=trusts_imports)
    if not folder.file.exists():
        refuse_slow(study, cells)
    command = command_of(folder, trusts_imports=trusts_imports)
    resume = f"stopped; continue with: {command}"
    quiet = study.tracking.console == "quiet"
    interrupts = Interrupts(
        stop_after_s=study.runtime.stop_after_s,
        started_s=started_s,
        farewell=None if quiet else resume,
    )
    try:
        with folder.lock() as check, interrupts:
            before = folder.read()
            if before is not None and not quiet:
                for line in changes(before, study, cells):
                    tell(line)
            folder.write(_with_precision(study, cells))
            failures, busy = compute(
                study,
                cells,
                interrupts,
                trusts_imports=trusts_imports,
                check=check,
                newest=lambda cell: _newest(study, cells, cell),
            )
            try:
                answer = write_page(folder, study, cells)
            except OSError:
                if not failures:  # which a full disk caused, too, and whose line has the way out
                    raise
    except KeyboardInterrupt:
        if interrupts.reason is StopReason.CLUSTER_LOST:
            raise ClusterLostError(f"{interrupts.lost}; {resume}") from None
        if not quiet:
            say(resume, file=sys.stderr)
        return Outcome(status=(interrupts.reason or StopReason.INTERRUPTED).value)
    if failures:
        first, *others = failures
        more = f" (and {len(others)} more)" if others else ""
        raise RunFailedError(
            f"{first.cell.name}: {first.reason}{more}; once that is mended, "
            f"`{command}` computes what is missing"
        )
    return Outcome(status=0, answer=answer, busy_share=busy)


def command_of(folder: StudyFolder, *, trusts_imports: bool) -> str:
    """Return the command that carries out the study of a folder."""
    command = f"{program()} study {quoted(folder.path)}"
    return f"{command} {TRUST_IMPORTS}" if trusts_imports else command


def report(
    folder: StudyFolder, study: StudyConfig, *, trusts_imports: bool = False
) -> tuple[str, ...]:
    """Write the page of what is finished; compute nothing. Return the answer in sentences.

    Raises:
        ValueError: There is no study, or its folder holds something else.
        OSError: A file cannot be written.
    """
    folder.check()
    if not folder.file.exists():
        raise ValueError(f"{shown(folder.path)}: holds no study yet; leave --report out")
    study = folder.as_begun(study)
    cells = cells_of(study, folder.path, trusts_imports=trusts_imports)
    return write_page(folder, study, cells)


def _with_precision(study: StudyConfig, cells: Sequence[Cell]) -> StudyConfig:
    """Return the study with its agents' precision, if all have one that hangs on the processor."""
    found = {cell.config.agent.precision for cell in cells}
    if study.agent.precision != "auto" or not found <= {"float32", "bfloat16"} or len(found) > 1:
        return study
    return replace(study, agent=replace(study.agent, precision=found.pop()))


def compute(
    study: StudyConfig,
    cells: Sequence[Cell],
    interrupts: Interrupts,
    *,
    trusts_imports: bool,
    check: Callable[[], None],
    newest: Callable[[Cell], Iterable[str]] = lambda cell: (),
) -> tuple[list[Failure], float | None]:
    """Carry out the cells, and tell how far it is; ``newest`` says what a finished cell shows.

    ``check`` is called twice a second: what it raises stops them.

    Returns the cells that failed, and the share of the trainers' time that went to tasks.
    """
    quiet = study.tracking.console == "quiet"
    say: Callable[[str], object] = (lambda text: None) if quiet else tell
    progress = Progress(cells=cells, tell=say)

    def on_finished(cell: Cell) -> None:
        progress.say(f"{cell.name} is finished")
        if not quiet:
            for line in newest(cell):
                say(line)

    with trainers_of(study, interrupts) as trainers:

        def on_look() -> None:
            check()
            trainers.tend(progress.done)
            progress.look()

        execution = Execution(
            cells=cells,
            processes=trainers.cells_at_a_time,
            trusts_imports=trusts_imports,
            interrupts=interrupts,
            on_look=on_look,
            on_finished=on_finished,
            on_failure=lambda failure: say(f"{failure.cell.name} failed: {failure.reason}"),
            joined=trainers.joined,
        )
        failures = execution.run()
        available_s = trainers.available_s(execution.elapsed_s)
        if not execution.working_s or not available_s:
            return failures, None
        busy = execution.working_s / available_s
        say(f"{trainers.size} trainers were busy for {busy:.1%} of their time")
        return failures, busy


def _newest(study: StudyConfig, cells: Sequence[Cell], cell: Cell) -> Iterator[str]:
    """Yield the verdict on an arm as soon as it and the baseline are finished."""
    arms = study.trained_arms if cell.arm == RANDOM else (cell.arm,)
    finished = [
        arm for arm in (RANDOM, *arms) if all(other.finished for other in cells if other.arm == arm)
    ]
    if RANDOM not in finished:
        return
    results = read_results(study, cells)
    for arm in finished[1:]:
        yield summarize(of_arms(results, (RANDOM, arm))).verdict[0]


def changes(before: StudyConfig, after: StudyConfig, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield what is kept and what is computed again of a study that was changed, a line a group."""
    old, new = _defining(before), _defining(after)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if not names:
        return
    told = ", ".join(f"{name} = {new.get(name)} (was {old.get(name)})" for name in names)
    yield f"the study was changed: {told}"
    for arm in after.spelled_arms:
        for training in (True, False):
            group = [c for c in cells if c.arm == arm and (c.members is None) == training]
            if not group:
                continue
            kept = sum(cell.folder.exists() for cell in group)
            what = "meta-training runs" if training else "evaluations"
            rest = f", {len(group) - kept} to compute" if kept < len(group) else ""
            yield f"{arm}, {what}: {kept} of {len(group)} kept{rest}"
    for arm in before.spelled_arms:
        if arm not in after.spelled_arms:
            yield f"{arm}: is asked for no more; what was computed of it stays in runs"


def _defining(study: StudyConfig) -> dict[str, object]:
    operational = ("runtime", "tracking", "processes", "question")
    options = {n: v for n, v in study.to_mapping().items() if n not in operational}
    return flatten(options, whole=("arms",))
