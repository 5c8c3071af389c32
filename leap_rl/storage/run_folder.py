"""A run's folder: its paths, and writes that are there whole or not at all.

    RUN/config.yaml                     the resolved config with its fingerprint
    RUN/checkpoints/000012/             the run between two rounds, written aside, then renamed
        initialization.safetensors      the shared parameters by name
        outer_optimizer.safetensors     the outer optimizer's state
        state.json                      what is in the folder, with SHA-256 sums; the round's rows
    RUN/checkpoints/latest              the newest checkpoint's number, moved last
    RUN/slots/000012/007.safetensors    a completed slot of the open round
    RUN/carried_over/000012/pong.safetensors
                                        an agent as round 12 left it, for methods that carry it over
    RUN/curves/000012.parquet           the episodes of round 12
    RUN/agents/                         trained agents, where asked for
    RUN/live.json                       how the run stands, while its driver lives; for display only
    RUN/.lock                           held by the driver that works here, and who that is
    RUN/.server                         held by its parameter server

Everything is safetensors, JSON, Parquet and plain YAML: opening a stranger's run runs no code.
config.yaml and state.json carry a sum of their own contents, and state.json those of the
checkpoint's files, so that damage to any file that a run is resumed from is noticed; curves and
agents are results, which no run reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from leap_rl.core import plain_yaml
from leap_rl.storage.durable_files import write_folder
from leap_rl.storage.links import read_regular
from leap_rl.storage.locked_folder import LockedFolder, RunFolderError
from leap_rl.storage.state_file import CHECKSUM, checksum, decode_state, encode_state

LATEST = "latest"
BEST = "best"
STATE = "state.json"
INITIALIZATION = "initialization.safetensors"
LONGEST_NUMBER = 18
"""Digits of a checkpoint's number."""
MIRRORED = ".mirror.json"
"""In this machine's copy of a run in an object store: which files the store has."""


