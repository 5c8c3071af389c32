"""``leap-rl resume``: go on with a run from its last meta-step."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.cli import EXIT_USAGE, UsageError
from leap_rl.cli.launch import carry_out, shown, write_config
from leap_rl.cli.parser import config_parser, parse
from leap_rl.cli.results import announce_agents, announce_initialization
from leap_rl.config import COMMANDS, Config, TrainConfig, defining_options, fingerprint
from leap_rl.run_folder import RunFolder

_HELP = """\
usage: leap-rl resume RUN [OPTIONS]

Go on with the run in the folder RUN from its last meta-step. Tasks of the open meta-step that were
complete count; the others start again.

OPTIONS are those of the command that made the run (leap-rl train --help), but for those that say
what is computed: where and how a run goes on may change, such as --runtime.trainers, and so may
--meta.meta_steps, to go further."""


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_HELP)
        return 0 if argv else EXIT_USAGE
    folder = RunFolder(argv[0])
    config = read_run(folder, argv[1:])
    status = carry_out(config, folder)
    if status == 0 and isinstance(config, TrainConfig):
        announce_initialization(folder, config)
    elif status == 0:
        announce_agents(folder)
    return status


def read_run(folder: RunFolder, argv: Sequence[str] = ()) -> Config:
    """Return a run's config, with the options of ``argv`` changed, there and in the folder.

    Raises:
        UsageError: An option that defines the run would change, or the config was edited.
    """
    options = folder.read_config()
    recorded, init_sha256 = options.pop("fingerprint", None), options.pop("init_sha256", None)
    command = options.pop("command", None)
    if not isinstance(command, str) or command not in COMMANDS:
        raise UsageError(f"{folder.config_path}: command = {command!r}: must be train or learn")
    options["run_dir"] = str(folder.path)
    try:
        original = _parse(command, options, ())
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise UsageError(f"{folder.config_path}: is not as leap-rl wrote it: {error}") from None
    if fingerprint(original, init_sha256) != recorded:
        raise UsageError(
            f"{folder.config_path}: was changed since the run was made (its fingerprint is another "
            "one); a run with other options is a new run"
        )
    config = _parse(command, options, argv)
    _check_changes(original, config, folder)
    if config != original:
        with folder.lock():
            write_config(folder, config, fingerprint=recorded, init_sha256=init_sha256)
    return config


def _check_changes(original: Config, config: Config, folder: RunFolder) -> None:
    before, after = defining_options(original), defining_options(config)
    for name, value in after.items():
        if value != before[name]:
            raise UsageError(
                f"{name} = {value}: says what the run computes and was {before[name]} when it was "
                "made; make a new run instead"
            )
    if config.run_dir != original.run_dir:
        raise UsageError(f"run_dir = {config.run_dir}: a resumed run stays in its folder")
    latest = folder.latest()
    if latest is None:
        raise UsageError(f"{shown(folder.path)}: has no checkpoint; start anew in another folder")
    if isinstance(config, TrainConfig) and latest > config.meta.meta_steps:
        raise UsageError(
            f"meta.meta_steps = {config.meta.meta_steps}: the run has made {latest} already"
        )


def _parse(command: str, stored: dict[str, object], argv: Sequence[str]) -> Config:
    config = COMMANDS[command]
    parser = config_parser(config, program="leap-rl resume RUN")
    return parse(parser, config, argv, defaults=stored)
