"""A run, and the same run with injected failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leap_rl.chaos.compare import differences
from leap_rl.chaos.draw import draw_faults
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.errors import RunFailedError
from leap_rl.training.faults.injection import PLAN_VARIABLE, FaultInjector
from leap_rl.training.faults.points import FaultPoint

Tell = Callable[[str], None]


@dataclass(kw_only=True)
class Outcome:
    """What came of it."""

    ordered: int
    """Planned failures."""
    fired: list[tuple[FaultPoint, int]] = field(default_factory=list)
    """Fault point and visit of each failure that fired, in their order."""
    missed: list[tuple[str, int]] = field(default_factory=list)
    """Planned failures that did not fire."""
    differences: list[str] = field(default_factory=list)
    """Between the two runs."""
    updates: int = 0
    """Of the undisturbed run."""
    repeated_updates: int = 0
    """What the other run made more of: those since the snapshots that it went on from."""
    undisturbed_s: float = 0.0
    disturbed_s: float = 0.0

    @property
    def same_bits(self) -> bool:
        """Whether every failure fired and the results are equal."""
        return not self.missed and not self.differences


class Experiment:
    """Runs a config twice, without failures and with them.

    Args:
        config: A config of `leap-rl train`, without `run_dir`.
        folder: Where both runs and the record of the failures go.
        tell: Called with a message now and then.
        words: More for the command line of each process.
    """

    def __init__(self, config: Path, folder: Path, tell: Tell, words: Sequence[str] = ()) -> None:
        self._words = tuple(words)
        self._config = config
        self._folder = folder
        self._tell = tell

    def run(self, *, kills: int, seed: int) -> Outcome:
        """Run both and compare them.

        Raises:
            RunFailedError: A run ended with an error of its own.
        """
        outcome = Outcome(ordered=kills)
        calm, killed = (RunFolder(self._folder / name) for name in ("undisturbed", "killed"))
        self._tell("the undisturbed run, which also counts the moments to die at")
        counting = FaultInjector(str(self._folder / "visits" / "undisturbed"), {})
        outcome.undisturbed_s = self._run(calm, counting, self._folder / "count.json")
        at = draw_faults(counting.visits(), kills=kills, seed=seed)
        faults = FaultInjector(str(self._folder / "visits" / "killed"), at)
        self._tell(f"the same run with {kills} failures")
        outcome.disturbed_s = self._run(killed, faults, self._folder / "deaths.json")
        outcome.fired = faults.fired()
        outcome.updates = counting.visits().get(FaultPoint.TRAINER_TRAINING, 0)
        made = faults.visits().get(FaultPoint.TRAINER_TRAINING, 0)
        outcome.repeated_updates = made - outcome.updates
        ordered = [(point, number) for point, numbers in at.items() for number in numbers]
        outcome.missed = [one for one in ordered if one not in outcome.fired]
        outcome.differences = differences(calm, killed)
        return outcome

    def _run(self, run: RunFolder, faults: FaultInjector, plan: Path) -> float:
        """Run a run to its end, however often its driver dies; returns the seconds it took."""
        faults.write(plan)
        started = time.monotonic()
        words = ["train", "--config", str(self._config), "--run_dir", str(run.path)]
        words += self._words
        while (status := self._leap_rl(words, run, plan)) == -signal.SIGKILL:
            fired = len(faults.fired())
            self._tell(f"the driver was killed ({fired} failures by now); going on by resume")
            if run.exists():
                words = ["resume", str(run.path), *self._words]
        if status != 0:
            raise RunFailedError(
                f"the run {run.path.name} ended with exit status {status}; "
                f"its output is in {self._log(run)}"
            )
        return time.monotonic() - started

    def _leap_rl(self, words: Sequence[str], run: RunFolder, plan: Path) -> int:
        environment = {**os.environ, PLAN_VARIABLE: str(plan)}
        with open(self._log(run), "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "leap_rl", *words, "--tracking.console", "plain"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                return process.wait()
            except BaseException:
                process.terminate()
                process.wait()
                raise

    def _log(self, run: RunFolder) -> Path:
        return self._folder / f"{run.path.name}.log"
