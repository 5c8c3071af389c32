"""A run's folder: its paths, and writes that are there whole or not at all.

    RUN/config.yaml                     the resolved config with its fingerprint
    RUN/checkpoints/000012/             the run between two rounds, written aside, then renamed
        initialization.safetensors      the shared parameters by name
        outer_optimizer.safetensors     the outer optimizer's state
        state.json                      what is in the folder, with SHA-256 sums; the round's rows
    RUN/checkpoints/latest              the newest checkpoint's number, moved last
    RUN/slots/000012/007.safetensors    a completed slot of the open round
    RUN/curves/000012.parquet           the episodes of round 12
    RUN/agents/                         trained agents, where asked for
    RUN/.lock                           held by the process that works here

Everything is safetensors, JSON, Parquet and plain YAML: opening a stranger's run runs no code.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

LATEST = "latest"
STATE = "state.json"
SCHEMA = 1


class RunFolderError(ValueError):
    """A run's folder lacks something, or what it holds is damaged."""


class RunFolder:
    """Reads and writes one run's folder on a local or shared file system."""

    def __init__(self, path: str | Path) -> None:
        if "://" in str(path):
            raise RunFolderError(
                f"run_dir = {path}: must be a path on this machine; object stores are not "
                "supported yet"
            )
        self.path = Path(path).absolute()

    # -- the config ---------------------------------------------------------------------------

    @property
    def config_path(self) -> Path:
        """Where the resolved config lies."""
        return self.path / "config.yaml"

    def exists(self) -> bool:
        """Whether a run was made here."""
        return self.config_path.exists()

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the resolved config; plain scalars, lists and mappings only."""
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        write_atomically(self.config_path, text.encode())

    def read_config(self) -> dict[str, Any]:
        """Return the resolved config.

        Raises:
            RunFolderError: There is none, or it is no YAML mapping of plain values.
        """
        if not self.exists():
            raise RunFolderError(
                f"{self.path}: no run is here (config.yaml is missing); `leap-rl train` makes one"
            )
        try:
            config = yaml.safe_load(self.config_path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise RunFolderError(f"{self.config_path}: cannot be read: {reason}") from None
        if not isinstance(config, dict):
            raise RunFolderError(f"{self.config_path}: must hold a mapping of options")
        return config

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes of this machine from working in the folder.

        Raises:
            RunFolderError: Another one does.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "a", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(
                    f"{self.path}: another process works in this run's folder; wait for it, stop "
                    "it, or choose another folder"
                ) from None
            yield

    # -- checkpoints --------------------------------------------------------------------------

    def checkpoint(self, number: int) -> Path:
        """Return the folder of checkpoint ``number``."""
        return self.path / "checkpoints" / f"{number:06d}"

    def latest(self) -> int | None:
        """Return the newest checkpoint's number, or none before the first."""
        pointer = self.path / "checkpoints" / LATEST
        if not pointer.exists():
            return None
        text = pointer.read_text(encoding="utf-8").strip()
        if not text.isdecimal():
            raise RunFolderError(f"{pointer}: holds {text!r}, which is no checkpoint's number")
        return int(text)

    def write_checkpoint(
        self, number: int, files: Mapping[str, bytes], state: Mapping[str, Any]
    ) -> None:
        """Write checkpoint ``number`` whole, then point ``latest`` to it.

        Args:
            number: How many rounds are behind it.
            files: Contents by file name.
            state: What goes into state.json besides the files' SHA-256 sums; `rows`, if any, too.
        """
        target = self.checkpoint(number)
        aside = target.with_name(f".{target.name}.tmp")
        # Left by a crash between the rename and the move of `latest`: the same step again.
        for leftover in (aside, target):
            shutil.rmtree(leftover, ignore_errors=True)
        aside.mkdir(parents=True)
        manifest = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        document = {"schema": SCHEMA, "number": number, "sha256": manifest, "rows": [], **state}
        for name, data in files.items():
            _write_synced(aside / name, data)
        _write_synced(aside / STATE, _json_bytes(document))
        _sync_folder(aside)
        aside.rename(target)
        _sync_folder(target.parent)
        write_atomically(target.parent / LATEST, f"{number:06d}\n".encode())

    def read_state(self, number: int) -> dict[str, Any]:
        """Return checkpoint ``number``'s state.json.

        Raises:
            RunFolderError: It is missing or damaged.
        """
        path = self.checkpoint(number) / STATE
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path}: cannot be read: {error}") from None
        whole = (
            isinstance(state, dict)
            and state.get("schema") == SCHEMA
            and isinstance(state.get("sha256"), dict)
            and isinstance(state.get("rows"), list)
        )
        if not whole:
            raise RunFolderError(f"{path}: is not a checkpoint of this version of leap_rl")
        return dict(state)

    def read_checkpoint(self, number: int) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Return checkpoint ``number``'s files by name and its state, their sums checked.

        Raises:
            RunFolderError: Something is missing or is not what was written.
        """
        state = self.read_state(number)
        files = {}
        for name, digest in state["sha256"].items():
            path = self.checkpoint(number) / Path(name).name
            try:
                data = path.read_bytes()
            except OSError as error:
                raise RunFolderError(f"{path}: cannot be read: {error.strerror}") from None
            if hashlib.sha256(data).hexdigest() != digest:
                raise RunFolderError(f"{path}: is damaged (its SHA-256 is not the one recorded)")
            files[name] = data
        return files, state

    # -- slots, curves, agents ----------------------------------------------------------------

    def slots(self, round_number: int) -> Path:
        """Return the folder of the completed slots of one round."""
        return self.path / "slots" / f"{round_number:06d}"

    def slot(self, round_number: int, slot: int) -> Path:
        """Return the file of one completed slot."""
        return self.slots(round_number) / f"{slot:03d}.safetensors"

    def remove_slots(self, round_number: int) -> None:
        """Remove the completed slots of a round that a checkpoint has taken in."""
        shutil.rmtree(self.slots(round_number), ignore_errors=True)

    def curves(self, round_number: int) -> Path:
        """Return the file of one round's episodes."""
        return self.path / "curves" / f"{round_number:06d}.parquet"

    def agent(self, slot: int, game: str) -> Path:
        """Return the file of a trained agent."""
        return self.path / "agents" / f"{slot:03d}_{game}.safetensors"


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` such that a crash leaves the old content or the new, synced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.tmp")
    _write_synced(aside, data)
    os.replace(aside, path)
    _sync_folder(path.parent)


def _write_synced(path: Path, data: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # a full disk does not say of which file
        raise OSError(error.errno, error.strerror, str(path)) from None


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _json_bytes(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
