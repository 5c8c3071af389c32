"""``leap-rl chaos``: kill a run's processes on purpose, and see the same bits come out."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

import yaml

from leap_rl.app.creation import new_folder, resolve
from leap_rl.app.display import shown
from leap_rl.app.invocation import Invocation
from leap_rl.cli import EXIT_FAILED
from leap_rl.config import TrainConfig, to_mapping
from leap_rl.config.parsing import TRUST_IMPORTS, config_parser, parse
from leap_rl.storage.urls import is_url
from leap_rl.training.faults.points import FaultPoint


@dataclass(frozen=True)
class ChaosConfig(TrainConfig):
    """Run a config twice, once undisturbed and once with processes killed, and compare the two.

    Trainers, server and driver are killed with SIGKILL at moments drawn from the run's seed: while
    work is handed out, in mid-task, while sums are sent, at the outer step, between the halves of a
    checkpoint, while going on after another death. Ends with "same bits" and status 0 if
    checkpoints, rows and episodes are equal and each death that was drawn has happened; otherwise
    says what differs, with status 1. Takes every option of `leap-rl train`; run_dir is the folder
    of both runs.
    """

    command: ClassVar[str] = "chaos"

    kills: int = 20
    """Failures. As many as there are fault points (20) hit each at least once."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range.
        """
        super().__post_init__()
        if self.kills < 1:
            raise ValueError(f"kills = {self.kills}: must be at least 1")
        if self.runtime.kind != "ray" or self.runtime.address is not None:
            raise ValueError(
                "runtime: chaos kills processes of a cluster of its own; use runtime.kind = ray "
                "and no runtime.address"
            )


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    parser = config_parser(ChaosConfig, program="leap-rl chaos")
    config = resolve(parse(parser, ChaosConfig, argv, trusts_imports=call.trusts_imports))

    from leap_rl.chaos.experiment import Experiment

    folder = new_folder("chaos").path if config.run_dir is None else _empty(config.run_dir)
    plain = TrainConfig(**{one.name: getattr(config, one.name) for one in fields(TrainConfig)})
    options = to_mapping(plain)
    del options["run_dir"]
    (folder / "config.yaml").write_text(yaml.safe_dump(options, sort_keys=False))
    trust = [TRUST_IMPORTS] if config.task.imports else []
    experiment = Experiment(folder / "config.yaml", folder, _tell, trust)
    outcome = experiment.run(kills=config.kills, seed=config.seed)

    died = Counter(point for point, _ in outcome.fired)
    print(f"killed {len(outcome.fired)} of {outcome.ordered}:")
    for point in FaultPoint:
        if died[point]:
            print(f"  {died[point]:>3} × {point}")
    print(f"undisturbed {outcome.undisturbed_s:.0f} s, with deaths {outcome.disturbed_s:.0f} s")
    print(f"{outcome.updates} updates, and {outcome.repeated_updates} of them made again")
    for name, number in outcome.missed:
        print(f"did not happen: {name}, visit {number}")
    for line in outcome.differences:
        print(f"differs: {line}")
    print("same bits" if outcome.same_bits else f"NOT the same; see {shown(folder)}", flush=True)
    return 0 if outcome.same_bits else EXIT_FAILED


def _empty(given: str) -> Path:
    if is_url(given):
        raise ValueError(f"run_dir = {given}: chaos works on this machine alone; name a path")
    folder = Path(given)
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"run_dir = {shown(folder)}: is not empty; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


def _tell(message: str) -> None:
    print(f"chaos: {message}", file=sys.stderr, flush=True)
