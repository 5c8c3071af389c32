"""Run a config twice, once undisturbed and once with processes killed, and compare the two.

    .venv/bin/python -m benchmarks.chaos --config chaos --kills 20 --seed 1

Trainers, server, driver, and Ray's GCS and raylet are killed with SIGKILL at moments drawn from the
seed: while work is handed out, in mid-task, while sums are sent, at the outer step, between the
halves of a checkpoint, while resuming after another kill. Ends with "same bits" and status 0 if
checkpoints, rows and episodes are equal and each planned kill has happened; otherwise says what
differs, with status 1.
Other options are those of `leap-rl train`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.differences import differences
from benchmarks.harness.experiment import EXIT_FAILED, EXIT_USAGE, positive
from benchmarks.harness.faults import draw_faults, fired_of, visits_of, write_plan
from leap_rl.core.errors import RunFailedError
from leap_rl.core.parsing import TRUST_IMPORTS
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.faults import PLAN_VARIABLE, FaultInjector, FaultPoint

LOST = re.compile(r"leap-rl: Ray's .+ is gone; stopped; continue with: .+ resume ")
"""The line of a driver whose cluster is gone."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Results of an undisturbed run and of one with injected failures."""

    fired: list[tuple[FaultPoint, int]]
    """Fault point and visit of each failure that fired, in order."""
    missed: list[tuple[str, int]]
    """Planned failures that did not fire."""
    differences: list[str]
    """Differences between the two runs."""
    updates: int
    """Updates of the undisturbed run."""
    repeated_updates: int
    """Updates that the other run repeated after the snapshots from which it resumed."""
    undisturbed_s: float
    disturbed_s: float

    @property
    def same_bits(self) -> bool:
        """Whether every failure fired and the results are equal."""
        return not self.missed and not self.differences


def run_both(words: Sequence[str], folder: Path, *, kills: int, seed: int) -> Outcome:
    """Run both and compare them.

    Args:
        words: Options of `leap-rl train`, without `run_dir`.
        folder: Where both runs and the record of the failures go.
        kills: How many failures.
        seed: Of the draw of the failures.

    Raises:
        RunFailedError: A run ended with an error of its own.
        ValueError: The run has fewer moments to kill at than `kills`.
    """
    calm, killed = (RunFolder(folder / name) for name in ("undisturbed", "killed"))
    tell("the undisturbed run, which also counts the moments to kill at")
    counting = FaultInjector(str(folder / "visits" / "undisturbed"), {})
    undisturbed_s = run_one(words, calm, counting)
    visits = visits_of(counting)
    at = draw_faults(visits, kills=kills, seed=seed)
    faults = FaultInjector(str(folder / "visits" / "killed"), at)
    tell(f"the same run with {kills} failures")
    disturbed_s = run_one(words, killed, faults)
    fired = fired_of(faults)
    updates = visits.get(FaultPoint.TRAINER_TRAINING, 0)
    planned = [(point, number) for point, numbers in at.items() for number in numbers]
    return Outcome(
        fired=fired,
        missed=[one for one in planned if one not in fired],
        differences=differences(calm, killed),
        updates=updates,
        repeated_updates=visits_of(faults).get(FaultPoint.TRAINER_TRAINING, 0) - updates,
        undisturbed_s=undisturbed_s,
        disturbed_s=disturbed_s,
    )


def run_one(words: Sequence[str], run: RunFolder, faults: FaultInjector) -> float:
    """Resume a run until it ends, whenever its driver is killed or has lost its cluster.

    Returns the seconds it took.
    """
    log, plan = (run.path.with_suffix(suffix) for suffix in (".log", ".json"))
    write_plan(faults, plan)
    started = time.monotonic()
    command = ["train", *words, "--run_dir", str(run.path)]
    while (status := leap_rl(command, log, plan)) == -signal.SIGKILL or is_lost(status, log):
        what = "the driver was killed" if status < 0 else last_line(log)
        tell(f"{what} ({len(fired_of(faults))} failures by now); resuming")
        if run.exists():
            trust = [TRUST_IMPORTS] if TRUST_IMPORTS in words else []
            command = ["resume", str(run.path), *trust]
    if status != 0:
        raise RunFailedError(
            f"the run {run.path.name} ended with exit status {status} ({last_line(log)}); "
            f"its output is in {log}"
        )
    return time.monotonic() - started


def is_lost(status: int, log: Path) -> bool:
    """Return whether a driver has ended with the line of a lost cluster."""
    return status == EXIT_FAILED and LOST.match(last_line(log)) is not None


def last_line(log: Path) -> str:
    """Return the last line of a command's output."""
    return (log.read_text().strip().splitlines() or [""])[-1]


def leap_rl(words: Sequence[str], log: Path, plan: Path) -> int:
    """Run a command with a plan of failures; returns its exit status."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "leap_rl", *words, "--tracking.console", "plain"],
            env={**os.environ, PLAN_VARIABLE: str(plan)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise


def report(outcome: Outcome) -> None:
    """Print what happened and what differs."""
    kills = Counter(point for point, _ in outcome.fired)
    print(f"killed {len(outcome.fired)} of {len(outcome.fired) + len(outcome.missed)}:")
    for point in FaultPoint:
        if kills[point]:
            print(f"  {kills[point]:>3} × {point}")
    print(f"undisturbed {outcome.undisturbed_s:.0f} s, with kills {outcome.disturbed_s:.0f} s")
    print(f"{outcome.updates} updates, and {outcome.repeated_updates} of them made again")
    for name, number in outcome.missed:
        print(f"did not happen: {name}, visit {number}")
    for line in outcome.differences:
        print(f"differs: {line}")


def tell(message: str) -> None:
    """Print a message on stderr."""
    print(f"chaos: {message}", file=sys.stderr, flush=True)


def options() -> argparse.ArgumentParser:
    """Return the parser of the options, those of `leap-rl train` aside."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, help="of `leap-rl train`")
    parser.add_argument(
        "--kills",
        type=positive,
        default=len(FaultPoint),
        help="failures; as many as there are fault points hit each at least once",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the runs and of the kills")
    parser.add_argument("--run_dir", type=Path, help="folder of both runs, a temporary one if none")
    return parser


def main() -> int:
    """Run the command; returns its exit status."""
    given, rest = options().parse_known_args()
    folder = given.run_dir or Path(tempfile.mkdtemp(prefix="leap_rl-chaos-"))
    words = ["--config", given.config, *rest, "--seed", str(given.seed)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"--run_dir {folder}: is not empty; choose another folder")
        outcome = run_both(words, folder.absolute(), kills=given.kills, seed=given.seed)
    except (ValueError, RunFailedError) as error:
        tell(str(error))
        return EXIT_USAGE if isinstance(error, ValueError) else EXIT_FAILED
    report(outcome)
    print("same bits" if outcome.same_bits else f"NOT the same; see {folder}", flush=True)
    if outcome.same_bits and given.run_dir is None:
        shutil.rmtree(folder)
    return 0 if outcome.same_bits else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
