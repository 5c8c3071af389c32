"""How busy trainers are, on Ray: of one run, with lent cores, and of a study that shares them."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.system.config import BusyConfig
from leap_rl.bench.machine import circumstances
from leap_rl.core.parsing import to_cli_args
from leap_rl.runs.announcement import busy_share
from leap_rl.runs.header import to_mapping
from leap_rl.runs.process import Request, call
from leap_rl.storage.run_folder import RunFolder
from leap_rl.studies.config import StudyConfig, configure
from leap_rl.studies.folder import StudyFolder
from leap_rl.studies.study import carry_out
from leap_rl.tracking.metrics import Row

UNROLL = 5
UPDATES = 100
"""Of a task."""
ALONE = 4
"""Meta-steps of one run alone, at most."""


def measure(config: BusyConfig, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure one of a study's runs alone, and the study.

    Args:
        config: How many trainers, runs and meta-steps.
        progress: Called now and then with what is going on.

    Returns:
        The metrics by name, all of them plain values. Busy is trainers' work over their time: of
        the study from when each can work to the end of the last new agents, of one run from
        its second meta-step on. With lent cores it is the work of the run without them over the
        time of the one with them, so that what is lost in spreading does not count as work.
    """
    study = study_of(config)
    with tempfile.TemporaryDirectory(prefix="leap_rl-bench-") as out:
        progress("one run alone")
        alone = _train(config, study, Path(out) / "alone")
        progress("the same with lent cores")
        lent = _train(config, study, Path(out) / "lent", lends=True)
        states = [
            [RunFolder(Path(out) / name).read_state(n)["sha256"] for n in range(1, len(alone) + 2)]
            for name in ("alone", "lent")
        ]
        busy = None
        if config.runs > 0:
            progress(f"a study of {config.runs} such runs")
            busy = carry_out(
                StudyFolder(Path(out) / "study"),
                study,
                trusts_imports=True,
                started_s=time.monotonic(),
            ).busy_share
    times = [rank(index, config.trainers) for index in range(config.trainers)]
    return {
        "bench": "busy",
        "trainers": config.trainers,
        "runs": config.runs,
        "meta_steps": config.meta_steps,
        "task_s": [config.task_s, 2 * config.task_s],
        "alone_predicted": math.fsum(times) / len(times) / max(times),
        "alone": busy_share(alone),
        "lent": math.fsum(row["time/working_s"] for row in alone) / available_s(lent),
        "meta_step_s": [available_s(rows) / config.trainers / len(rows) for rows in (alone, lent)],
        "same_bits": states[0] == states[1],
        "study": busy,
        **circumstances(),
    }


def _train(
    config: BusyConfig, study: StudyConfig, place: Path, *, lends: bool = False
) -> list[Row]:
    """Train one of the study's runs; return its rows but the first meta-step's."""
    rows: list[Row] = []
    run = study.arm("leap", trusts_imports=True)
    run = replace(run, meta=replace(run.meta, meta_steps=min(ALONE, config.meta_steps)))
    request = Request(
        action="make",
        command="train",
        place=str(place),
        config=to_mapping(run),
        options={
            "tracking.console": "quiet",
            "runtime.env_processes": "auto" if lends else 1,
        },
        trusts_imports=True,
    )
    call(request, rows.append)
    return [row for row in rows if row.get("time/busy_share")][1:]


def available_s(rows: Sequence[Row]) -> float:
    """Return trainers × wall-clock time of meta-steps."""
    return math.fsum(row["time/working_s"] / row["time/busy_share"] for row in rows)


def rank(index: int, games: int) -> float:
    """Return how long a game's tasks take, from 1 of the first to 2 of the last."""
    return 1 + index / max(1, games - 1)


def study_of(config: BusyConfig, *, updates: int = UPDATES) -> StudyConfig:
    """Return the study, whose runs have a task of each game in a meta-step."""
    step_s = config.task_s / updates / UNROLL / config.envs
    games = [
        f"benchmarks.system.sleeping:Sleep-v0@step_s={step_s * rank(index, config.trainers):.6f}"
        for index in range(config.trainers + 1)
    ]
    options = {
        "games": games[:-1],
        "held_out": games[-1:],
        "arms": ["leap"],
        "runs": max(1, config.runs),
        "agents": 1,
        "random_agents": 1,
        "agent_steps": config.envs * UNROLL * max(1, updates // 10),
        "task.num_envs": config.envs,
        "task.agent_steps": config.envs * UNROLL * updates,
        "task.unroll_length": UNROLL,
        "meta.meta_steps": config.meta_steps,
        "meta.batch_size": config.trainers,
        "runtime.kind": "ray",
        "runtime.trainers": config.trainers,
        "tracking.tensorboard": False,
    }
    return configure(to_cli_args(options), trusts_imports=True)


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table for people."""
    shortest, longest = metrics["task_s"]
    before, after = metrics["meta_step_s"]
    text = (
        f"{metrics['trainers']} trainers, as many tasks a meta-step of {shortest:g} to "
        f"{longest:g} s, {metrics['meta_steps']} meta-steps\n"
        f"{metrics['processor']}, {metrics['cores']} cores; environments sleep\n\n"
        f"  busy, of trainers × wall-clock time\n"
        f"  {metrics['alone']:>6.1%}  one run alone; {metrics['alone_predicted']:.1%} by its "
        f"tasks' times\n"
        f"  {metrics['lent']:>6.1%}  the same with runtime.env_processes = auto, to "
        f"{'the same' if metrics['same_bits'] else 'OTHER'} bits: meta-steps of {after:.1f} s "
        f"instead of {before:.1f}"
    )
    if metrics["study"] is None:
        return text
    return f"{text}\n  {metrics['study']:>6.1%}  a study of {metrics['runs']} runs, with new agents"
