"""What a run's config.yaml says: its options, those that define it, and what made it."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import metadata
from typing import Any

from leap_rl.core.determinism import processor_kind
from leap_rl.core.parsing import flatten, parse_options
from leap_rl.core.version import __version__
from leap_rl.evaluation.results import Training
from leap_rl.learners.registry import declared, package_of
from leap_rl.runs.config import COMMANDS, Config
from leap_rl.storage.dataclass_from_json import dataclass_from_json
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.runtime.ray.environment import LOCAL, cluster_address

# -- what defines a run -----------------------------------------------------------------------

OPERATIONAL = frozenset({"run_dir", "runtime", "tracking", "meta.meta_steps", "task.data", "clips"})
"""Options, or groups of them, that change no bit of what is computed. Data has its own digest."""


NEW_BITS: frozenset[str] = frozenset()
"""Defining options, by dotted name, whose default computes other bits than leap_rl did before it
had them. With those of all others an older run is what it was; one that lacks these is refused."""


def to_mapping(config: Config) -> dict[str, Any]:
    """Return the options as nested plain values, as YAML and the command line spell them.

    What a preset leaves open is spelled out, and what has no effect is left out.
    """
    options = asdict(config)
    options["task"]["atari"] = config.task.atari.resolved()
    for name in ("resolved_games", *config.task.without_effect):
        del options["task"][name]
    learner = declared(config.task, config.agent)
    ignored = () if learner is None else learner.ignored()
    for name in {*ignored, *config.agent.without_effect}:
        del options["agent"][name]
    return options


def defining_options(config: Config) -> dict[str, Any]:
    """Return what defines the run by dotted name, the games spelled out."""
    flat = flatten(to_mapping(config))
    flat["task.games"] = list(config.task.resolved_games)
    return {
        name: value
        for name, value in flat.items()
        if name not in OPERATIONAL and name.partition(".")[0] not in OPERATIONAL
    }


def fingerprint(
    config: Config,
    init_sha256: str | None,
    *,
    origin: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
) -> str:
    """Return the SHA-256, in hexadecimal, of what defines the run.

    Args:
        config: The run's config.
        init_sha256: Of the file that the encoder starts from, which counts instead of its path,
            or of all those files; none for a random start.
        origin: What says by its content which checkpoint a fork starts from; none for other runs.
        without: Options, by dotted name, that do not count: those that the leap_rl which made the
            run did not know.
    """
    options = defining_options(config)
    if init_sha256 is not None:
        options[config.init_option] = f"sha256:{init_sha256}"
    options = {name: value for name, value in options.items() if name not in without}
    document = {"command": config.command, "options": options}
    if origin is not None:
        document["origin"] = dict(origin)
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


# -- the head of the file ---------------------------------------------------------------------

PACKAGES = ("torch", "numpy", "ale-py", "gymnasium", "ray")
"""Besides leap_rl and Python: what the bits of a run depend on."""

FORMAT = 2
"""Of a run's folder; that of run folders without one was 1."""

LAST_TO_READ_OLDER = "33eab3b"
"""The last commit that reads folders of an older format."""

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
class RunHeader:
    """The head of a run's config.yaml."""

    fingerprint: str
    init_sha256: str | None
    """Of the file that the encoder starts from, if any; of several, in order, with commas, and of
    several in one group with pluses. `@mix=0.5` after it says a share less than all of it."""
    origin: Origin | None = None
    before: Training | None = None
    """What its start was trained on, where that is learned and known; see `LoadedRun.trained`."""
    made_by: tuple[Mapping[str, Any], ...]
    """The versions that worked on the run, each from a meta-step on; the newest last."""

    @property
    def initializations(self) -> list[str]:
        """The SHA-256 of each file that an encoder starts from."""
        return (self.init_sha256 or "").replace("+", ",").split(",")

    @property
    def first_checkpoint(self) -> int:
        """The number of the checkpoint that the run started with."""
        return self.origin.at if self.origin else 0