class RunFolder(LockedFolder):
    """Reads and writes one run's folder on a local or shared file system.

    One that lives in an object store is a `leap_rl.storage.run_folders.StoredRunFolder`.
    """

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
        document = {CHECKSUM: checksum(config), **config}  # first, so that a cut is noticed
        self.write(self.config_path, plain_yaml.dump(document).encode())

    def read_config(self) -> dict[str, Any]:
        """Return the resolved config.

        Raises:
            RunFolderError: There is none, it is no YAML mapping of plain values, or it was changed
                since it was written.
        """
        if not self.exists():
            raise RunFolderError(
                f"{self.place}: no run is here (config.yaml is missing); `leap-rl train` makes one"
            )
        try:
            content = read_regular(self.config_path, 4 * plain_yaml.LARGEST + 1)
            config = plain_yaml.load(content.decode("utf-8"))
        except OSError as error:
            raise RunFolderError(f"{self.config_path}: cannot be read: {error.strerror}") from None
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
        """Keep other processes from working in the folder.

        Raises:
            RunFolderError: Another one does, there are symbolic links in it, or it is a mere copy
                of a run in an object store.
        """
        if self.url is None and (self.path / MIRRORED).exists():
            url = self.read_config().get("run_dir") if self.exists() else "s3://... or gs://..."
            raise RunFolderError(
                f"{self.path}: is this machine's copy of a run in an object store; name the run by "
                f"its URL, {url}"
            )
        with super().lock():
            yield

    # -- checkpoints --------------------------------------------------------------------------

    def checkpoint(self, number: int) -> Path:
        """Return the folder of checkpoint ``number``, with its files."""
        return self._checkpoint(number)

    def _checkpoint(self, number: int) -> Path:
        return self.path / "checkpoints" / f"{number:06d}"

    def latest(self) -> int | None:
        """Return the newest checkpoint's number, or none before the first."""
        return self._pointer(LATEST)

    def best(self) -> int | None:
        """Return the number of the checkpoint that was best in validation, or none."""
        return self._pointer(BEST)

    def point_best(self, number: int) -> None:
        """Write that checkpoint ``number`` was best in validation."""
        self._point(BEST, number)

    def _point(self, name: str, number: int) -> None:
        self.write(self.path / "checkpoints" / name, f"{number:06d}\n".encode())

    def _pointer(self, name: str) -> int | None:
        pointer = self.path / "checkpoints" / name
        try:
            text = read_regular(pointer, 64).strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunFolderError(f"{pointer}: cannot be read: {error.strerror}") from None
        if not text.isdigit() or len(text) > LONGEST_NUMBER:
            raise RunFolderError(f"{pointer}: holds {text!r}, which is no checkpoint's number")
        return int(text)

    def checkpoints(self) -> list[int]:
        """Return the numbers of all checkpoints, damaged or not, in order."""
        names = [path.name for path in (self.path / "checkpoints").glob("[0-9]*")]
        return sorted(int(name) for name in names if name.isdecimal())

    def fall_back(self, fingerprint: str) -> str | None:
        """Make `latest` name the newest whole checkpoint; the folder's lock must be held.

        Checkpoints with another fingerprint are taken for damaged.

        Returns:
            None where all is well; else one line that says what is damaged, and from which
            checkpoint the run resumes.

        Raises:
            RunFolderError: No checkpoint is whole.
        """
        damage: RunFolderError | None = None
        newest = None
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
                    self.remove(slots)  # they grew from a checkpoint that is made again
            self._point(LATEST, number)
            reason = damage or f"{self.path / 'checkpoints' / LATEST}: is missing"
            return f"{reason}; resuming from checkpoint {number}, which is whole"
        raise RunFolderError(
            f"{damage}; no other checkpoint is whole: start from scratch in another folder"
            if damage
            else f"{self.path}: has no checkpoint; start from scratch in another folder"
        )

    def write_checkpoint(
        self,
        number: int,
        files: Mapping[str, bytes],
        state: Mapping[str, Any],
        *,
        before_latest: Callable[[], None] = lambda: None,
    ) -> None:
        """Write checkpoint ``number`` whole, then point ``latest`` to it.

        Args:
            number: How many rounds are behind it.
            files: Contents by file name.
            state: The content of state.json besides the files' SHA-256 sums; `rows`, if any, too.
            before_latest: Called when the checkpoint is written, before `latest` names it.

        Raises:
            OSError: It could not be written; older checkpoints are as before.
        """
        self.check()
        content = {**files, STATE: encode_state(number, files, state)}
        # Where one is already, a crash came between the renaming and the move of `latest`.
        write_folder(self._checkpoint(number), content, root=self.path)
        before_latest()
        self._point(LATEST, number)

    def read_state(self, number: int) -> dict[str, Any]:
        """Return checkpoint ``number``'s state.json.

        Raises:
            RunFolderError: It is missing or damaged.
        """
        path = self._checkpoint(number) / STATE
        try:
            return decode_state(read_regular(path), number)
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be read: {error}") from None
        except ValueError as error:
            raise RunFolderError(f"{path}: {error}") from None

    def refuse_foreign(self, state: Mapping[str, Any], fingerprint: str) -> None:
        """Raise a RunFolderError for a checkpoint's state from a run with another fingerprint."""
        if state.get("fingerprint", fingerprint) != fingerprint:
            raise RunFolderError(
                f"{self._checkpoint(state['number'])}: belongs to another run than config.yaml"
            )

    def read_checkpoint(self, number: int) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Return checkpoint ``number``'s files by name and its state, their sums checked.

        Raises:
            RunFolderError: Something is missing or is not what was written.
        """
        state = self.read_state(number)
        return {name: self.read_file(name, state) for name in state["sha256"]}, state

    def read_file(self, name: str, state: Mapping[str, Any]) -> bytes:
        """Return a file of the checkpoint whose state is given, its sum checked.

        Raises:
            RunFolderError: It is missing or is not what was written.
        """
        path = self.checkpoint(state["number"]) / name
        try:
            data = read_regular(path)
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be read: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != state["sha256"].get(name):
            raise RunFolderError(f"{path}: is damaged (its SHA-256 is not the one recorded)")
        return data

    def thin_out(self, keep: int) -> None:
        """Remove parameters but of the ``keep`` newest checkpoints, the first and the best."""
        there = self.checkpoints()
        newest = [number for number in there if number <= (self.latest() or 0)][-keep:]
        for number in sorted({*there} - {*newest, *there[:1], self.best()}):
            for path in self._checkpoint(number).glob("*.safetensors"):
                self.remove(path)

    def is_thinned_out(self, number: int) -> bool:
        """Whether checkpoint ``number`` has its state.json, and no parameters any more."""
        folder = self.checkpoint(number)  # with its files, where they are not fetched yet
        return (folder / STATE).exists() and not any(folder.glob("*.safetensors"))

    # -- slots, curves, agents ----------------------------------------------------------------

    def slots(self, round_number: int) -> Path:
        """Return the folder of the completed slots of one round."""
        return self.path / "slots" / f"{round_number:06d}"

    def slot(self, round_number: int, slot: int) -> Path:
        """Return the file of one completed slot."""
        return self.slots(round_number) / f"{slot:03d}.safetensors"

    def remove_slots(self, round_number: int) -> None:
        """Remove the completed slots of a round, which a checkpoint now holds."""
        self.remove(self.slots(round_number), ignore_errors=True)

    def curves(self, round_number: int) -> Path:
        """Return the file of one round's episodes."""
        return self.path / "curves" / f"{round_number:06d}.parquet"

    def carried_agent(self, round_number: int, game: str) -> Path:
        """Return the file of an agent that is carried over from one round to the next."""
        return self.path / "carried_over" / f"{round_number:06d}" / f"{file_name(game)}.safetensors"

    def carried_rounds(self) -> list[Path]:
        """Return the folders of the rounds that left such agents, in order."""
        return sorted(
            path for path in (self.path / "carried_over").glob("[0-9]*") if path.name.isdecimal()
        )

    def agent(self, slot: int, game: str) -> Path:
        """Return the file of a trained agent."""
        return self.path / "agents" / f"{slot:03d}_{file_name(game)}.safetensors"


def file_name(game: str) -> str:
    """Return a game's name as part of a file's: ids such as MinAtar/Asterix-v1 have a slash."""
    return game.replace("/", "+")  # no name has one before its first @, nor a slash after it
