"""A run's folder: its paths, and atomic writes.

    RUN/config.yaml                     the resolved config with its fingerprint
    RUN/checkpoints/000012/             the run between two rounds; appears by a rename
        initialization.safetensors      the shared parameters by name
        outer_optimizer.safetensors     the outer optimizer's state
        state.json                      what is in the folder, with SHA-256 sums; the round's rows
    RUN/checkpoints/latest              the newest checkpoint's number, written last
    RUN/slots/000012/007.safetensors    a completed slot of the open round
    RUN/carried_over/000012/pong.safetensors
                                        an agent after round 12, for methods that carry it over
    RUN/curves/000012.parquet           the episodes of round 12
    RUN/agents/                         trained agents, if asked for
    RUN/live.json                       status of the run while its driver lives; for display
    RUN/.lock                           locked by the driver; names its process
    RUN/.server                         locked by the parameter server

Everything is safetensors, JSON, Parquet and plain YAML: opening a stranger's run runs no code.
config.yaml and state.json carry a checksum of themselves, and state.json the SHA-256 of the
checkpoint's files and of the round's curves and agents: damage to whatever is read is noticed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from leap_rl.core import plain_yaml
from leap_rl.core.regular_file import LARGEST, read_regular
from leap_rl.storage.checksummed_file import CHECKSUM, checksum, decode_state, encode_state
from leap_rl.storage.durable_files import write_folder
from leap_rl.storage.locked_folder import LockedFolder, RunFolderError

LATEST = "latest"
BEST = "best"
STATE = "state.json"
SEALED = "sealed"
"""Key in state.json: the SHA-256 of the round's results, by name in the run's folder."""
INITIALIZATION = "initialization.safetensors"
LONGEST_NUMBER = 18
"""Digits of a checkpoint's number."""
LONGEST_NAME = 239
"""Bytes of a game's name in a file's, which are 255 with the slot's number and the suffix."""
MIRRORED = ".mirror.json"
"""In the working copy of a remote run: which files the store has."""


