"""Makes runs and carries them out: what train, resume and learn have in common."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from leap_rl.cli import EXIT_INTERRUPTED, UsageError
from leap_rl.config import Config, TrainConfig, fingerprint, init_of, to_mapping
from leap_rl.messages import ServerStatus
from leap_rl.meta.gradient_path import Method, NoMethod
from leap_rl.run_folder import RunFolder
from leap_rl.seeding import Purpose, derive_seed
from leap_rl.tasks.config import LossDifference
from leap_rl.tasks.factory import ConfiguredTasks
from leap_rl.tracking.console import Console, make_console
from leap_rl.tracking.jsonl import read_rows
from leap_rl.tracking.metrics import Row, RunView, TaskView
from leap_rl.tracking.sink import Tracker, open_tracker
from leap_rl.training.initialization import read_initialization
from leap_rl.training.learning import LearningFactory
from leap_rl.training.meta_training import MetaTrainingFactory
from leap_rl.training.ray_environment import LOCAL, cluster_address, make_ray_runtime
from leap_rl.training.runtime import Job, Runtime

C = TypeVar("C", bound=Config)

GPU_SHARE = 1 / 16
"""Of a GPU, for a trainer on one: the network leaves it idle most of the time."""


def create_run(config: Config) -> RunFolder:
    """Make a run's folder: its first checkpoint and its config.

    Raises:
        UsageError: The folder holds a run already or cannot be written, or the given
            initialization does not fit.
    """
    # What can be wrong with the config is found before anything is written.
    folder = None if config.run_dir is None else RunFolder(config.run_dir)
    tasks = _tasks(config)
    theta0, init_sha256 = _initialization(config, tasks)
    if folder is None:
        folder = _new_folder(config.command)
    try:
        with folder.lock():
            if folder.exists():
                raise UsageError(
                    f"run_dir = {shown(folder.path)}: holds a run already; go on with it by "
                    f"`{program()} resume {shown(folder.path)}`, or choose another folder"
                )
            _policy(config, tasks).write_first_checkpoint(folder, theta0)
            # Last: a folder with a config is a run.
            write_config(
                folder,
                config,
                fingerprint=fingerprint(config, init_sha256),
                init_sha256=init_sha256,
            )
    except OSError as error:
        raise UsageError(
            f"run_dir = {folder.path}: cannot be written to ({error.strerror})"
        ) from None
    return folder


def settle(config: C) -> C:
    """Return the config with each `auto` that says what is computed replaced by what is here.

    Raises:
        ValueError: This machine lacks what the config asks for, and is to compute it.
    """
    from leap_rl.rl.hardware import check_machine, resolve

    config = replace(config, agent=resolve(config.agent))
    if config.runtime.kind == "local" or cluster_address(config.runtime.address) == LOCAL:
        check_machine(config.agent)  # otherwise each trainer does so on its own
    return config


def write_config(
    folder: RunFolder, config: Config, *, fingerprint: str, init_sha256: str | None
) -> None:
    """Write what it takes to resume or to repeat a run."""
    head = {"command": config.command, "fingerprint": fingerprint, "init_sha256": init_sha256}
    folder.write_config({**head, **to_mapping(config)})


def carry_out(config: Config, folder: RunFolder) -> int:
    """Run a run to its end, or until the user stops it.

    Returns:
        The command's exit status.
    """
    tasks = _tasks(config)
    method: Method = config.meta.build() if isinstance(config, TrainConfig) else NoMethod()
    job = Job(
        run_dir=str(folder.path),
        fingerprint=folder.read_config()["fingerprint"],
        method=method,
        make_task=tasks,
        make_policy=_policy(config, tasks),
        stream_every_s=config.runtime.stream_every_s,
        lease_s=config.runtime.lease_s,
        max_attempts=config.runtime.max_attempts,
    )
    with (
        folder.lock(),
        open_tracker(
            config.tracking,
            run_folder=folder.path,
            run_config=to_mapping(config),
            kind=config.command,
        ) as tracker,
        make_console(config.tracking.console) as console,
    ):
        console.message(f"{config.command}: run folder {shown(folder.path)}")
        try:
            monitor = Monitor(config, folder, tracker, console)
            if config.runtime.kind == "ray":
                console.message(_ray_message(config.runtime.address))
            _make_runtime(config).run(job, monitor.report)
        except KeyboardInterrupt:
            console.message(f"stopped; go on with: {program()} resume {shown(folder.path)}")
            return EXIT_INTERRUPTED
    return 0


class Monitor:
    """Shows how a run stands and logs what it commits.

    What is committed is read from the run's folder, the one place that holds it for sure: rows
    that a killed driver did not log are logged when the run is resumed.
    """

    def __init__(
        self, config: Config, folder: RunFolder, tracker: Tracker, console: Console
    ) -> None:
        self._config = config
        self._folder = folder
        self._tracker = tracker
        self._console = console
        self._started = time.monotonic()
        self._logged = len(read_rows(folder.path / "metrics.jsonl"))
        # A meta-step has one row: what is logged is not read again, and old checkpoints may go.
        self._rows_seen = self._logged if isinstance(config, TrainConfig) else 0
        self._next_checkpoint = self._rows_seen + 1
        self._last_row: Row | None = None
        self._slots_total = 0

    def report(self, status: ServerStatus) -> None:
        """Take in how the run stands."""
        while self._next_checkpoint <= status.round:
            self._log_checkpoint(self._next_checkpoint)
            self._next_checkpoint += 1
        self._slots_total = status.slots_total or self._slots_total
        self._console.show(self._view(status))

    def _log_checkpoint(self, number: int) -> None:
        for row in self._folder.read_state(number)["rows"]:
            self._rows_seen += 1
            if self._rows_seen > self._logged:
                self._tracker.log(row["values"], axis=row["axis"])
                self._last_row = row["values"]

    def _view(self, status: ServerStatus) -> RunView:
        tasks = tuple(
            TaskView(
                slot=task.slot,
                game=task.game,
                trainer=task.trainer,
                agent_steps=task.live.agent_steps if task.live else 0,
                agent_steps_total=self._config.task.agent_steps,
                agent_steps_per_s=task.live.agent_steps_per_s if task.live else 0.0,
                mean_return=task.live.mean_return if task.live else None,
            )
            for task in status.running
        )
        return RunView(
            kind="train" if isinstance(self._config, TrainConfig) else "learn",
            meta_step=status.round,
            meta_steps=status.rounds,
            # A finished run has no open slots any more: all of the last round's are done.
            slots_done=self._slots_total if status.finished else status.slots_complete,
            slots_total=self._slots_total,
            tasks=tasks,
            agent_steps_per_s=sum(task.agent_steps_per_s for task in tasks),
            elapsed_s=time.monotonic() - self._started,
            last_row=self._last_row,
        )


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


def shown(path: Path) -> str:
    """Return a path as the user would write it from where he is."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _new_folder(command: str) -> RunFolder:
    """Make a folder that no other run has, even one that starts in the same second."""
    name = f"runs/{command}-{datetime.now():%Y%m%d-%H%M%S}"
    for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
        try:
            Path(name + suffix).mkdir(parents=True)
        except FileExistsError:
            continue
        return RunFolder(name + suffix)
    raise UsageError(f"run_dir: {name} and 998 more are taken; name a folder")


