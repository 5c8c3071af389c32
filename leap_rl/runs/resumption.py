"""Opens runs to resume or to fork them: which options may change, and what else has."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from leap_rl.core.parsing import parse_options
from leap_rl.core.version import __version__
from leap_rl.runs.config import Config, TrainConfig
from leap_rl.runs.creation import make_run, resolve
from leap_rl.runs.display import program, quoted, shown, tell, trusting
from leap_rl.runs.header import (
    NEW_BITS,
    LoadedRun,
    Origin,
    defining_options,
    differences,
    fingerprint,
    versions_here,
)
from leap_rl.runs.kinds import META_TRAINING, meta_trains
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.training.rounds.meta_training import OUTER_OPTIMIZER
from leap_rl.training.rounds.validation import ValidationState


def prepare(
    run: LoadedRun, options: Mapping[str, Any], *, trusts_imports: bool = False
) -> LoadedRun:
    """Return a run as it is resumed, with options changed, there and in its folder.

    A damaged checkpoint is passed over for one before it, and other versions than those that made
    the run are told, on stderr.

    Args:
        run: The run.
        options: The new values of options, by dotted name.
        trusts_imports: Whether modules may be imported that an option names.

    Raises:
        ValueError: An option that defines the run would change, the config was edited, or the data
            are missing or others.
        RunFolderError: The folder is damaged, such that nothing in it can be resumed.
    """
    folder = run.folder
    config = parse_options(
        type(run.config), options, defaults=run.options, trusts_imports=trusts_imports
    )
    _check_options(run, config)
    if config.task.data is not None:  # which may have moved, but not changed
        config.task.suite.check_machine(config.task)
    with folder.lock():
        damage = folder.fall_back(run.header.fingerprint)
        if damage is not None:
            tell(damage)
        latest = folder.latest()
        assert latest is not None, "it was fallen back to"
        if meta_trains(config) and latest > config.meta.meta_steps:
            raise ValueError(
                f"meta.meta_steps = {config.meta.meta_steps}: the run has made {latest} already"
            )
        here = versions_here(config, meta_step=latest)
        changed = differences(run.header.made_by[-1], here)
        _warn_of_versions(run, changed)
        made_by = (*run.header.made_by, here) if changed else run.header.made_by
        resumed = replace(run, header=replace(run.header, made_by=made_by), config=config)
        if resumed != run:
            resumed.write()
    return resumed


def computes(run: LoadedRun, config: Config, init_sha256: str | None) -> bool:
    """Return whether a run computes what a config asks for.

    Options that the leap_rl which made the run did not know count as their defaults, by which it
    computed; those of `NEW_BITS` do not. What the run does say counts as it stands there, so that
    another default makes another run.

    Args:
        run: The run.
        config: Resolved.
        init_sha256: What the config starts from, as `RunHeader` has it; none counts by its name.
    """
    if NEW_BITS.intersection(run.missing) or init_sha256 not in (None, run.header.init_sha256):
        return False
    try:
        theirs = resolve(run.config) if run.missing else run.config
    except ValueError:
        return False
    return fingerprint(theirs, init_sha256) == fingerprint(config, init_sha256)


def _check_options(run: LoadedRun, config: Config) -> None:
    if lacking := sorted(NEW_BITS.intersection(run.missing)):
        raise ValueError(
            f"{lacking[0]}: {shown(run.folder)} was made by {run.maker}, which computed without it "
            "and other bits; make a new run instead"
        )
    before, after = defining_options(run.config), defining_options(config)
    for name in (*after, *sorted(before.keys() - after.keys())):  # a library's come and go
        value, made = (options.get(name, "left out") for options in (after, before))
        if value != made:
            way_out = "make a new run instead"
            if meta_trains(run.config):
                at = min(max(run.folder.checkpoints(), default=0), run.config.meta.meta_steps - 1)
                trust = trusting(config.imports)
                fork = f"{program()} fork {quoted(run.folder)} --at {at} --{name} ...{trust}"
                way_out = f"`{fork}` makes a new run of it"
            raise ValueError(
                f"{name} = {value}: says what the run computes and was {made} when it was made; "
                f"{way_out}"
            )
    if config.run_dir != run.config.run_dir:
        raise ValueError(f"run_dir = {config.run_dir}: a resumed run stays in its folder")


def _warn_of_versions(run: LoadedRun, changed: Sequence[str]) -> None:
    if run.missing:
        now = defining_options(run.config)
        taken = ", ".join(f"{name} = {now[name]}" for name in run.missing)
        tell(
            f"the run was made by {run.maker}, which lacks options that leap_rl {__version__} has: "
            f"they take their defaults, {taken}"
        )
    if changed:
        tell(
            f"the run was made with {', '.join(changed)}: resuming; the same bits are promised "
            "for the same versions and kind of processor alone"
        )


def create_fork(
    run: LoadedRun, at: int, options: Mapping[str, Any], *, trusts_imports: bool = False
) -> LoadedRun:
    """Make the folder of a run that starts from a parent's checkpoint, with other options.

    Args:
        run: The parent.
        at: The checkpoint's number.
        options: The new values of options, by dotted name.
        trusts_imports: Whether modules may be imported that an option names.

    Raises:
        ValueError: It cannot be forked there, or not with these options.
        RunFolderError: The parent's folder is damaged.
    """
    parent, before = run.folder, run.config
    if not meta_trains(before):
        raise ValueError(
            f"{shown(parent)}: is a run of leap-rl {before.command}, which has nothing to "
            "fork; only runs of leap-rl train do"
        )
    stored = {**run.options, "run_dir": None}
    config = resolve(
        parse_options(TrainConfig, options, defaults=stored, trusts_imports=trusts_imports)
    )
    files, state = _read_start(parent, at, run.header.fingerprint)
    _check_fork(before, config, at)
    optimizer, _ = config.meta.outer
    keep_optimizer = optimizer == before.meta.outer[0]
    try:
        files = META_TRAINING.plan(config).adopt(files, keep_optimizer=keep_optimizer)
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"checkpoint {at} of {shown(parent)} does not fit these options: {error}"
        ) from None
    begun = {"agent_steps": state["agent_steps"]}
    if _validates_alike(before, config):
        with suppress(KeyError, TypeError, ValueError):  # an earlier leap_rl measured otherwise
            begun |= ValidationState.from_state(state).for_fork().state()
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    fork = make_run(
        config,
        lambda folder: folder.write_checkpoint(at, files, begun),
        init_sha256=run.header.init_sha256,
        sources=[parent.checkpoint(at) / INITIALIZATION],
        origin=Origin(
            run=parent.path.name,
            at=at,
            initialization_sha256=sums[INITIALIZATION],
            optimizer_sha256=sums[OUTER_OPTIMIZER],
        ),
        before=run.trained(at, 0),
    )
    if not keep_optimizer:
        tell(f"meta.optimizer = {optimizer}: the outer optimizer starts from scratch")
    return fork


def _validates_alike(before: TrainConfig, config: TrainConfig) -> bool:
    """Return whether agents of a fork learn in validation as those of its parent do."""
    ours, theirs = defining_options(config), defining_options(before)
    groups = ("seed", "task", "agent", "validation")
    names = {name for name in ours.keys() | theirs.keys() if name.partition(".")[0] in groups}
    names -= {"validation.every_meta_steps"}
    return all(theirs.get(name) == ours.get(name) for name in names)


def _read_start(
    parent: RunFolder, at: int, fingerprint: str
) -> tuple[dict[str, bytes], Mapping[str, Any]]:
    """Return a checkpoint's files by name, and its state."""
    there = parent.checkpoints()
    if at not in there:
        known = f"it has {there[0]} to {there[-1]}" if there else "it has none"
        raise ValueError(f"--at {at}: {shown(parent)} has no such checkpoint; {known}")
    if parent.is_thinned_out(at):
        raise ValueError(
            f"--at {at}: the parameters of that checkpoint were removed (runtime.keep_checkpoints)"
        )
    files, state = parent.read_checkpoint(at)
    parent.refuse_foreign(state, fingerprint)
    if (
        not isinstance(state.get("agent_steps"), int)
        or not {INITIALIZATION, OUTER_OPTIMIZER} <= files.keys()
    ):
        raise RunFolderError(f"{parent.checkpoint(at)}: is no checkpoint of a meta-training run")
    return files, state


def _check_fork(before: TrainConfig, config: TrainConfig, at: int) -> None:
    if config.meta.init != before.meta.init:
        raise ValueError(
            f"meta.init = {config.meta.init}: a fork starts from the checkpoint that --at names"
        )
    if config.meta.meta_steps <= at:
        raise ValueError(
            f"meta.meta_steps = {config.meta.meta_steps}: {at} of them are behind the checkpoint "
            f"that --at names; take at least --meta.meta_steps {at + 1}"
        )