@dataclass(frozen=True, kw_only=True)
class LoadedRun:
    """A run that was made or read: its folder, and what its config.yaml holds."""

    folder: RunFolder
    header: RunHeader
    config: Config
    missing: tuple[str, ...] = ()
    """Defining options, by dotted name, that the leap_rl which made the run did not know."""

    @property
    def maker(self) -> str:
        """The leap_rl that made it."""
        return f"leap_rl {self.header.made_by[0]['leap_rl']}"

    def trained(self, number: int, agent_steps: int) -> Training | None:
        """Return what made a version: what the run learned, after what made its start.

        Args:
            number: The version's.
            agent_steps: Of the run's own agents until then, a fork's parent's among them.

        Returns:
            None where it is not known: of a start that was learned elsewhere, or if an older
            leap_rl made a run that does not begin at random.
        """
        head = self.header
        before = head.before
        if before is None and head.origin is None and head.init_sha256 is None:
            before = Training(agent_steps=0, games=())
        if before is None:
            return None
        own = self.config.task.resolved_games if number > head.first_checkpoint else ()
        games = tuple(dict.fromkeys((*before.games, *own)))
        return Training(agent_steps=before.agent_steps + agent_steps, games=games)

    @property
    def options(self) -> dict[str, Any]:
        """The config's options, nested, as they are stored."""
        options = to_mapping(self.config)
        for name in self.missing:
            *groups, last = name.split(".")
            group = options
            for part in groups:
                group = group[part]
            del group[last]
        return options

    def write(self) -> None:
        """Write what it takes to resume or to repeat the run; the folder's lock must be held."""
        head = {"format": FORMAT, "command": self.config.command, **asdict(self.header)}
        if (before := self.header.before) is not None:
            head["before"] = {**asdict(before), "games": list(before.games)}
        self.folder.write_config({**head, "made_by": list(self.header.made_by), **self.options})


def read_run(folder: RunFolder) -> LoadedRun:
    """Return what a run's config.yaml holds.

    Raises:
        RunFolderError: There is no run, an older leap_rl made it, its config is damaged, or there
            are links in its folder.
        ValueError: It is no config that leap_rl writes, or not that of its fingerprint.
    """
    if folder.exists():
        folder.refuse_links()
    options = folder.read_config()
    if options.pop("format", None) != FORMAT:
        raise RunFolderError(
            f"{folder.config_path}: was made by an older leap_rl, whose folders commit "
            f"{LAST_TO_READ_OLDER} reads last"
        )
    command = options.pop("command", None)
    if not isinstance(command, str) or command not in COMMANDS:
        raise ValueError(
            f"{folder.config_path}: command = {command!r}: must be one of {', '.join(COMMANDS)}"
        )
    header = _pop_header(options, folder)
    options["run_dir"] = folder.place
    try:
        # Reading imports nothing.
        config = parse_options(COMMANDS[command], {}, defaults=options, trusts_imports=True)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        maker = header.made_by[0]["leap_rl"]
        if maker != __version__:
            error = ValueError(f"was made by leap_rl {maker}, and this is {__version__}: {error}")
        raise ValueError(f"{folder.config_path}: is not as leap-rl wrote it: {error}") from None
    missing = tuple(sorted(defining_options(config).keys() - flatten(options).keys()))
    content = header.origin.content if header.origin else None
    found = fingerprint(config, header.init_sha256, origin=content, without=missing)
    if found != header.fingerprint:
        raise ValueError(
            f"{folder.config_path}: was changed since the run was made (its fingerprint is another "
            "one); a run with other options is a new run"
        )
    return LoadedRun(folder=folder, header=header, config=config, missing=missing)


def computes_here(config: Config) -> bool:
    """Whether a run's tasks are computed on this machine alone."""
    return config.runtime.kind == "local" or cluster_address(config.runtime.address) == LOCAL


def packages_here(config: Config) -> dict[str, str]:
    """Return the versions of the packages on which a run's bits depend, leap_rl's aside."""
    package = package_of(config.agent.algorithm)  # that brings the learner, if one does
    return {name: version(name) for name in PACKAGES} | dict([package] if package else [])


def versions_here(config: Config, *, meta_step: int) -> dict[str, Any]:
    """Return what a run's bits depend on besides its config, from a meta-step on."""
    return {
        "meta_step": meta_step,
        "leap_rl": __version__,
        "python": platform.python_version(),
        **{name.replace("-", "_"): one for name, one in packages_here(config).items()},
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


def _pop_header(options: dict[str, Any], folder: RunFolder) -> RunHeader:
    """Take the head out of a config."""
    head = {one.name: options.pop(one.name, None) for one in fields(RunHeader)}
    try:
        origin = None if head["origin"] is None else dataclass_from_json(Origin, head["origin"])
        if (before := head["before"]) is not None:
            before = {**before, "games": tuple(before["games"])}
            before = dataclass_from_json(Training, before)
        made_by = tuple(
            {**versions, "leap_rl": versions["leap_rl"]} for versions in head["made_by"]
        )
        known = all(
            isinstance(value, str | None) or (type(value) is int and 0 <= value < 2**63)
            for versions in made_by
            for value in versions.values()
        )
        own = all(isinstance(versions["leap_rl"], str) for versions in made_by)
        if not (made_by and known and own and isinstance(head["init_sha256"], str | None)):
            raise TypeError
    except (TypeError, KeyError):
        raise ValueError(
            f"{folder.config_path}: is not as leap-rl wrote it: origin, before or made_by cannot be"
        ) from None
    return RunHeader(
        fingerprint=str(head["fingerprint"]),
        init_sha256=head["init_sha256"],
        made_by=made_by,
        origin=origin,
        before=before,
    )