class RunFolder(LockedFolder):
    """Reads and writes one run's folder on a local or shared file system.

    `leap_rl.storage.open_run.RemoteRunFolder` is one in an object store. What is missing or damaged
    is a RunFolderError when it is read.
    """

    @property
    def config_path(self) -> Path:
        return self.path / "config.yaml"

    def exists(self) -> bool:
        return self.config_path.exists()

    def write_config(self, config: Mapping[str, Any]) -> None:
        document = {CHECKSUM: checksum(config), **config}  # first, so that a cut is noticed
        text = plain_yaml.dump(document)
        try:
            plain_yaml.check(text)
        except yaml.YAMLError as error:  # a resume could not read it
            reason = " ".join(str(error).split())
            raise RunFolderError(f"{self.config_path}: cannot be written: {reason}") from None
        self.write(self.config_path, text.encode())

    def read_config(self) -> dict[str, Any]:
        """Return the resolved config; one that was edited is damaged."""
        if not self.exists():
            made = "`leap-rl train` makes one"
            if (self.path / "study.yaml").exists():
                made = "it is a study's: name one of its runs, as best_start in estimates.json does"
            raise RunFolderError(f"{self.place}: no run is here (config.yaml is missing); {made}")
        content = _read(self.config_path, 4 * plain_yaml.LARGEST + 1)
        try:
            config = plain_yaml.load(content.decode("utf-8"))
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise RunFolderError(f"{self.config_path}: cannot be read: {reason}") from None
        if not isinstance(config, dict):
            raise RunFolderError(f"{self.config_path}: must hold a mapping of options")
        if CHECKSUM in config and config.pop(CHECKSUM) != checksum(config):
            raise RunFolderError(
                f"{self.config_path}: was changed since the run was made, or is damaged; options "
                "are changed on the command line of `leap-rl resume` or `leap-rl fork`"
            )
        return config

    @contextmanager
    def lock(self) -> Iterator[None]:
        if self.url is None and (self.path / MIRRORED).exists():
            url = self.read_config().get("run_dir") if self.exists() else "s3://... or gs://..."
            raise RunFolderError(
                f"{self.path}: is this machine's copy of a run in an object store; name the run by "
                f"its URL, {url}"
            )
        with super().lock():
            yield

    def checkpoint(self, number: int) -> Path:
        return self._checkpoint(number)

    def _checkpoint(self, number: int) -> Path:
        return self.path / "checkpoints" / f"{number:06d}"

    def latest(self) -> int | None:
        return self._pointer(LATEST)

    def best(self) -> int | None:
        return self._pointer(BEST)

    def point_best(self, number: int) -> None:
        self._point(BEST, number)

    def _point(self, name: str, number: int) -> None:
        self.write(self.path / "checkpoints" / name, f"{number:06d}\n".encode())

    def _pointer(self, name: str) -> int | None:
        pointer = self.path / "checkpoints" / name
        if not os.path.lexists(pointer):
            return None
        text = _read(pointer, 64).strip()
        if not text.isdigit() or len(text) > LONGEST_NUMBER:
            raise RunFolderError(f"{pointer}: holds {text!r}, which is no checkpoint's number")
        return int(text)

    def checkpoints(self) -> list[int]:
        """Return all checkpoints' numbers in order, damaged ones included."""
        names = [path.name for path in (self.path / "checkpoints").glob("[0-9]*")]
        return sorted(int(name) for name in names if name.isdecimal())

    def fall_back(self, fingerprint: str) -> str | None:
        """Make `latest` name the newest whole checkpoint; the folder's lock must be held.

        Checkpoints with another fingerprint count as damaged. Returns one line that says what is
        damaged and from which checkpoint the run resumes; None if nothing is.
        """
        newest, damage = None, None
        try:
            newest = self.latest()
        except RunFolderError as error:
            damage = error
        numbers = self.checkpoints()
        if newest is not None:
            numbers = [number for number in numbers if number < newest] + [newest]
        for number in reversed(numbers):
            try:
                _, state = self.read_checkpoint(number)
                self.refuse_foreign(state, fingerprint)
            except RunFolderError as error:
                damage = damage or error
                continue
            if number == newest and damage is None:
                return None
            for slots in (self.path / "slots").glob("[0-9]*"):
                if slots.name.isdecimal() and int(slots.name) > number:
                    self.remove(slots)  # they started from a checkpoint that is computed again
            self._point(LATEST, number)
            reason = damage or f"{self.path / 'checkpoints' / LATEST}: is missing"
            return f"{reason}; resuming from checkpoint {number}, which is whole"
        none = (
            f"{damage}; no other checkpoint is whole:"
            if damage
            else f"{self.path}: has no checkpoint;"
        )
        raise RunFolderError(f"{none} start from scratch in another folder")

    def write_checkpoint(
        self,
        number: int,
        files: Mapping[str, bytes],
        state: Mapping[str, Any],
        *,
        before_latest: Callable[[], None] = lambda: None,
    ) -> None:
        """Write checkpoint ``number``, which has so many rounds behind it, then `latest`.

        After an OSError older checkpoints are as before. ``state`` is the content of state.json
        without the files' SHA-256 sums. ``before_latest`` is called before `latest` is written.
        """
        self.check()
        content = {**files, STATE: encode_state(number, files, state)}
        # After a crash between the rename and the write of `latest` the checkpoint exists.
        write_folder(self._checkpoint(number), content, root=self.path)
        before_latest()
        self._point(LATEST, number)

    def read_state(self, number: int) -> dict[str, Any]:
        path = self._checkpoint(number) / STATE
        content = _read(path)
        try:
            return decode_state(content, number)
        except ValueError as error:
            raise RunFolderError(f"{path}: {error}") from None

    def refuse_foreign(self, state: Mapping[str, Any], fingerprint: str) -> None:
        if state.get("fingerprint", fingerprint) != fingerprint:
            raise RunFolderError(
                f"{self._checkpoint(state['number'])}: belongs to another run than config.yaml"
            )

    def read_checkpoint(self, number: int) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Return checkpoint ``number``'s files by name, their checksums verified, and its state."""
        state = self.read_state(number)
        return {name: self.read_file(name, state) for name in state["sha256"]}, state

    def read_file(self, name: str, state: Mapping[str, Any]) -> bytes:
        """Return a file of the checkpoint with this state, its checksum verified."""
        path = self.checkpoint(state["number"]) / name
        return _read_sealed(path, state["sha256"].get(name, ""))

    def rows(self) -> list[dict[str, float | int]]:
        """Return the rows that the run has logged, or will when it is resumed.

        They are those of the checkpoints, which are sealed; metrics.jsonl has a copy.
        """
        states = map(self.read_state, self.checkpoints())
        return [row["values"] for state in states for row in state["rows"]]

    def name_of(self, path: Path) -> str:
        """Return a path's name in the folder."""
        return path.relative_to(self.path).as_posix()

    def read_result(self, path: Path, state: Mapping[str, Any]) -> bytes:
        """Return one of a round's curves or agents, its checksum in this state verified.

        States that an older leap_rl wrote have no checksums of these.
        """
        sealed = state.get(SEALED, {})
        name = self.name_of(path)
        return _read_sealed(path, sealed[name]) if name in sealed else _read(path)

    def thin_out(self, keep: int) -> None:
        """Remove all parameters except those of the ``keep`` newest, first and best checkpoints."""
        there = self.checkpoints()
        newest = [number for number in there if number <= (self.latest() or 0)][-keep:]
        for number in sorted({*there} - {*newest, *there[:1], self.best()}):
            for path in self._checkpoint(number).glob("*.safetensors"):
                self.remove(path)

    def is_thinned_out(self, number: int) -> bool:
        """Whether checkpoint ``number`` has its state.json but no parameters any more."""
        folder = self.checkpoint(number)  # which fetches the files of a remote run
        return (folder / STATE).exists() and not any(folder.glob("*.safetensors"))

    def slots(self, round_number: int) -> Path:
        return self.path / "slots" / f"{round_number:06d}"

    def slot(self, round_number: int, slot: int) -> Path:
        return self.slots(round_number) / f"{slot:03d}.safetensors"

    def remove_slots(self, round_number: int) -> None:
        self.remove(self.slots(round_number), ignore_errors=True)

    def curves(self, round_number: int) -> Path:
        return self.path / "curves" / f"{round_number:06d}.parquet"

    def carried_agent(self, round_number: int, game: str) -> Path:
        return self.path / "carried_over" / f"{round_number:06d}" / f"{file_name(game)}.safetensors"

    def carried_rounds(self) -> list[Path]:
        folders = (self.path / "carried_over").glob("[0-9]*")
        return sorted(path for path in folders if path.name.isdecimal())

    def agent(self, slot: int, game: str) -> Path:
        return self.path / "agents" / f"{slot:03d}_{file_name(game)}.safetensors"


def _read_sealed(path: Path, sha256: str) -> bytes:
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RunFolderError(f"{path}: is damaged (its SHA-256 is not the one recorded)")
    return data


def _read(path: Path, largest: int = LARGEST) -> bytes:
    try:
        return read_regular(path, largest)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read: {error.strerror}") from None


def file_name(game: str, longest: int = LONGEST_NAME) -> str:
    """Return a game's name as part of a file's: ids such as MinAtar/Asterix-v1 have a slash.

    Of a long one its first part and a digest, as file systems take names of up to 255 bytes.
    """
    name = game.replace("/", "+")  # no name has one before its first @, nor a slash after it
    whole = name.encode()
    if len(whole) <= longest:
        return name
    digest = hashlib.sha256(whole).hexdigest()[:16]
    return f"{whole[: longest - 17].decode(errors='ignore')}~{digest}"
