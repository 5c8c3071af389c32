"""``leap-rl resume``: resume a run from its last meta-step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from leap_rl.app.display import program, shown, tell
from leap_rl.app.execution import run
from leap_rl.app.invocation import Invocation
from leap_rl.app.record import StoredRun, differences, parse_over, read_run, versions_here
from leap_rl.cli import EXIT_USAGE
from leap_rl.config import Config, TrainConfig, defining_options
from leap_rl.core.version import __version__
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.run_folders import run_folder

_HELP = """\
usage: leap-rl resume RUN [OPTIONS]

Resume the run in the folder RUN from its last meta-step, to the same bits as if it had never
been stopped. Tasks of the open meta-step that were complete count.

OPTIONS are those of the command that made the run (leap-rl train --help), but for those that say
what is computed: where and how a run continues may change, such as --runtime.trainers, and so may
--meta.meta_steps, to go further. To change what is computed, see leap-rl fork --help."""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_HELP)
        return 0 if argv else EXIT_USAGE
    folder = run_folder(argv[0])
    config = prepare(folder, argv[1:], trusts_imports=call.trusts_imports)
    return run(config, folder, call, resumes=True)


def prepare(folder: RunFolder, argv: Sequence[str] = (), *, trusts_imports: bool = False) -> Config:
    """Return a run's config, with the options of ``argv`` changed, there and in the folder.

    A damaged checkpoint is passed over for one before it, and other versions than those that made
    the run are told, on stderr.

    Raises:
        ValueError: An option that defines the run would change, or the config was edited.
        RunFolderError: The folder is damaged, such that nothing in it can be resumed.
    """
    run = read_run(folder)
    command, program = run.config.command, f"leap-rl resume {shown(folder)}"
    config = parse_over(command, run.options, argv, program=program, trusts_imports=trusts_imports)
    _check_options(run, config, folder)
    with folder.lock():
        damage = folder.fall_back(run.record.fingerprint)
        if damage is not None:
            tell(damage)
        latest = folder.latest()
        assert latest is not None, "it was fallen back to"
        if isinstance(config, TrainConfig) and latest > config.meta.meta_steps:
            raise ValueError(
                f"meta.meta_steps = {config.meta.meta_steps}: the run has made {latest} already"
            )
        here = versions_here(config, meta_step=latest)
        _warn_of_versions(run, here)
        made_by = run.record.made_by
        if not made_by or differences(made_by[-1], here):
            made_by = (*made_by, here)
        record = replace(run.record, made_by=made_by)
        if (record, config) != (run.record, run.config):
            record.write(folder, config, without=run.missing)
    return config


def _check_options(run: StoredRun, config: Config, folder: RunFolder) -> None:
    before, after = defining_options(run.config), defining_options(config)
    for name, value in after.items():
        if value != before[name]:
            way_out = "make a new run instead"
            if isinstance(config, TrainConfig):
                at = max(folder.checkpoints(), default=0)
                fork = f"{program()} fork {shown(folder)} --at {at} --{name} ..."
                way_out = f"`{fork}` makes a new run of it"
            raise ValueError(
                f"{name} = {value}: says what the run computes and was {before[name]} when it was "
                f"made; {way_out}"
            )
    if config.run_dir != run.config.run_dir:
        raise ValueError(f"run_dir = {config.run_dir}: a resumed run stays in its folder")


def _warn_of_versions(run: StoredRun, here: dict[str, object]) -> None:
    if run.missing:
        now = defining_options(run.config)
        taken = ", ".join(f"{name} = {now[name]}" for name in run.missing)
        tell(
            f"the run was made by {run.maker}, which lacks options that leap_rl {__version__} has: "
            f"they take their defaults, {taken}"
        )
    changed = differences(run.record.made_by[-1], here) if run.record.made_by else []
    if changed:
        tell(
            f"the run was made with {', '.join(changed)}: resuming; the same bits are promised "
            "for the same versions and kind of processor alone"
        )
