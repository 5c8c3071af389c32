"""Makes runs and carries them out: what train, resume and learn have in common."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from leap_rl import cli
from leap_rl.cli import UsageError
from leap_rl.cli.initializations import read_theta0
from leap_rl.cli.monitor import Monitor, rows_of
from leap_rl.cli.policies import make_learning, make_meta_training, make_policy, make_tasks
from leap_rl.cli.record import Record, computes_here, versions_here
from leap_rl.config import (
    Config,
    EvaluateConfig,
    LearnConfig,
    TrainConfig,
    fingerprint,
    init_of,
    to_mapping,
)
from leap_rl.meta.gradient_path import NoMethod
from leap_rl.seeding import Purpose, derive_seed
from leap_rl.storage.durable_files import make_folder, sync_folder
from leap_rl.storage.object_store import StoreError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.run_folders import run_folder
from leap_rl.storage.urls import redacted
from leap_rl.tasks.factory import ConfiguredTasks
from leap_rl.tracking.console import make_console
from leap_rl.tracking.live import LiveConsole
from leap_rl.tracking.sink import open_tracker
from leap_rl.tracking.wandb_folder import note_sources
from leap_rl.training.errors import RunFailedError
from leap_rl.training.faults.faults import ordered_deaths
from leap_rl.training.faults.phases import Phase
from leap_rl.training.interrupts import Interrupts, StopReason
from leap_rl.training.messages import ServerStatus
from leap_rl.training.runtime.job import Job, Runtime
from leap_rl.training.runtime.ray.environment import LOCAL, cluster_address, make_ray_runtime
from leap_rl.training.server.open_round import Patience

C = TypeVar("C", bound=Config)
R = TypeVar("R", bound=TrainConfig | LearnConfig)

GPU_SHARE = 1 / 16
"""Of a GPU, for a trainer on one: the network leaves it idle most of the time."""


def create_run(config: R) -> tuple[RunFolder, R]:
    """Make a run's folder: its first checkpoint and its config.

    Returns:
        The folder, and the config as it is kept: without the secrets of a URL.

    Raises:
        UsageError: The folder holds a run already or cannot be written, or the given
            initialization does not fit.
    """
    # What can be wrong with the config is found before anything is written.
    folder = asked_folder(config.run_dir)
    tasks = make_tasks(config)
    theta0, init_sha256 = _initialization(config, tasks)
    given = init_of(config)[1]
    config = _without_secrets(config)
    record = Record(
        fingerprint=fingerprint(config, init_sha256),
        init_sha256=init_sha256,
        made_by=(versions_here(config, meta_step=0),),
    )
    folder = folder or new_folder(config.command)
    policy = (
        make_meta_training(config) if isinstance(config, TrainConfig) else make_learning(config)
    )
    write_first = partial(policy.write_first_checkpoint, folder, theta0)
    fill_folder(folder, config, record, write_first)
    note_sources(folder.path, [given])
    return folder, config


def _without_secrets(config: R) -> R:
    """Return the config with what it says of a URL that may be kept: a query is no part of it."""
    if isinstance(config, LearnConfig):
        return replace(config, init=redacted(config.init))
    return replace(config, meta=replace(config.meta, init=redacted(config.meta.init)))


def asked_folder(run_dir: str | None) -> RunFolder | None:
    """Return the folder that the option `run_dir` names, if any.

    Raises:
        UsageError: It is a URL that cannot be, or of a store that cannot be reached.
    """
    try:
        return None if run_dir is None else run_folder(run_dir)
    except (ValueError, StoreError) as error:
        raise UsageError(f"run_dir = {error}") from None


def fill_folder(
    folder: RunFolder, config: Config, record: Record, write_first: Callable[[], None]
) -> None:
    """Write a new run's first checkpoint, by ``write_first``, and its config.

    Raises:
        UsageError: The folder holds a run already or cannot be written.
    """
    try:
        with folder.lock():
            if folder.exists():
                raise UsageError(
                    f"run_dir = {shown(folder)}: holds a run already; go on with it by "
                    f"`{program()} resume {shown(folder)}`, or choose another folder"
                )
            write_first()
            record.write(folder, config)  # last: a folder with a config is a run
    except OSError as error:
        reason = f"{folder.place}: cannot be written to ({error.strerror})"
        if isinstance(error, StoreError):  # which says it all
            reason = str(error)
        raise UsageError(f"run_dir = {reason}") from None


def settle(config: C) -> C:
    """Return the config with each `auto` that says what is computed replaced by what is here.

    Raises:
        ValueError: This machine lacks what the config asks for, and is to compute it; or the
            drawings or environments that it names are not there.
    """
    config = _settle_machine(replace(config, task=config.task.family.settle(config.task)))
    if isinstance(config, EvaluateConfig) and config.clips:
        from leap_rl.film.clip import check_video

        check_video("clips = true")
    if not isinstance(config, TrainConfig) or config.validation.every_meta_steps is None:
        return config
    try:
        judging = config.validation.of(config.task)
        games = judging.family.settle(judging).resolved_games
    except ValueError as error:
        raise ValueError(str(error).replace("task.games", "validation.games")) from None
    return replace(config, validation=replace(config.validation, games=list(games)))


def _settle_machine(config: C) -> C:
    """Return the config with what agents compute with; refuse a machine that cannot."""
    family = config.task.family
    config = replace(config, agent=family.settle_agent(make_tasks(config)))
    if computes_here(config):
        family.check_processor(make_tasks(config))  # otherwise each trainer does so on its own
    return config


def carry_out(config: Config, folder: RunFolder, *, resumes: bool = False) -> int:
    """Run a run to its end, or until it is asked to stop.

    Args:
        config: The run's.
        folder: The run's.
        resumes: Whether this is not the first driver that it has.

    Returns:
        The command's exit status.
    """
    from leap_rl.cli.supervise import is_supervisor, supervise

    if is_supervisor(config):
        return supervise(config, folder)
    quiet = config.tracking.console == "quiet"
    go_on = f"stopped; go on with: {program()} resume {shown(folder)}"
    if config.task.imports:
        go_on += f" {cli.TRUST_IMPORTS}"
    interrupts = Interrupts(
        stop_after_s=config.runtime.stop_after_s,
        started_s=cli.started_s,
        farewell=None if quiet else go_on,
    )
    try:
        with interrupts, interrupts.explaining(OSError, RunFailedError):
            _run(config, folder, interrupts, resumes=resumes)
            return 0
    except KeyboardInterrupt:
        pass
    except OSError as error:
        raise _with_way_out(error, folder) from None
    if not quiet:
        print(go_on, file=sys.stderr)
    return (interrupts.reason or StopReason.INTERRUPTED).value


def _with_way_out(error: OSError, folder: RunFolder) -> Exception:
    """Return the error of a run whose files cannot be written, with what its user can do."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, StoreError | BrokenPipeError) or not (full or error.filename):
        return error
    resume = f"`{program()} resume {shown(folder)}`"
    return RunFailedError(
        f"{error.filename or folder.place}: {error.strerror}; "
        + (
            f"make room, and {resume} continues"
            if full
            else f"once that is mended, {resume} continues"
        )
    )


