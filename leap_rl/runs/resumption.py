"""Opens runs to resume them: which options may change, and what else has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leap_rl.core.parsing import parse_options
from leap_rl.core.version import __version__
from leap_rl.runs.config import Config
from leap_rl.runs.display import program, shown, tell
from leap_rl.runs.fingerprint import defining_options
from leap_rl.runs.header import LoadedRun, differences, versions_here
from leap_rl.runs.kinds import meta_trains


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
        ValueError: An option that defines the run would change, or the config was edited.
        RunFolderError: The folder is damaged, such that nothing in it can be resumed.
    """
    folder = run.folder
    config = parse_options(
        type(run.config), options, defaults=run.options, trusts_imports=trusts_imports
    )
    _check_options(run, config)
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


def _check_options(run: LoadedRun, config: Config) -> None:
    before, after = defining_options(run.config), defining_options(config)
    for name, value in after.items():
        if value != before[name]:
            way_out = "make a new run instead"
            if meta_trains(config):
                at = max(run.folder.checkpoints(), default=0)
                fork = f"{program()} fork {shown(run.folder)} --at {at} --{name} ..."
                way_out = f"`{fork}` makes a new run of it"
            raise ValueError(
                f"{name} = {value}: says what the run computes and was {before[name]} when it was "
                f"made; {way_out}"
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