def _initialization(config: Config, tasks: ConfiguredTasks) -> tuple[Tensor, str | None]:
    """Return version 0, float32 [P], and the SHA-256 of the file it comes from, if any."""
    option, init = init_of(config)
    if init == "random":
        seed = derive_seed(config.seed, Purpose.INITIALIZATION)
        return tasks.random_initialization(seed), None
    try:
        return read_initialization(init, tasks.shared_layout())
    except ValueError as error:
        raise UsageError(f"{option} = {init}: {error}") from None


def _tasks(config: Config) -> ConfiguredTasks:
    loss_difference: LossDifference = "next_batch"
    if isinstance(config, TrainConfig):
        loss_difference = config.meta.loss_difference
    return ConfiguredTasks(
        task=config.task,
        agent=config.agent,
        loss_difference=loss_difference,
        env_processes=config.runtime.env_processes,
    )


def _policy(config: Config, tasks: ConfiguredTasks) -> MetaTrainingFactory | LearningFactory:
    games, layout = config.task.resolved_games, tasks.shared_layout()
    if not isinstance(config, TrainConfig):
        return LearningFactory(seed=config.seed, games=games, layout=layout)
    return MetaTrainingFactory(
        seed=config.seed,
        games=games,
        batch_size=config.meta.batch_size,
        meta_steps=config.meta.meta_steps,
        meta_lr=config.meta.meta_lr,
        optimizer=config.meta.optimizer,
        layout=layout,
        frames_per_agent_step=tasks.frames_per_agent_step,
    )


def _make_runtime(config: Config) -> Runtime:
    runtime = config.runtime
    if runtime.kind == "local":
        from leap_rl.training.runtime_local import LocalRuntime

        return LocalRuntime()
    trainers = None if runtime.trainers == "auto" else runtime.trainers
    gpus = runtime.gpus_per_trainer
    if gpus == "auto":
        gpus = GPU_SHARE if config.agent.device == "cuda" else 0.0
    return make_ray_runtime(
        trainers=trainers,
        address=runtime.address,
        trainer_cores=runtime.env_processes,
        trainer_gpus=gpus,
    )