def _run(config: Config, folder: RunFolder, interrupts: Interrupts, *, resumes: bool) -> None:
    on_phase = ordered_deaths()
    on_phase(Phase.DRIVER_RESUMING if resumes else Phase.DRIVER_STARTING)
    stored = folder.read_config()
    origin = stored.get("origin")
    first = 0 if origin is None else origin["at"]
    close_after_s = config.meta.close_after_s if isinstance(config, TrainConfig) else None
    job = Job(
        run_dir=str(folder.path),
        fingerprint=stored["fingerprint"],
        method=config.meta.build() if isinstance(config, TrainConfig) else NoMethod(),
        make_task=make_tasks(config),
        make_policy=make_policy(config),
        stream_every_s=config.runtime.stream_every_s,
        snapshot_every_s=config.runtime.snapshot_every_s,
        patience=Patience(
            lease_s=config.runtime.lease_s,
            max_attempts=config.runtime.max_attempts,
            close_after_s=close_after_s,
        ),
        keep_checkpoints=config.runtime.keep_checkpoints,
        on_divergence=config.task.on_divergence,
        on_phase=on_phase,
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
            config, folder, tracker, console, first_checkpoint=first, on_phase=on_phase
        )

        def report(status: ServerStatus) -> None:
            folder.check()
            monitor.report(status)

        if config.runtime.kind == "ray":
            console.message(_ray_message(config.runtime.address))
        with interrupts.explaining(OSError, RunFailedError):  # or the tracker would tell of them
            _make_runtime(config, interrupts).run(job, report)
        if isinstance(config, EvaluateConfig) and config.clips:
            from leap_rl.cli.clips import film_agents

            film_agents(config, folder, tracker=tracker, console=console, check=interrupts.check)
        if isinstance(config, EvaluateConfig) and config.tracking.wandb != "disabled":
            from leap_rl.cli.outcome import log_outcome

            log_outcome(folder, tracker=tracker)


