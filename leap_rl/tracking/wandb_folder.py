"""leap_rl's own files in a run's `wandb` folder. Imports no wandb.

RUN/wandb/run_id.txt                    the wandb run's id, for resumes
RUN/wandb/sources.json                  the initializations that the run starts from
RUN/wandb/offline-run-.../*.synced      marks a file that `wandb sync` skips
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load

from leap_rl.core import plain_json
from leap_rl.core.regular_file import LARGEST_TEXT, read_regular
from leap_rl.storage.durable_files import write_atomically
from leap_rl.storage.run_folder import INITIALIZATION

ARTIFACT_TYPE = "initialization"
"""The artifacts' type, and the first part of their names."""

_ID = re.compile(r"[^\s/\\#?%:]{1,128}")
_ARTIFACT = re.compile(rf"{ARTIFACT_TYPE}-[\w.-]{{1,100}}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Source:
    """An initialization from another wandb run, from which this run starts."""

    artifact: str
    """The other run's artifact, of which equal content is one version."""
    file: str
    sha256: str
    meta_step: int


def artifact_name(run_id: str) -> str:
    """Return the name of a wandb run's artifact, whose versions are its initializations."""
    plain = re.sub(r"[^\w.-]", "_", run_id[:100], flags=re.ASCII)
    return f"{ARTIFACT_TYPE}-{plain}"


def run_id(run_folder: Path) -> str:
    """Return the id in the run's folder; a new one, of `WANDB_RUN_ID` in a sweep, is written."""
    path = run_folder / "wandb" / "run_id.txt"
    if (known := _read_id(path)) is not None:
        return known
    new = os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)
    write_atomically(path, f"{new}\n".encode(), root=run_folder)
    return new


def note_sources(run_folder: Path, files: Iterable[str | Path]) -> None:
    """Write down the files that a new run starts from, if they are checkpoints of wandb runs."""
    with suppress(OSError):  # which costs an edge in wandb's graph
        found = [source for file in files if (source := _source(str(file))) is not None]
        if found:
            path = run_folder / "wandb" / "sources.json"
            text = json.dumps([asdict(one) for one in found], indent=1)
            write_atomically(path, text.encode(), root=run_folder)


def read_sources(run_folder: Path) -> list[Source]:
    """Return the noted sources that are unchanged initializations: the folder is untrusted."""
    path = run_folder / "wandb" / "sources.json"
    try:
        noted = [Source(**one) for one in plain_json.load(read_regular(path, LARGEST_TEXT))]
        return [source for source in noted if _is_as_noted(source)]
    except (OSError, ValueError, TypeError):
        return []  # which costs an edge in wandb's graph


def pass_over_older_files(run_folder: Path) -> None:
    """Mark older offline files for `wandb sync`: the newest one has the whole run."""
    for folder in (run_folder / "wandb").glob("offline-run-*"):
        for file in folder.glob("*.wandb"):
            mark = file.with_name(file.name + ".synced")
            if not (folder.is_symlink() or mark.is_symlink()):
                mark.touch()


def _source(file: str) -> Source | None:
    if "://" in file:
        return None
    path = Path(file).absolute()
    checkpoint = path.parent
    known = _read_id(checkpoint.parent.parent / "wandb" / "run_id.txt")
    is_checkpoint = checkpoint.parent.name == "checkpoints" and checkpoint.name.isdecimal()
    if known is None or not is_checkpoint or path.name != INITIALIZATION:
        return None
    digest = hashlib.sha256(read_regular(path)).hexdigest()
    name = artifact_name(known)
    return Source(artifact=name, file=str(path), sha256=digest, meta_step=int(checkpoint.name))


def _is_as_noted(source: Source) -> bool:
    path = Path(source.file)
    is_file = path.name == INITIALIZATION and path.is_file() and not path.is_symlink()
    if not is_file or not _ARTIFACT.fullmatch(source.artifact):
        return False
    data = read_regular(path)
    try:
        load(data)
    except (SafetensorError, KeyError):
        return False
    return hashlib.sha256(data).hexdigest() == source.sha256


def _read_id(path: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        text = read_regular(path, 1024).decode().strip()
        return text if _ID.fullmatch(text) else None
    return None
