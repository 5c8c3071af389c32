"""What a run's config.yaml says besides its options: what defines the run, and what made it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import metadata
from typing import Any

from leap_rl.config import COMMANDS, Config, defining_options, fingerprint, flatten, to_mapping
from leap_rl.core.determinism import processor_kind
from leap_rl.core.parsing import config_parser, parse
from leap_rl.core.version import __version__
from leap_rl.storage.checked import checked
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tasks.families import package_of
from leap_rl.training.runtime.ray.environment import LOCAL, cluster_address

PACKAGES = ("torch", "numpy", "ale-py", "gymnasium", "ray")
"""Besides leap_rl and Python: what the bits of a run depend on."""

version = cache(metadata.version)  # it looks through all packages, for 10 ms


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The checkpoint that a fork starts from."""

    run: str
    """The parent's folder, by name."""
    at: int
    initialization_sha256: str
    optimizer_sha256: str
    """Of the outer optimizer's state."""

    @property
    def content(self) -> dict[str, Any]:
        """What counts for the fork's fingerprint: not where the parent lies."""
        return {name: value for name, value in asdict(self).items() if name != "run"}


@dataclass(frozen=True, kw_only=True)
class Record:
    """The head of a run's config.yaml."""

    fingerprint: str
    init_sha256: str | None
    """Of the file that the encoder starts from, if any; of several, in order, with commas, and of
    several in one group with pluses."""
    origin: Origin | None = None
    made_by: tuple[Mapping[str, Any], ...]
    """The versions that worked on the run, each from a meta-step on; the newest last."""

    @property
    def initializations(self) -> list[str]:
        """The SHA-256 of each file that an encoder starts from."""
        return (self.init_sha256 or "").replace("+", ",").split(",")

    def write(self, folder: RunFolder, config: Config, *, without: Sequence[str] = ()) -> None:
        """Write what it takes to resume or to repeat a run, whose folder's lock must be held.

        Options that `without` has, by dotted name, stay unsaid as they were.
        """
        options = to_mapping(config)
        for name in without:
            *groups, last = name.split(".")
            group = options
            for part in groups:
                group = group[part]
            del group[last]
        head = {"command": config.command, **asdict(self), "made_by": list(self.made_by)}
        folder.write_config({**head, **options})


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What a run's config.yaml holds."""

    record: Record
    config: Config
    options: Mapping[str, Any]
    """Nested, as they are stored."""
    missing: tuple[str, ...]
    """Defining options, by dotted name, that the leap_rl which made the run did not know."""

    @property
    def maker(self) -> str:
        """The leap_rl that made it."""
        made_by = self.record.made_by
        return f"leap_rl {made_by[0]['leap_rl']}" if made_by else "an older leap_rl"


def read_run(folder: RunFolder) -> StoredRun:
    """Return what a run's config.yaml holds.

    Raises:
        RunFolderError: There is no run, its config is damaged, or there are links in its folder.
        ValueError: It is no config that leap_rl writes, or not that of its fingerprint.
    """
    if folder.exists():
        folder.refuse_links()
    options = folder.read_config()
    command = options.pop("command", None)
    if not isinstance(command, str) or command not in COMMANDS:
        raise ValueError(
            f"{folder.config_path}: command = {command!r}: must be one of {', '.join(COMMANDS)}"
        )
    record = _pop_record(options, folder)
    options["run_dir"] = folder.place
    try:
        # Reading imports nothing.
        config = parse_over(command, options, (), program="leap-rl resume", trusts_imports=True)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        maker = record.made_by[0]["leap_rl"] if record.made_by else "unknown"
        if maker not in ("unknown", __version__):
            error = ValueError(f"was made by leap_rl {maker}, and this is {__version__}: {error}")
        raise ValueError(f"{folder.config_path}: is not as leap-rl wrote it: {error}") from None
    missing = tuple(sorted(defining_options(config).keys() - flatten(options).keys()))
    content = record.origin.content if record.origin else None
    found = fingerprint(config, record.init_sha256, origin=content, without=missing)
    if found != record.fingerprint:
        raise ValueError(
            f"{folder.config_path}: was changed since the run was made (its fingerprint is another "
            "one); a run with other options is a new run"
        )
    return StoredRun(record=record, config=config, options=options, missing=missing)


def parse_over(
    command: str,
    stored: Mapping[str, Any],
    argv: Sequence[str],
    *,
    program: str,
    trusts_imports: bool,
) -> Config:
    """Return a command's config: stored options, and those of ``argv`` over them."""
    config = COMMANDS[command]
    parser = config_parser(config, program=program)
    return parse(parser, config, argv, defaults=stored, trusts_imports=trusts_imports)


def computes_here(config: Config) -> bool:
    """Whether a run's tasks are computed on this machine alone."""
    return config.runtime.kind == "local" or cluster_address(config.runtime.address) == LOCAL


def versions_here(config: Config, *, meta_step: int) -> dict[str, Any]:
    """Return what a run's bits depend on besides its config, from a meta-step on."""
    package = package_of(config.task.kind)  # that brings the family of tasks, if one does
    return {
        "meta_step": meta_step,
        "leap_rl": __version__,
        "python": platform.python_version(),
        **{name.replace("-", "_"): version(name) for name in PACKAGES},
        **({package[0].replace("-", "_"): package[1]} if package else {}),
        # A cluster's machines tell theirs with each task.
        "processor": processor_kind() if computes_here(config) else None,
    }


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what is another version, or another kind of processor, in words."""
    return [
        f"{name} {before[name]} (now {value})"
        for name, value in after.items()
        if name != "meta_step" and None not in (value, before.get(name)) and value != before[name]
    ]


def _pop_record(options: dict[str, Any], folder: RunFolder) -> Record:
    """Take the head out of a config."""
    head = {one.name: options.pop(one.name, None) for one in fields(Record)}
    try:
        origin = None if head["origin"] is None else checked(Origin, head["origin"])
        made_by = [{"leap_rl": "unknown", **versions} for versions in head["made_by"] or ()]
    except TypeError:
        raise ValueError(
            f"{folder.config_path}: is not as leap-rl wrote it: origin or made_by cannot be"
        ) from None
    return Record(
        fingerprint=str(head["fingerprint"]),
        init_sha256=head["init_sha256"],
        made_by=tuple(made_by),
        origin=origin,
    )
