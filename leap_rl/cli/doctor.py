"""``leap-rl doctor``: is this machine fit to run, and if not, what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from leap_rl.cli import command_parser
from leap_rl.core.lines import say
from leap_rl.core.machine import cores, memory
from leap_rl.core.version import __version__
from leap_rl.runs.invocation import Invocation

GIB = 2**30
LEAST_DISK_GIB = 5
LEAST_MEMORY_GIB = 4
OPTIONAL = ("av", "tensorboard")
"""For clips in MP4, and looking at TensorBoard's files."""


class TroubleError(Exception):
    """What is wrong, and the way out."""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns 0, or 1 if something is wrong."""
    parser = command_parser(
        "doctor",
        "Check this machine, a line for each thing: what it is, or what is wrong and "
        "the way out. Exits with 1 if something is wrong.",
    )
    parser.parse_args(argv)
    healthy = True
    for name, check in _checks():
        try:
            verdict, text = "ok ", check()
        except TroubleError as trouble:
            verdict, text, healthy = "BAD", str(trouble), False
        say(f"{verdict} {name:<12} {text}")
    return 0 if healthy else 1


def _checks() -> Iterator[tuple[str, Callable[[], str]]]:
    yield "leap_rl", _leap_rl
    yield "python", lambda: f"{sys.version.split()[0]} at {sys.executable}"
    for requirement in _requirements():
        yield requirement.name, partial(_package, requirement)
    yield "processor", _processor
    yield "memory", _memory
    yield "disk", _disk
    yield "roms", _roms
    yield "ray", _ray


def _leap_rl() -> str:
    if not _is_installed("leap-rl"):
        raise TroubleError("is a copy that is not installed: no versions are compared")
    return __version__


def _requirements() -> list[Requirement]:
    """Return this package's own requirements, then those of extras that are here."""
    texts = requires("leap-rl") if _is_installed("leap-rl") else None
    all_of_them = [Requirement(text) for text in texts or ()]
    own = [r for r in all_of_them if r.marker is None or r.marker.evaluate({"extra": ""})]
    optional = {r.name: r for r in all_of_them if r.name in OPTIONAL and _is_installed(r.name)}
    return own + list(optional.values())


def _is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def _package(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    way_out = f"pip install '{requirement.name}{extras}{requirement.specifier}'"
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        raise TroubleError(f"is not installed; {way_out}") from None
    if not requirement.specifier.contains(installed, prereleases=True):
        raise TroubleError(
            f"{installed} is installed, {requirement.specifier} is needed; {way_out}"
        )
    return installed


def _processor() -> str:
    from leap_rl.core.determinism import processor_kind

    return f"{cores()} cores, {processor_kind()}"


def _memory() -> str:
    total, free = (size / GIB for size in memory())
    if total < LEAST_MEMORY_GIB:
        raise TroubleError(f"{total:.1f} GiB; Ray and two trainers need {LEAST_MEMORY_GIB} GiB")
    return f"{total:.1f} GiB, {free:.1f} GiB free"


def _disk() -> str:
    here = Path.cwd()
    free = shutil.disk_usage(here).free / GIB
    if free < LEAST_DISK_GIB:
        raise TroubleError(f"{free:.1f} GiB free at {here}; make room, or set --run_dir elsewhere")
    if not os.access(here, os.W_OK):
        raise TroubleError(f"{here} cannot be written to; set --run_dir to where it can")
    return f"{free:.1f} GiB free at {here}"


def _roms() -> str:
    from leap_rl.envs.atari.games import ACTION_COUNTS, missing_roms

    missing = missing_roms()
    if missing:
        raise TroubleError(
            f"missing: {', '.join(missing)}; ale-py ships them: pip install --force-reinstall "
            f"ale-py=={version('ale-py')}"
        )
    return f"all {len(ACTION_COUNTS)} games"


def _ray() -> str:
    from leap_rl.core.errors import RunFailedError
    from leap_rl.training.runtime.ray.environment import probe_own_cluster

    try:
        seconds = probe_own_cluster()
    except (RunFailedError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise TroubleError(
            f"no cluster could be started here ({reason}); --runtime.kind local works without"
        ) from None
    return f"a cluster of our own started and answered in {seconds:.1f} s"
