"""Runs a run: its runtime, what it shows and logs, how it ends."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING

from leap_rl.app.announcement import announce
from leap_rl.app.display import program, quoted, shown
from leap_rl.app.invocation import Invocation
from leap_rl.app.monitor import Monitor, rows_of
from leap_rl.app.policies import make_plan, make_tasks
from leap_rl.app.supervise import is_supervisor, supervise
from leap_rl.config import Config, EvaluateConfig, TrainConfig, to_mapping
from leap_rl.core.errors import RunFailedError
from leap_rl.core.parsing import TRUST_IMPORTS
from leap_rl.meta.gradient_path import NoMethod
from leap_rl.storage.object_store import StoreError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.console import Console, make_console
from leap_rl.tracking.live import LiveConsole
from leap_rl.tracking.status import RunStatus
from leap_rl.tracking.tracker import Tracker, open_tracker
from leap_rl.training.faults import FaultPoint, fault_injector
from leap_rl.training.interrupts import Interrupts, StopReason
from leap_rl.training.run_spec import RunSpec
from leap_rl.training.runtime.protocol import Runtime
from leap_rl.training.runtime.ray.environment import LOCAL, cluster_address, make_ray_runtime
from leap_rl.training.server.rounds import LeasePolicy

if TYPE_CHECKING:
    from leap_rl.evaluation.summary import Summary

GPU_SHARE = 1 / 16
"""Of a GPU, for a trainer on one: the network leaves it idle most of the time."""


def run(
    config: Config,
    folder: RunFolder,
    call: Invocation,
    *,
    resumes: bool = False,
    opens: bool = False,
) -> int:
    """Run a run to its end, or until it is asked to stop; say what it came to.

    Args:
        config: The run's.
        folder: The run's.
        call: How the command was called.
        resumes: Whether this is not the first driver that it has.
        opens: Whether an evaluation's report is shown in the browser.

    Returns:
        The command's exit status.
    """
    summary = None
    if is_supervisor(config):
        status = supervise(config, folder, call)
    else:
        status, summary = _drive(config, folder, call, resumes=resumes)
    if status == 0:
        announce(folder, config, summary=summary, opens=opens)
    return status


def _drive(
    config: Config, folder: RunFolder, call: Invocation, *, resumes: bool
) -> tuple[int, Summary | None]:
    """Be the run's driver; return the exit status, and the summary of a complete evaluation."""
    quiet = config.tracking.console == "quiet"
    resume = f"stopped; continue with: {program()} resume {quoted(folder)}"
    if any(config.imports.values()):
        resume += f" {TRUST_IMPORTS}"
    interrupts = Interrupts(
        stop_after_s=config.runtime.stop_after_s,
        started_s=call.started_s,
        farewell=None if quiet else resume,
    )
    try:
        with interrupts, interrupts.explaining(OSError, RunFailedError):
            return 0, _run_rounds(config, folder, interrupts, resumes=resumes)
    except KeyboardInterrupt:
        pass
    except OSError as error:
        raise _with_way_out(error, folder) from None
    if not quiet:
        print(resume, file=sys.stderr)
    return (interrupts.reason or StopReason.INTERRUPTED).value, None


def _with_way_out(error: OSError, folder: RunFolder) -> Exception:
    """Return the error of a run whose files cannot be written, with what its user can do."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, StoreError | BrokenPipeError) or not (full or error.filename):
        return error
    resume = f"`{program()} resume {quoted(folder)}`"
    first = "make room, and" if full else "once that is mended,"
    where = error.filename or folder.place
    return RunFailedError(f"{where}: {error.strerror}; {first} {resume} continues")


def _run_rounds(
    config: Config, folder: RunFolder, interrupts: Interrupts, *, resumes: bool
) -> Summary | None:
    on_fault_point = fault_injector()
    on_fault_point(FaultPoint.DRIVER_RESUMING if resumes else FaultPoint.DRIVER_STARTING)
    stored = folder.read_config()
    origin = stored.get("origin")
    first = 0 if origin is None else origin["at"]
    meta = config.meta if isinstance(config, TrainConfig) else None
    run_spec = RunSpec(
        run_dir=str(folder.path),
        fingerprint=stored["fingerprint"],
        method=meta.build() if meta else NoMethod(),
        make_task=make_tasks(config),
        make_plan=make_plan(config),
        stream_every_s=config.runtime.stream_every_s,
        snapshot_every_s=config.runtime.snapshot_every_s,
        lease_policy=LeasePolicy(
            lease_s=config.runtime.lease_s,
            max_attempts=config.runtime.max_attempts,
            close_after_s=meta.close_after_s if meta else None,
        ),
        keep_checkpoints=config.runtime.keep_checkpoints,
        on_divergence=config.task.on_divergence,
        on_fault_point=on_fault_point,
    )
    with (
        folder.lock(),
        open_tracker(
            config.tracking,
            run_folder=folder.path,
            run_config=to_mapping(config),
            kind=config.command,
            place=shown(folder),
            rows=rows_of(config, folder, first_checkpoint=first),
        ) as tracker,
        LiveConsole(make_console(config.tracking.console), folder.path) as console,
    ):
        console.message(f"{config.command}: run folder {shown(folder)}")
        monitor = Monitor(
            config, folder, tracker, console, first_checkpoint=first, on_fault_point=on_fault_point
        )

        def report(status: RunStatus) -> None:
            folder.check()
            monitor.report(status)

        if config.runtime.kind == "ray":
            address = cluster_address(config.runtime.address)
            console.message(
                "starting Ray on this machine"
                if address == LOCAL
                else f"joining the Ray cluster at {address}"
            )
        with interrupts.explaining(OSError, RunFailedError):  # or the tracker would tell of them
            _make_runtime(config, interrupts).run(run_spec, report)
        if isinstance(config, EvaluateConfig):
            return _conclude(config, folder, tracker, console, interrupts)
    return None


def _conclude(
    config: EvaluateConfig,
    folder: RunFolder,
    tracker: Tracker,
    console: Console,
    interrupts: Interrupts,
) -> Summary:
    """Record clips of a complete evaluation, write its report, log both; return its summary."""
    from leap_rl.app.report import write_report
    from leap_rl.evaluation.comparison import read_summary

    if config.clips:
        from leap_rl.app.clips import record_clips

        record_clips(config, folder, tracker=tracker, console=console, check=interrupts.check)
    summary = read_summary(folder)
    report = write_report([folder], summary=summary)
    if config.tracking.wandb != "disabled":
        from leap_rl.app.evaluation_tables import log_outcome

        log_outcome(summary, report, tracker=tracker)
    return summary


def _make_runtime(config: Config, interrupts: Interrupts) -> Runtime:
    runtime = config.runtime
    if runtime.kind == "local":
        from leap_rl.training.runtime.local import LocalRuntime

        return LocalRuntime(interrupts)
    gpus = runtime.gpus_per_trainer
    if gpus == "auto":
        gpus = GPU_SHARE if config.agent.device == "cuda" else 0.0
    return make_ray_runtime(
        trainers=None if runtime.trainers == "auto" else runtime.trainers,
        address=runtime.address,
        trainer_cores=runtime.env_processes,
        trainer_gpus=gpus,
        metrics_port=runtime.metrics_port,
        interrupts=interrupts,
    )
