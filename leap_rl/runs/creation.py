"""Makes runs: resolves a config for this machine, and writes a folder's first checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar, cast

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.evaluation.results import Training
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.registry import declared
from leap_rl.runs.config import Config
from leap_rl.runs.display import resume_command, shown, tell
from leap_rl.runs.header import (
    LoadedRun,
    Origin,
    RunHeader,
    computes_here,
    fingerprint,
    versions_here,
)
from leap_rl.runs.initializations import FoundInitialization, find_start, read_theta0
from leap_rl.runs.kinds import kind_of, make_tasks
from leap_rl.sharing.initialization import mixed
from leap_rl.storage.durable_files import make_folder, sync_folder
from leap_rl.storage.object_store import StoreError
from leap_rl.storage.open_run import open_run
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tasks.config import TaskConfig
from leap_rl.tracking.wandb_folder import note_sources
from leap_rl.training.rounds.evaluation import LearningFactory
from leap_rl.training.rounds.meta_training import MetaTrainingFactory

C = TypeVar("C", bound=Config)


def create_run(config: Config) -> LoadedRun:
    """Make the folder of a run of `leap-rl train` or `leap-rl learn`.

    Its config is kept without the secrets of a URL.

    Raises:
        ValueError: The folder holds a run already or cannot be written, or the given
            initialization does not fit.
    """
    tasks, kind = make_tasks(config), kind_of(config)
    init, init_sha256, sources, before = kind.init(config), None, [], None
    seed = derive_seed(config.seed, Purpose.INITIALIZATION)
    if init == "random":
        theta0 = tasks.random_initialization(seed)
    else:
        try:
            found = find_start(init)
            drawn = tasks.random_initialization(seed)
            theta0, init_sha256 = read_theta0(found, tasks.shared_layout(), drawn)
            _tell_of_heads(found, config)
        except ValueError as error:
            said = str(error)
            said = said if said.startswith("init = ") else f"init = {init}: {said}"
            raise ValueError(said.replace("init", config.init_option, 1)) from None
        if found.mix is not None:
            theta0 = mixed(theta0, drawn, found.mix)
        sources, before = [found.path], found.trained
        init = found.option  # the same bytes for good: a file, or a commit on the hub
    config = kind.with_init(config, init)
    factory = cast(MetaTrainingFactory | LearningFactory, kind.plan(config))
    return make_run(
        config,
        lambda folder: factory.write_first_checkpoint(folder, theta0),
        init_sha256=init_sha256,
        sources=sources,
        before=before,
    )


def _tell_of_heads(found: FoundInitialization, config: Config) -> None:
    """Say on stderr where a whole agent is given and only its encoder is taken."""
    theirs = {} if found.options is None else found.options["agent"]
    if theirs.get("share") == "agent" and config.agent.share != "agent":
        tell(
            f"{config.init_option} = {found.given}: holds whole agents, and agent.share = "
            f"{config.agent.share} takes the encoder alone; agent.share = agent takes the heads too"
        )


def make_run(
    config: Config,
    write_first: Callable[[RunFolder], None],
    *,
    init_sha256: str | None,
    sources: Iterable[str | Path],
    origin: Origin | None = None,
    before: Training | None = None,
) -> LoadedRun:
    """Make a run's folder: its first checkpoint and its config.

    Args:
        config: The run's, resolved, in which nothing is wrong.
        write_first: Writes the checkpoint.
        init_sha256: See `RunHeader`.
        sources: The files of the initializations that it starts from.
        origin: What a fork starts from.
        before: See `RunHeader`.

    Raises:
        ValueError: The folder holds a run already, cannot be written, or is a URL that cannot be,
            or of a store that cannot be reached.
    """
    header = RunHeader(
        fingerprint=fingerprint(config, init_sha256, origin=origin.content if origin else None),
        init_sha256=init_sha256,
        made_by=(versions_here(config, meta_step=origin.at if origin else 0),),
        origin=origin,
        before=before,
    )
    if config.run_dir is None:
        folder = new_folder("fork" if origin else config.command)
    elif not config.run_dir:
        raise ValueError("run_dir = '': must name a folder, or be null for a new one in runs")
    else:
        try:
            folder = open_run(config.run_dir)
        except (ValueError, StoreError) as error:
            raise ValueError(f"run_dir = {error}") from None
    run = LoadedRun(folder=folder, header=header, config=config)
    try:
        with folder.lock():
            if folder.exists():
                raise ValueError(
                    f"run_dir = {shown(folder)}: holds a run already; resume it by "
                    f"`{resume_command(folder, config.imports)}`, or choose another folder"
                )
            write_first(folder)
            run.write()  # last: a folder with a config is a run
    except OSError as error:
        reason = f"{folder.place}: cannot be written to ({error.strerror})"
        if isinstance(error, StoreError):  # which says it all
            reason = str(error)
        raise ValueError(f"run_dir = {reason}") from None
    note_sources(folder.path, sources)
    return run


def resolve(config: C) -> C:
    """Return the config with each `auto` that says what is computed replaced by what is here.

    Raises:
        ValueError: This machine lacks what the config asks for, and is to compute it; or the
            images or environments that it names are not there.
    """
    config = replace(config, task=resolved_task(config.task, config.agent))
    learner = make_tasks(config)
    # Now that its module may be imported: of package:Learner nothing was known before.
    learner.check(config.task, config.agent, config.runtime.own_env_processes)
    kind_of(config).check_learner(config, learner)
    config = replace(config, agent=learner.resolved_agent())
    if computes_here(config):  # otherwise each trainer does so on its own
        make_tasks(config).check_processor()
    return kind_of(config).resolved(config)


def resolved_task(task: TaskConfig, agent: AgentConfig) -> TaskConfig:
    """Return the task with the sizes and names that games and data tell; ValueError as above.

    A budget that is left open is of whole batches, also of a library that has its own.
    """
    who, length = declared(task, agent), None
    if not task.is_sized and who is not None:
        length = who.own_unroll_length(asdict(agent))
    found = task.suite.resolve(replace(task, unroll_length=length or task.unroll_length))
    return replace(found, unroll_length=task.unroll_length)


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
    raise ValueError(f"run_dir: {name} and 998 more are taken; name a folder")
