"""Finds the initializations that a command line names: of a run, a checkpoint, or a file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from leap_rl.core.urls import check_address, file_in, is_url, redacted
from leap_rl.evaluation.results import Training
from leap_rl.networks.parameters import Layout
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.display import resume_command, tell
from leap_rl.runs.header import LoadedRun, read_run, to_mapping
from leap_rl.runs.kinds import meta_trains
from leap_rl.sharing import pretrained
from leap_rl.sharing.card import OPTIONS
from leap_rl.sharing.foreign import is_foreign, take_over
from leap_rl.sharing.initialization import read_initialization
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.open_run import open_run
from leap_rl.storage.run_folder import BEST, INITIALIZATION, LONGEST_NUMBER, RunFolder

_NAME = re.compile(r"[A-Za-z0-9_.+-]+")
"""Of a group: what stands before the first `=` is a name if it is one, and a path otherwise."""
_MIX = re.compile(r"(?P<plain>.+)@mix=(?P<share>[^@/]*)")


@dataclass(frozen=True, kw_only=True)
class FoundInitialization:
    """An initialization, and the run that made it."""

    given: str
    """As it was named."""
    path: str
    """The file, its URL, pretrained:NAME, or hf://USER/REPO@COMMIT."""
    file: Path | None = None
    """The file on this machine, if it is there."""
    name: str
    """For tables and figures."""
    options: Mapping[str, Any] | None
    """The run's, nested; none for a file that lies in no run."""
    chosen_from: int | None = None
    """Agents a game that RUN@best was chosen from; none where it was named otherwise."""
    run: str | None = None
    """The run's folder or its URL; none for a file that lies in no run."""
    trained: Training | None = None
    """None where it is not known."""
    mix: float | None = None
    """The share of it in what agents start from, below 1; the rest is drawn at random. None where
    they start from it alone."""

    @property
    def mark(self) -> str:
        """What says the mix after a name; empty where there is none."""
        return "" if self.mix is None else f"@mix={self.mix}"

    @property
    def option(self) -> str:
        """The initialization as a config has it, which names its file and no secret of a URL."""
        return redacted(self.path) + self.mark


@dataclass(frozen=True, kw_only=True)
class FoundGroup:
    """Initializations of one method, each of another meta-training run."""

    given: str
    """As it was named."""
    name: str
    """For tables and figures."""
    named: bool
    """Whether the name was given."""
    runs: tuple[FoundInitialization, ...]

    @property
    def option(self) -> str:
        """The group as a config has it, which names files and holds no secret of a URL."""
        paths = ",".join(run.option for run in self.runs)
        return f"{self.name}={paths}" if self.named else paths


def read_theta0(
    found: FoundInitialization, layout: Layout, drawn: Tensor | None = None
) -> tuple[Tensor, str]:
    """Return an initialization, float32 [P], as it is in its file, and what stands for it.

    The latter is the file's SHA-256 and, where it is mixed with a random one, `@mix=SHARE`. Of
    another library's agent it tells on stderr which tensors were taken; others are those of
    `drawn`, float32 [P].

    Raises:
        ValueError: It cannot be read, or does not fit.
    """
    if is_foreign(found.path):
        taken = take_over(found.path, layout, drawn)
        tell(f"init = {found.given}: {taken.in_words}")
        return taken.theta0, taken.sha256 + found.mark
    file = found.path if found.file is None else str(found.file)
    theta0, digest = read_initialization(file, layout)
    return theta0, digest + found.mark


