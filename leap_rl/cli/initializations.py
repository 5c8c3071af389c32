"""Finds the initializations that a command line names: of a run, a checkpoint, or a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leap_rl.cli import UsageError
from leap_rl.cli.record import read_run
from leap_rl.config import TrainConfig
from leap_rl.run_folder import RunFolder
from leap_rl.storage.object_store import is_url
from leap_rl.storage.run_folders import run_folder
from leap_rl.training.initialization import FILE_NAME

BEST = "best"


@dataclass(frozen=True, kw_only=True)
class FoundInitialization:
    """An initialization, and the run that made it."""

    given: str
    """As it was named."""
    path: str
    """The file, or its URL."""
    file: Path | None = None
    """The file on this machine, if it is there."""
    name: str
    """For tables and figures."""
    options: Mapping[str, Any] | None
    """The run's, nested; none for a file that lies in no run."""


def find_initialization(given: str) -> FoundInitialization:
    """Return what RUN, RUN@S, RUN@best, a checkpoint's folder or a file stands for.

    Raises:
        UsageError: There is no such initialization; the run has made no meta-step yet.
        RunFolderError: The run's folder is damaged.
    """
    if is_url(given) and not given.endswith(".safetensors"):
        url, _, version = (
            given.rpartition("@") if "@" in given.rsplit("/", 1)[-1] else (given, "", "")
        )
        return _of_run(given, run_folder(url), version)
    path, _, version = given.rpartition("@") if "@" in Path(given).name else (given, "", "")
    if version and not Path(given).exists():
        return _of_run(given, RunFolder(path), version)
    if (Path(given) / FILE_NAME).exists():
        return _of_file(given, Path(given) / FILE_NAME)
    if Path(given).is_dir():
        return _of_run(given, RunFolder(given), "")
    if is_url(given):
        name = given.rsplit("/", 1)[-1].removesuffix(".safetensors")
        return FoundInitialization(given=given, path=given, name=name, options=None)
    if not Path(given).exists():
        raise UsageError(f"init = {given}: there is no such run or file")
    return _of_file(given, Path(given))


def _of_run(given: str, folder: RunFolder, version: str) -> FoundInitialization:
    run = read_run(folder)
    if not isinstance(run.config, TrainConfig):
        raise UsageError(
            f"init = {given}: is a run of leap-rl {run.config.command}, which makes no "
            "initialization; name one of leap-rl train"
        )
    latest = folder.latest()
    if version == BEST:
        number = folder.best()
        if number is None:
            raise UsageError(
                f"init = {given}: no version of the run was validated "
                "(--validation.every_meta_steps); name one, as RUN@12"
            )
    elif version:
        there = folder.checkpoints()
        if not version.isdecimal() or len(version) > 18 or int(version) not in there:
            raise UsageError(
                f"init = {given}: has no version {version}; it has {there[0]} to {there[-1]}"
                if there
                else f"init = {given}: has no checkpoint"
            )
        number = int(version)
    elif not latest:
        raise UsageError(
            f"init = {given}: the run has made no meta-step yet; go on with it by "
            f"`leap-rl resume {given}`"
        )
    else:
        number = latest
    file = folder.checkpoint(number) / FILE_NAME
    if not file.exists():
        removed = " (runtime.keep_checkpoints)" if folder.is_thinned_out(number) else ""
        raise UsageError(f"init = {given}: {file} is missing{removed}")
    path = str(file)
    if folder.url is not None:  # which other machines find it at
        path = f"{folder.url}/{file.relative_to(folder.path).as_posix()}"
    return FoundInitialization(
        given=given,
        path=path,
        file=file,
        name=f"{folder.path.name}@{number}",
        options=run.options,
    )


def _of_file(given: str, file: Path) -> FoundInitialization:
    """Return a file's, with its run where it lies in one."""
    checkpoint = file.absolute().parent
    folder = checkpoint.parent.parent
    if checkpoint.parent.name == "checkpoints" and (folder / "config.yaml").exists():
        run = read_run(RunFolder(folder))
        name = f"{folder.name}@{int(checkpoint.name)}" if checkpoint.name.isdecimal() else file.stem
        if isinstance(run.config, TrainConfig):
            return FoundInitialization(given=given, path=str(file), name=name, options=run.options)
    name = checkpoint.name if file.name == FILE_NAME else file.stem
    return FoundInitialization(given=given, path=str(file), name=name, options=None)
