"""A parameter server that is checked at each call against what was sent to it.

Each call is checked for what it may answer and what it may change; ``check`` looks at all that is
seen from outside: the status, the sums and the run's folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow.parquet as pq

from leap_rl.storage.run_folder import RunFolder
from leap_rl.training import messages
from leap_rl.training.rounds.plan import FilledSlot
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.server.rounds import LeasePolicy, Rounds
from leap_rl.training.server.slots import SlotFiles
from tests.training.fakes import FINGERPRINT, FakeClock, newest_sum
from tests.training.protocol_model import (
    Answer,
    Averaging,
    DiedError,
    Disk,
    Life,
    Message,
    episodes,
    segments,
    snapshot,
    total,
    undisturbed,
)

T = TypeVar("T", bound=Answer)

LEASE_S = 60.0
NAMES = ("a", "b", "c")

Key: TypeAlias = tuple[int, int]
"""Round and slot."""
Running: TypeAlias = dict[Key, tuple[str, int]]
"""The trainer and the attempt of each running slot."""


class Watched:
    """The server of a run in ``path``, whose trainers send what ``Life`` sends."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.folder, self.disk = RunFolder(path), disk
        first = Averaging.first()
        self.folder.write_checkpoint(0, first.files(), first.state())
        self.clock = FakeClock()

        self.lives: list[Life] = []
        self.kept: list[tuple[Life, Message]] = []  # all messages ever sent, and by whom
        self.dies_with_driver = False
        self.checked_rounds = 0
        # What the server may know of claims: the newest that may have arrived since the driver
        # started, the newest that did since the server did, and what it answered since.
        self.newest: dict[str, tuple[int, int]] = {}
        self.known: dict[str, tuple[int, int]] = {}
        self.answered: dict[tuple[str, int, int], messages.Ticket] = {}
        # Claims that a server may have handed a slot to before it died, or its disk failed.
        self.unanswered: set[tuple[str, int, int]] = set()
        self.streamed: set[messages.Ticket] = set()
        # Of slots: the newest attempt seen, to which claim each was handed out, the attempt that
        # was answered Counted, and whether this server did.
        self.attempts: dict[Key, int] = {}
        self.handed: dict[tuple[int, int, int], tuple[str, int, int]] = {}
        self.counted: dict[Key, int] = {}
        self.counted_here: set[Key] = set()
        # Of segments: between which n the sum is, the greatest n called durable, and the n of the
        # snapshots that owners sent.
        self.between: dict[Key, tuple[int, int]] = {}
        self.durable: dict[Key, int] = {}
        self.snapshots: dict[Key, set[int]] = {}
        # The time that counts against leases, and when each slot was last heard of.
        self.lived_s = 0.0
        self.heard_s: dict[Key, float] = {}

        self.drivers = 0
        self.start_server(trainers_live=False)

    def check(self) -> None:
        """See that all is as an undisturbed run would have it."""
        self._each_slot_is_what_its_newest_attempt_made_it()
        self._each_closed_round_is_that_of_an_undisturbed_run()

    # -- what holds at any time ---------------------------------------------------------------

    def _each_slot_is_what_its_newest_attempt_made_it(self) -> None:
        status = self.server.status()
        running = self.running()
        assert status.failure is None
        assert status.round == self.folder.latest()
        owners = [trainer for trainer, _ in running.values()]
        assert len(owners) == len(set(owners)), "a trainer works on one task at a time"
        complete = 0
        for slot in range(status.slots_total):
            key = (status.round, slot)
            files = self._files(key)
            filled, stored = files.read_result(), files.read_snapshot(restarts=0)
            n, newest = newest_sum(self.server, slot)
            if newest is None:
                assert n == 0
            else:
                np.testing.assert_array_equal(newest, total(*key, n))
            if filled is not None:
                assert isinstance(filled, FilledSlot)
                complete += 1
                assert key not in running
                assert filled.attempt == self.counted.get(key, filled.attempt)
                np.testing.assert_array_equal(filled.contribution, total(*key, segments(*key)))
                assert filled.episodes.returns.tolist() == episodes(*key).returns.tolist()
                assert n in (segments(*key), 0)  # 0 where it was read from disk
                continue
            assert key not in self.counted, "what counts is on disk"
            low, high = self.between[key]
            assert low <= n <= high, (key, low, n, high)
            durable_n = 0 if stored is None else stored.n
            assert durable_n >= self.durable.get(key, 0)
            if stored is not None:
                assert stored.n in self.snapshots[key]
                np.testing.assert_array_equal(stored.snapshot, snapshot(*key, stored.n))
                np.testing.assert_array_equal(stored.contribution, total(*key, stored.n))
        assert complete == status.slots_complete

    def _each_closed_round_is_that_of_an_undisturbed_run(self) -> None:
        closed = self.server.status().round
        for number in range(self.checked_rounds, closed):
            result = undisturbed()[number]
            files, state = self.folder.read_checkpoint(number + 1)
            assert files == result.files
            assert state["rows"] == result.rows
            assert state.items() >= result.state.items()
            slots = state["slots"]
            assert [slot["seed"] for slot in slots] == [spec.seed for spec in result.specs]
            for index, slot in enumerate(slots):
                attempt = slot["attempt"]
                assert attempt == self.counted.get((number, index), attempt)
                assert slot["trainer"] == self.handed[number, index, attempt][0]
            assert pq.read_table(self.folder.curves(number)).to_pydict() == result.curves
            assert not self.folder.slots(number).exists()
        self.checked_rounds = closed

    # -- calls, each with what it must answer and may change ----------------------------------

    def advance(
        self, life: Life, updates: int, *, snapshots: bool = False, fate: str = "heard"
    ) -> Message:
        message = life.advance(updates, snapshots=snapshots)
        self.kept.append((life, message))
        if fate != "lost":
            self.deliver(life, message, heard=fate == "heard")
        return message

    def deliver(self, life: Life, message: Message, *, heard: bool) -> None:
        if isinstance(message, messages.Claim):
            answer: Answer | None = self._claim(message)
        elif isinstance(message, messages.Stream):
            answer = self._stream(message)
        else:
            answer = self._complete(message)
        if heard and answer is not None:
            life.hear(message, answer)

    def _claim(self, message: messages.Claim) -> messages.Work | None:
        before, newest = self.running(), self._note_claim(message)
        work = self._call(lambda: self.server.claim(message))
        if work is None:
            self._note_unanswered(message)
        else:
            self._check_work(message, work, before, newest)
        return work

    def _stream(self, message: messages.Stream) -> messages.Continue | messages.Abandon | None:
        before, contents = self.running(), self._contents()
        key = (message.ticket.round, message.ticket.slot)
        owns = key in before and before[key][1] == message.ticket.attempt
        if owns:
            low, high = self.between[key]
            self.between[key] = (low, max(high, message.n))
            self.heard_s[key] = self.lived_s
            self.streamed.add(message.ticket)
            if message.snapshot is not None:
                self.snapshots.setdefault(key, set()).add(message.n)
        answer = self._call(lambda: self.server.stream(message))
        if answer is None:
            return None
        assert self.running() == before
        assert isinstance(answer, messages.Continue) == owns, (message.ticket, before, answer)
        if isinstance(answer, messages.Continue):
            low, high = self.between[key]
            self.between[key] = (max(low, message.n), high)
            stored = self._files(key).read_snapshot(restarts=0)
            assert answer.durable_n <= (0 if stored is None else stored.n)
            if message.snapshot is not None:
                assert answer.durable_n >= message.n
            self.durable[key] = max(self.durable.get(key, 0), answer.durable_n)
        else:
            assert self._contents() == contents
        return answer

    def _complete(self, message: messages.Complete) -> messages.Counted | messages.Abandon | None:
        before, newest = self.running(), self._note_claim(message.claim)
        contents, ticket = self._contents(), message.ticket
        key = (ticket.round, ticket.slot)
        owns = key in before and before[key][1] == ticket.attempt
        counts = self._attempt_on_disk(key) == ticket.attempt
        # A server that was made again remembers the last round.
        remembered = ticket.round >= self.server.status().round - 1 or key in self.counted_here
        answer = self._call(lambda: self.server.complete(message))
        if answer is None:
            self._note_unanswered(message.claim)
            return None
        if isinstance(answer, messages.Abandon):
            assert not owns, (ticket, before)
            assert not (counts and remembered), ticket
            assert self.running() == before
            assert self._contents() == contents
            return answer
        assert owns or counts, (ticket, before)
        assert self._attempt_on_disk(key) == ticket.attempt, "on disk before it is answered"
        self.counted[key] = ticket.attempt
        self.counted_here.add(key)
        if owns:
            del before[key]
        self._check_work(message.claim, answer.next, before, newest)
        return answer

    def _note_claim(self, message: messages.Claim) -> tuple[int, int]:
        """Note a claim that may arrive; returns the newest one of its trainer before it."""
        newest = self.newest.get(message.trainer, (0, 0))
        self.newest[message.trainer] = max(newest, (message.incarnation, message.number))
        return newest

    def _note_unanswered(self, message: messages.Claim) -> None:
        self.unanswered.add((message.trainer, message.incarnation, message.number))

    def _check_work(
        self, message: messages.Claim, work: messages.Work, before: Running, newest: tuple[int, int]
    ) -> None:
        name, number = message.trainer, (message.incarnation, message.number)
        status, after = self.server.status(), self.running()
        before = {key: owner for key, owner in before.items() if key[0] == status.round}
        assert _of_others(after, name) == _of_others(before, name)
        known = self.known.get(name, (0, 0))
        if number < known:  # overtaken, or of a dead one
            assert after == before
            # A server whose disk was full knows the newer life whose claim it could not answer.
            failed = [life for trainer, life, _ in self.unanswered if trainer == name]
            if number[0] == known[0] and max(failed, default=0) > number[0]:
                assert isinstance(work, messages.Wait | messages.Finished)
            else:
                assert isinstance(
                    work, messages.Wait if number[0] == known[0] else messages.Finished
                )
            return
        self.known[name] = number
        if isinstance(work, messages.Assignment):
            ticket = self.answered.setdefault((name, *number), work.ticket)
            assert work.ticket == ticket, "the same claim gets the same answer"
            attempt, who = (ticket.round, ticket.slot, ticket.attempt), (name, *number)
            assert self.handed.setdefault(attempt, who) == who, "handed out twice"
            if after != before:
                self._check_assignment((name, *number), work, after)
            return
        handed = self.answered.get((name, *number))
        if isinstance(work, messages.Finished):
            assert status.finished or number[0] < newest[0]
        elif handed is not None:  # its trainer has it, or comes back with its next number
            lost = after.get((handed.round, handed.slot)) != (name, handed.attempt)
            assert lost or handed in self.streamed
        elif number < newest:
            pass  # overtaken by one that arrived at another server
        elif (name, *number) in self.unanswered:
            # Its slot may be lost since: its trainer comes back with its next number. Or the
            # trainer has asked again, and streams.
            streamed = {(one.round, one.slot, one.attempt) for one in self.streamed}
            held = {(*key, attempt) for key, (trainer, attempt) in after.items() if trainer == name}
            assert held <= streamed
        else:
            assert status.slots_complete + len(after) == status.slots_total, "work is left"
            assert after, "nobody works, so nobody will"

    def _check_assignment(
        self, who: tuple[str, int, int], work: messages.Assignment, after: Running
    ) -> None:
        key, attempt = (work.ticket.round, work.ticket.slot), work.ticket.attempt
        assert after[key] == (who[0], attempt)
        result = undisturbed()[key[0]]
        spec = result.specs[key[1]]
        assert (work.game, work.task_seed) == (spec.game, spec.seed)
        np.testing.assert_array_equal(work.theta0, result.theta0)
        stored = self._files(key).read_snapshot(restarts=0)
        assert work.durable_n == (0 if stored is None else stored.n)
        assert (work.snapshot is None) == (stored is None)
        if work.snapshot is not None:
            np.testing.assert_array_equal(work.snapshot, snapshot(*key, work.durable_n))
            self.durable[key] = work.durable_n

    def lose(self, name: str) -> None:
        """Tell the server that a trainer is dead."""
        before = self.running()
        self.server.trainer_lost(name, "killed")
        assert self.running() == _of_others(before, name)

    def heartbeat(self, life: Life) -> None:
        before = self.running()
        self.server.heartbeat(life.name, life.incarnation)
        assert self.running() == before
        for key, (_, attempt) in before.items():
            if self.handed.get((*key, attempt), ())[:2] == (life.name, life.incarnation):
                self.heard_s[key] = self.lived_s

    def die(self, *, with_driver: bool) -> None:
        """End the server between two calls and start the next."""
        before = self.running()
        self.start_server(trainers_live=not with_driver)
        if with_driver:
            assert not self.running()
        else:
            assert before.items() <= self.running().items(), "owners stay for one more lease"

    def tick(self, seconds: float) -> None:
        before = self.running()
        self.clock.now_s += seconds
        self.lived_s += min(seconds, LEASE_S / 4)
        self.server.tick()
        after = self.running()
        assert after.items() <= before.items()
        for key in before.keys() - after.keys():
            assert self.lived_s - self.heard_s[key] > LEASE_S, "a lease was cut short"

    def _call(self, call: Callable[[], T]) -> T | None:
        """Return the server's answer; none if it died before it gave one, or its disk was full."""
        try:
            answer = call()
            self.disk.change(may_be_full=False)
        except DiedError:
            self.start_server(trainers_live=not self.dies_with_driver)
            return None
        except OSError:
            self._note_attempts()
            return None
        self._note_attempts()
        return answer

    def start_server(self, *, trainers_live: bool) -> None:
        self.drivers += not trainers_live
        died = False
        while True:
            try:
                rounds = Rounds(
                    folder=self.folder,
                    fingerprint=FINGERPRINT,
                    plan=Averaging.restored(self.folder),
                    lease_policy=LeasePolicy(lease_s=LEASE_S, max_attempts=10**6),
                    session=f"driver {self.drivers}",
                    # A server that dies at its start has another in its place, which only the
                    # leases' session tells that the trainers are new.
                    trainers_live=trainers_live or died,
                    clock=self.clock,
                )
                self.server = ParameterServer(rounds=rounds)
                break
            except (DiedError, OSError):
                died = True
        running = self.running()
        self.known, self.counted_here = {}, set()
        self.answered = {
            self.handed[*key, attempt]: ticket
            for key, (_, attempt) in running.items()
            if (*key, attempt) in self.handed
            for ticket in [
                messages.Ticket(fingerprint=FINGERPRINT, round=key[0], slot=key[1], attempt=attempt)
            ]
        }
        if not trainers_live:
            self.newest = {}
            for life in self.lives:
                life.over = True
            self.lives += [Life(name, 1) for name in NAMES]
        self._note_attempts(all_anew=True)

    def _note_attempts(self, *, all_anew: bool = False) -> None:
        """See to new attempts, which start from what is on disk."""
        running, status = self.running(), self.server.status()
        for slot in range(status.slots_total):
            key = (status.round, slot)
            attempt = running[key][1] if key in running else 0
            newest = self.attempts.get(key, 0)
            assert attempt == 0 or attempt >= newest, "attempts only grow"
            if all_anew or attempt > newest or key not in self.between:
                stored = self._files(key).read_snapshot(restarts=0)
                n = 0 if stored is None else stored.n
                self.between[key] = (n, n)
                self.heard_s[key] = self.lived_s
            self.attempts[key] = max(newest, attempt)

    # -- what is seen from outside ------------------------------------------------------------

    def running(self) -> Running:
        status = self.server.status()
        return {(status.round, task.slot): (task.trainer, task.attempt) for task in status.running}

    def _files(self, key: Key) -> SlotFiles:
        spec = undisturbed()[key[0]].specs[key[1]]
        return SlotFiles(self.folder.slot(*key), spec, FINGERPRINT, folder=self.folder)

    def _attempt_on_disk(self, key: Key) -> int | None:
        """The attempt that filled a slot, as the folder says."""
        latest = self.folder.latest()
        assert latest is not None
        if key[0] < latest:
            attempt: int = self.folder.read_state(key[0] + 1)["slots"][key[1]]["attempt"]
            return attempt
        filled = self._files(key).read_result()
        return None if filled is None else filled.attempt

    def _contents(self) -> dict[str, bytes]:
        """All that is on disk of the open round."""
        paths = self.folder.slots(self.server.status().round).glob("*")
        return {path.name: path.read_bytes() for path in paths}


def _of_others(running: Running, trainer: str) -> Running:
    return {key: owner for key, owner in running.items() if owner[0] != trainer}