def _ray_message(address: str | None) -> str:
    address = cluster_address(address)
    own = address == LOCAL
    return "starting Ray on this machine" if own else f"joining the Ray cluster at {address}"


def program() -> str:
    """Return how the user can call this program again from where he is."""
    called = Path(sys.argv[0])
    if called.name != "leap-rl":
        return "python -m leap_rl"
    on_path = any(
        (Path(folder) / "leap-rl").exists() for folder in os.environ.get("PATH", "").split(":")
    )
    return "leap-rl" if on_path else shown(called)


def shown(where: Path | RunFolder) -> str:
    """Return a path as the user would write it from where he is, or where a run lives."""
    if isinstance(where, RunFolder) and where.url is not None:
        return where.url
    path = (where.path if isinstance(where, RunFolder) else where).absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def new_folder(command: str) -> RunFolder:
    """Make a folder that no other run has, even one that starts in the same second."""
    make_folder(Path("runs"))
    name = f"runs/{command}-{datetime.now():%Y%m%d-%H%M%S}"
    for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
        try:
            Path(name + suffix).mkdir()
        except FileExistsError:
            continue
        sync_folder(Path("runs"))
        return RunFolder(name + suffix)
    raise UsageError(f"run_dir: {name} and 998 more are taken; name a folder")


def _initialization(
    config: TrainConfig | LearnConfig, tasks: ConfiguredTasks
) -> tuple[Tensor, str | None]:
    """Return version 0, float32 [P], and the SHA-256 of the file it comes from, if any."""
    option, init = init_of(config)
    if init == "random":
        seed = derive_seed(config.seed, Purpose.INITIALIZATION)
        return tasks.random_initialization(seed), None
    try:
        return read_theta0(init, tasks.shared_layout())
    except ValueError as error:
        raise UsageError(f"{option} = {init}: {error}") from None


def _make_runtime(config: Config, interrupts: Interrupts) -> Runtime:
    runtime = config.runtime
    if runtime.kind == "local":
        from leap_rl.training.runtime.local import LocalRuntime

        return LocalRuntime(interrupts)
    trainers = None if runtime.trainers == "auto" else runtime.trainers
    gpus = runtime.gpus_per_trainer
    if gpus == "auto":
        gpus = GPU_SHARE if config.agent.device == "cuda" else 0.0
    return make_ray_runtime(
        trainers=trainers,
        address=runtime.address,
        trainer_cores=runtime.env_processes,
        trainer_gpus=gpus,
        metrics_port=runtime.metrics_port,
        interrupts=interrupts,
    )