def check_name(name: str) -> None:
    """Raise ValueError for what cannot name a method's initializations."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"initializations: {name!r}: a name has letters, digits, _ . + and - alone"
        )


def find_group(given: str) -> FoundGroup:
    """Return what NAME=RUN,RUN,... stands for, or a single initialization without a name.

    Raises:
        ValueError: There is no such initialization, or the name or the list is no good.
        RunFolderError: A run's folder is damaged.
    """
    name, equals, listed = given.partition("=")
    plain, _ = _split_mix(given)
    if not equals or not _NAME.fullmatch(name) or Path(plain.rpartition("@")[0] or plain).exists():
        one = find_start(given)
        return FoundGroup(given=given, name=one.name, named=False, runs=(one,))
    if name == "random":
        raise ValueError(f"init = {given}: random names the baseline; take another name")
    words = listed.split(",")
    if not all(words):
        raise ValueError(f"init = {given}: name runs, as --init {name}=runs/a,runs/b")
    runs = tuple(map(find_start, words))
    if len({run.mix for run in runs}) > 1:
        raise ValueError(
            f"init = {given}: a method mixes all its runs alike; say the same @mix= after each, or "
            "give each mix a name of its own"
        )
    return FoundGroup(given=given, name=name, named=True, runs=runs)


def own_start(group: FoundGroup) -> FoundGroup:
    """Return the random starts of a group's runs: their version 0.

    Raises:
        ValueError: One is a file that lies in no run, or its run has no version 0, or begins at a
            learned start.
        RunFolderError: A run's folder is damaged.
    """
    runs = []
    for one in group.runs:
        if one.run is None:
            raise ValueError(
                f"own_start = true: {one.given} lies in no run, so its start is not known; name "
                "a run"
            )
        if read_run(open_run(one.run)).header.init_sha256 is not None:
            raise ValueError(
                f"own_start = true: the run of {one.given} begins at a learned start (meta.init), "
                "which is no random one; leave one out"
            )
        runs.append(find_initialization(f"{one.run}@0"))
        if runs[-1].path == one.path:
            raise ValueError(f"own_start = true: {one.given} is its run's start; leave one out")
    name = f"{group.name}@0" if group.named else runs[0].name
    return FoundGroup(given=f"{group.given}@0", name=name, named=group.named, runs=tuple(runs))


def find_start(given: str) -> FoundInitialization:
    """Return what agents start from: what `find_initialization` takes, also with `@mix=0.5`.

    Raises:
        ValueError: There is no such initialization, or the mix is no share.
        RunFolderError: The run's folder is damaged.
    """
    plain, share = _split_mix(given)
    if share is None:
        return find_initialization(given)
    try:
        mix = float(share)
    except ValueError:
        mix = 0.0
    if not 0 < mix <= 1:
        raise ValueError(
            f"init = {given}: mix = {share}: must be a share of the learned parameters, greater "
            "than 0 and at most 1, as @mix=0.5"
        )
    found = find_initialization(plain)
    if mix == 1:
        return found
    start = replace(found, given=given, mix=mix)
    return replace(start, name=start.name + start.mark)


def _split_mix(given: str) -> tuple[str, str | None]:
    """Return what is before `@mix=`, and the share after it if there is one."""
    match = _MIX.fullmatch(given)
    return (match["plain"], match["share"]) if match else (given, None)


def find_initialization(given: str) -> FoundInitialization:
    """Return what an initialization's name stands for.

    It may be RUN, RUN@S, RUN@best, a checkpoint's folder, one that ``leap-rl export`` wrote,
    pretrained:NAME, hf://USER/REPO, hf://USER/REPO@REVISION, a file, or another library's agent,
    sb3:FILE or torch:FILE (`sharing.foreign`).

    Raises:
        ValueError: There is no such initialization; the run has made no meta-step yet.
        RunFolderError: The run's folder is damaged.
    """
    if is_foreign(given):
        name = Path(given.partition(":")[2].partition("@names=")[0]).stem
        return FoundInitialization(given=given, path=given, name=name, options=None)
    try:
        check_address(given)
        if (exported := pretrained.find(given)) is not None:
            return _of_export(given, exported)
    except ValueError as error:
        raise ValueError(f"init = {given}: {error}") from None
    before, at, version = given.rpartition("@")
    where, version = (before, version) if at and "/" not in version else (given, "")
    if not is_url(given):  # no shell expands --init=~/runs/mine
        where = os.path.expanduser(where)
    if is_url(given):
        plain = given.split("?")[0]  # a presigned URL has a query
        if not plain.endswith(".safetensors"):
            return _of_run(given, open_run(where), version)
        name = plain.rsplit("/", 1)[-1].removesuffix(".safetensors")
        return FoundInitialization(given=given, path=given, name=name, options=None)
    here = Path(given).expanduser()
    if (here / INITIALIZATION).exists():
        return _of_file(given, here / INITIALIZATION)
    if here.is_dir():
        return _of_run(given, RunFolder(here), "")
    if here.exists():
        return _of_file(given, here)
    if version:
        return _of_run(given, RunFolder(where), version)
    raise ValueError(f"init = {given}: there is no such run or file")


def _of_run(given: str, folder: RunFolder, version: str) -> FoundInitialization:
    run = read_run(folder)
    if not meta_trains(run.config):
        raise ValueError(
            f"init = {given}: is a run of leap-rl {run.config.command}, which makes no "
            "initialization; name one of leap-rl train"
        )
    latest = folder.latest()
    if version == BEST:
        number = folder.best()
        if number is None:
            raise ValueError(
                f"init = {given}: no version of the run was validated "
                "(--validation.every_meta_steps); name one, as RUN@12"
            )
    elif version:
        there = folder.checkpoints()
        if not version.isdecimal() or len(version) > LONGEST_NUMBER or int(version) not in there:
            raise ValueError(
                f"init = {given}: has no version {version}; it has {there[0]} to {there[-1]}"
                if there
                else f"init = {given}: has no checkpoint"
            )
        number = int(version)
    elif not latest:
        raise ValueError(
            f"init = {given}: the run has made no meta-step yet; resume it by "
            f"`{resume_command(folder, run.config.imports)}`"
        )
    else:
        number = latest
    file = folder.checkpoint(number) / INITIALIZATION
    if not file.exists():
        removed = " (runtime.keep_checkpoints)" if folder.is_thinned_out(number) else ""
        raise ValueError(f"init = {given}: {file} is missing{removed}")
    trained = _check(run, number)
    path = str(file)
    if folder.url is not None:  # which other machines find it at
        path = file_in(folder.url, file.relative_to(folder.path).as_posix())
    return FoundInitialization(
        given=given,
        path=path,
        file=file,
        name=f"{folder.path.name}@{number}",
        options=run.options,
        run=folder.place,
        chosen_from=run.config.validation.agents if version == BEST else None,
        trained=trained,
    )


def _check(run: LoadedRun, number: int) -> Training | None:
    """Return what made a version; none where it is not known.

    Raises:
        RunFolderError: It is damaged, or another run's.
    """
    state = run.folder.read_state(number)
    run.folder.refuse_foreign(state, run.header.fingerprint)
    run.folder.read_file(INITIALIZATION, state)
    if "agent_steps" not in state:
        raise RunFolderError(f"{run.folder.checkpoint(number)}: is of no meta-training run")
    return run.trained(number, state["agent_steps"])


def _of_export(given: str, exported: pretrained.Exported) -> FoundInitialization:
    card, trained = exported.card, None
    if card.agent_steps is not None:
        games = card.games if card.agent_steps else ()  # of version 0 they were to come
        trained = Training(agent_steps=card.agent_steps, games=games)
    return FoundInitialization(
        given=given,
        path=exported.place,
        file=exported.file,
        name=exported.name,
        # Reading imports nothing.
        options=to_mapping(TrainConfig.from_yaml(exported.folder / OPTIONS)),
        trained=trained,
    )


def _of_file(given: str, file: Path) -> FoundInitialization:
    """Return a file's, with its run where it lies in one."""
    checkpoint = file.absolute().parent
    path = checkpoint.parent.parent
    if checkpoint.parent.name == "checkpoints" and (path / "config.yaml").exists():
        folder = RunFolder(path)
        run, name, trained = read_run(folder), file.stem, None
        if checkpoint.name.isdecimal():
            number = int(checkpoint.name)
            name = f"{path.name}@{number}"
            trained = _check(run, number)
        if meta_trains(run.config):
            return FoundInitialization(
                given=given,
                path=str(file),
                file=file,
                name=name,
                options=run.options,
                run=str(path),
                trained=trained,
            )
    name = checkpoint.name if file.name == INITIALIZATION else file.stem
    return FoundInitialization(given=given, path=str(file), file=file, name=name, options=None)
