"""Carries out runs: the runtime, what is shown and logged, how they end."""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leap_rl.core.errors import ClusterLostError, RunFailedError
from leap_rl.core.lines import say
from leap_rl.learners.config import AgentConfig
from leap_rl.runs.config import Config
from leap_rl.runs.display import resume_command, shown
from leap_rl.runs.header import LoadedRun, packages_here, to_mapping
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.kinds import kind_of, make_tasks
from leap_rl.runs.monitor import Monitor
from leap_rl.runs.process import supervise
from leap_rl.storage.object_store import StoreError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.console import make_console
from leap_rl.tracking.live import LiveConsole
from leap_rl.tracking.status import RunStatus
from leap_rl.tracking.tracker import open_tracker
from leap_rl.training.config import Joined, RuntimeConfig
from leap_rl.training.faults import FaultPoint, fault_injector
from leap_rl.training.interrupts import Interrupts, StopReason
from leap_rl.training.run_spec import RunSpec
from leap_rl.training.runtime.local import LocalRuntime, Runtime
from leap_rl.training.runtime.ray.environment import LOCAL, cluster_address, make_ray_runtime
from leap_rl.training.server.rounds import LeasePolicy

if TYPE_CHECKING:
    from leap_rl.evaluation.summary import Summary

GPU_SHARE = 1 / 16
"""Of a GPU, for a trainer on one: the network leaves it idle most of the time."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run's process ends."""

    status: int
    """The command's exit status."""
    summary: Summary | None = None
    """Of a complete evaluation, where this process computed it."""


def carry_out(run: LoadedRun, call: Invocation, *, resumes: bool = False) -> Outcome:
    """Carry out a run to its end, or until it is asked to stop.

    Args:
        run: The run.
        call: How the command was called.
        resumes: Whether this is not the first driver that it has.
    """
    if run.config.runtime.max_driver_restarts > 0 and not call.supervised:
        return Outcome(status=supervise(run, call))
    return _drive(run, call, resumes=resumes)


def _drive(run: LoadedRun, call: Invocation, *, resumes: bool) -> Outcome:
    """Be the run's driver."""
    config, folder = run.config, run.folder
    quiet = config.tracking.console == "quiet"
    command = resume_command(folder, config.imports)
    resume = f"stopped; continue with: {command}"
    interrupts = Interrupts(
        stop_after_s=config.runtime.stop_after_s,
        started_s=call.started_s,
        farewell=None if quiet else resume,
    )
    try:
        with interrupts, interrupts.explaining(OSError, RunFailedError):
            summary = _run_rounds(run, call, interrupts, resumes=resumes)
            return Outcome(status=0, summary=summary)
    except KeyboardInterrupt:
        pass
    except OSError as error:
        raise _with_way_out(error, folder, command) from None
    if interrupts.reason is StopReason.CLUSTER_LOST:
        raise ClusterLostError(f"{interrupts.lost}; {resume}")
    if not quiet:
        say(resume, file=sys.stderr)
    return Outcome(status=(interrupts.reason or StopReason.INTERRUPTED).value)


def _with_way_out(error: OSError, folder: RunFolder, command: str) -> Exception:
    """Return the error of a run whose files cannot be written, with what its user can do."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, StoreError | BrokenPipeError) or not (full or error.filename):
        return error
    first = "make room, and" if full else "once that is mended,"
    where = error.filename or folder.place
    return RunFailedError(f"{where}: {error.strerror}; {first} `{command}` continues")


def _run_rounds(
    run: LoadedRun, call: Invocation, interrupts: Interrupts, *, resumes: bool
) -> Summary | None:
    config, folder, kind = run.config, run.folder, kind_of(run.config)
    on_fault_point = fault_injector()
    on_fault_point(FaultPoint.DRIVER_RESUMING if resumes else FaultPoint.DRIVER_STARTING)
    first, meta = run.header.first_checkpoint, kind.meta(config)
    run_spec = RunSpec(
        run_dir=str(folder.path),
        fingerprint=run.header.fingerprint,
        method=kind.method(config),
        make_task=make_tasks(config),
        make_plan=kind.plan(config),
        stream_every_s=config.runtime.stream_every_s,
        snapshot_every_s=config.runtime.snapshot_every_s,
        lease_policy=LeasePolicy(
            lease_s=config.runtime.lease_s,
            max_attempts=config.runtime.max_attempts,
            close_after_s=meta.close_after_s if meta else None,
        ),
        keep_checkpoints=config.runtime.keep_checkpoints,
        lends_cores=config.runtime.lends_cores,
        packages=packages_here(config),
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
            rows=kind.rows_of(folder, range(first + 1, (folder.latest() or 0) + 1)),
        ) as tracker,
        LiveConsole(make_console(config.tracking.console), folder.path) as console,
    ):
        console.message(f"{config.command}: run folder {shown(folder)}")
        monitor = Monitor(run, tracker, console, call, on_fault_point=on_fault_point)

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
            _make_runtime(config, interrupts, call.joined).run(run_spec, report)
        return kind.conclude(config, folder, tracker, console, interrupts)


def _make_runtime(config: Config, interrupts: Interrupts, joined: Joined | None) -> Runtime:
    if config.runtime.kind == "local":
        return LocalRuntime(interrupts)
    options = ray_options(config.runtime, config.agent)
    return make_ray_runtime(**options, interrupts=interrupts, joined=joined)


def ray_options(runtime: RuntimeConfig, agent: AgentConfig) -> dict[str, Any]:
    """Return the arguments of `make_ray_runtime` that a run's options say."""
    gpus = runtime.gpus_per_trainer
    if gpus == "auto":
        gpus = GPU_SHARE if agent.device == "cuda" else 0.0
    return {
        "trainers": None if runtime.trainers == "auto" else runtime.trainers,
        "address": runtime.address,
        "trainer_cores": runtime.own_env_processes,
        "trainer_gpus": gpus,
        "metrics_port": runtime.metrics_port,
    }
