"""The order of fsync, rename and unlink: a power cut, or a death, between any two of them.

A disk is modelled as what is sure to be on it: of a file what it held at its last fsync, of a
folder the names that it had at its own. What was done since may be lost. Or it may be there: all of
it, as after the death of a process, or any one renamed or removed name without the others.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from leap_rl.runs.config import TrainConfig
from leap_rl.runs.creation import create_run
from leap_rl.runs.header import read_run
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import Assignment, Continue, Counted
from leap_rl.training.server.parameter_server import ParameterServer
from tests.commands import parsed
from tests.training.fakes import (
    FINGERPRINT,
    FakePlan,
    assigned,
    claim,
    complete,
    make_server,
    with_snapshot,
)

CALLS = ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir")
SLOTS = 2


class Disk:
    """Notes what is sure to be on the disk below a folder, and calls `check` before each change."""

    def __init__(self, root: Path, check: Callable[[Path], None]) -> None:
        self.root = root
        self._check = check
        self._images = root.parent / "images"
        self._names: dict[int, dict[str, int]] = {root.stat().st_ino: {}}
        self._contents: dict[int, bytes] = {}
        self._folders = {root.stat().st_ino}
        self._held: list[int] = []
        self._seen: set[object] = set()
        self.promises = 0
        self.calls: list[str] = []
        self._busy = False

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Listen to the calls that change the disk."""
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **more: Any) -> Any:
            if not self._busy:
                self.calls.append(name)
                self.cut()
            if name != "fsync":
                return call(*arguments, **more)
            if not self._busy:  # it is modelled, and so need not be waited for
                self._synced(arguments[0])
            return None

        return wrapped

    def _synced(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._held.append(os.dup(descriptor))  # or its inode's number may be used again
        path = Path(f"/proc/self/fd/{descriptor}")
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = self._listed(path)
        else:
            self._contents[status.st_ino] = path.read_bytes()

    def _listed(self, folder: Path) -> dict[str, int]:
        entries = list(os.scandir(folder))
        self._folders |= {entry.inode() for entry in entries if entry.is_dir()}
        return {entry.name: entry.inode() for entry in entries}

    def cut(self) -> None:
        """Check every disk that a power cut or a death may leave now."""
        self._busy = True
        for number, names in enumerate(self._possible()):
            image = self._images / str(number)
            self._build(image, self.root.stat().st_ino, names)
            self._look_at(image)
        image = self._images / "death"
        shutil.copytree(self.root, image)
        self._look_at(image)
        self._busy = False

    def _look_at(self, image: Path) -> None:
        files = {str(p.relative_to(image)): p.read_bytes() for p in image.rglob("*") if p.is_file()}
        key = (self.promises, tuple(sorted(files.items())))
        if key not in self._seen:
            self._seen.add(key)
            self._check(image)
        shutil.rmtree(image)

    def _possible(self) -> Iterator[dict[int, dict[str, int]]]:
        """Yield what is sure, and what is sure with one more name as it is now."""
        yield self._names
        for folder in (self.root, *(path for path in self.root.rglob("*") if path.is_dir())):
            inode = folder.stat().st_ino
            sure, now = self._names.get(inode, {}), self._listed(folder)
            for name in sorted(sure.keys() | now.keys()):
                if sure.get(name) != now.get(name):
                    one = {**sure, name: now.get(name, 0)}
                    yield {**self._names, inode: {k: v for k, v in one.items() if v}}

    def _build(self, image: Path, inode: int, names: dict[int, dict[str, int]]) -> None:
        image.mkdir(parents=True)
        for name, below in names.get(inode, {}).items():
            if below in self._folders:
                self._build(image / name, below, names)
            else:
                (image / name).write_bytes(self._contents.get(below, b""))


def plan() -> FakePlan:
    return FakePlan(rounds=2, batch=SLOTS, saves_agents=True)


def agent(round_number: int) -> dict[str, Any]:
    return {"weight": np.full(3, round_number, dtype=np.float32)}


class Promises:
    """What the server has answered; none of it may be lost."""

    def __init__(self) -> None:
        self.made: bool = False
        self.closed = 0
        self.counted: set[int] = set()
        """Slots of the open round."""
        self.durable: dict[int, int] = {}
        self.attempts: dict[int, int] = {}

    def check(self, image: Path) -> None:
        """See them kept by the server that finds this disk."""
        folder = RunFolder(image / "run")
        if folder.latest() is None:
            assert not self.made
            return
        assert folder.fall_back(FINGERPRINT) is None
        server = make_server(folder, plan())
        standing = server.status()
        assert standing.round >= self.closed
        self._check_agents(folder, server)
        for index, slot in enumerate(server.rounds.open_round.slots):
            if slot.result is None and standing.round == self.closed:
                assert index not in self.counted, "a slot that counted is lost"
                assert slot.durable_n >= self.durable.get(index, 0), "a snapshot is lost"
                assert slot.attempt >= self.attempts.get(index, 0), "an attempt comes twice"
        for number in range(
            standing.slots_total - standing.slots_complete
        ):  # whose agents are read on the way
            work = assigned(server.claim(claim("new", number=1 + number, incarnation=9)))
            assert (work.carried_agent is not None) == (
                standing.round > 0 and work.snapshot is None
            )
            server.complete(complete(work.ticket, claim("new", number=2 + number, incarnation=9)))

    def _check_agents(self, folder: RunFolder, server: ParameterServer) -> None:
        """Whatever counts has its agent."""
        number = server.status().round
        done = [slot.index for slot in server.rounds.open_round.slots if slot.result is not None]
        for slot in range(SLOTS):
            path = folder.agent(slot, f"game_{slot}")
            if slot in done or number > 0:
                rounds = set(load_file(path)["weight"].tolist())
                # The agent of a slot may be there before the slot counts, and never after.
                assert rounds <= ({number} if slot in done else {number - 1, number})


def test_nothing_that_was_answered_is_lost_to_a_power_cut_or_a_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promises = Promises()
    disk = Disk(make_root(tmp_path), promises.check)
    disk.patch(monkeypatch)
    folder = RunFolder(disk.root / "run")
    server = make_server(folder, plan())
    promises.made = True
    disk.promises += 1
    work: object = server.claim(claim(number=1))
    number = 1
    while isinstance(work, Assignment):
        ticket = work.ticket
        promises.attempts[ticket.slot] = ticket.attempt
        disk.promises += 1
        answer = server.stream(with_snapshot(ticket, 3))
        assert answer == Continue(durable_n=3)
        promises.durable[ticket.slot] = 3
        disk.promises += 1
        number += 1
        message = complete(ticket, claim(number=number))
        kept = np.frombuffer(b"an agent", dtype=np.uint8)
        counted = server.complete(replace(message, agent=agent(ticket.round), carried_agent=kept))
        assert isinstance(counted, Counted)
        promises.counted.add(ticket.slot)
        if server.status().round > promises.closed:
            promises.closed += 1
            promises.counted, promises.durable, promises.attempts = set(), {}, {}
        disk.promises += 1
        work = counted.next
    assert promises.closed == 2
    disk.cut()
    assert disk.calls.count("fsync") > 40
    assert len(disk._seen) > 60


def test_a_folder_that_is_a_run_has_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []

    def check(image: Path) -> None:
        folder = RunFolder(image / "runs" / "new")
        made.append(folder.exists())
        if made[-1]:
            assert folder.fall_back(read_run(folder).header.fingerprint) is None

    disk = Disk(make_root(tmp_path), check)
    new = disk.root / "runs" / "new"
    config = parsed(TrainConfig, "--config", "debug", "--run_dir", new)
    disk.patch(monkeypatch)
    create_run(config)
    disk.cut()
    assert made[0] is False
    assert made[-2:] == [True, True]


def make_root(tmp_path: Path) -> Path:
    root = tmp_path / "disk"
    root.mkdir()
    return root
