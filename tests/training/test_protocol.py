"""A contribution counts once, whatever is repeated, overtaken, lost or dead, and whenever.

Hypothesis drives the plain server over a real folder with arbitrary interleavings; what is wrong
shows after the step that did it. `make test` tries the same examples each time, `make test-chaos`
many new ones.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import Claim, Complete, Continue, Finished, Stream, Ticket
from tests.training.fakes import FakeClock, FakePlan, assigned, claim, make_server, with_snapshot
from tests.training.protocol_model import BATCH, ROUNDS, Disk, Life, Message, undisturbed
from tests.training.protocol_watch import LEASE_S, NAMES, Watched

TICK_S = 10.0

picks = st.integers(0, 11)
"""Which of those there are, counted from the newest."""
seldom = st.sampled_from([False, False, True])
faults = st.lists(
    st.tuples(st.sampled_from(["die", "full"]), st.integers(0, 12)), min_size=1, max_size=2
)


class Protocol(RuleBasedStateMachine):
    """Trainers, messages, deaths, time and a disk that fails, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.cleanup = ExitStack()
        path = Path(tempfile.mkdtemp())
        self.cleanup.callback(shutil.rmtree, path)
        disk = Disk()
        self.cleanup.enter_context(disk.installed())
        self.run = Watched(path, disk)

    @initialize(tasks=st.integers(0, BATCH * 2), same_server=st.booleans())
    def choose_start_and_end(self, tasks: int, same_server: bool) -> None:
        self.finish_tasks(0, tasks)
        self.ends_with_same_server = same_server

    # -- what trainers do ---------------------------------------------------------------------

    @rule(
        who=picks,
        updates=st.integers(0, 3),
        snapshots=st.booleans(),
        fate=st.sampled_from(["heard", "heard", "answer lost", "lost"]),
    )
    def advance(self, who: int, updates: int, snapshots: bool, fate: str) -> None:
        """A trainer trains a little and sends what it then has to say, perhaps in vain."""
        living = [life for life in self.run.lives if not life.over]
        if living:
            self.run.advance(
                living[-1 - who % len(living)], updates, snapshots=snapshots, fate=fate
            )

    @rule(who=picks, trouble=st.sampled_from(["none", "overtaken", "disk full"]))
    def snapshots(self, who: int, trouble: str) -> None:
        """A trainer trains a little and sends a snapshot."""
        at_work = [life for life in self.run.lives if life.trains]
        if not at_work:
            return
        life = at_work[-1 - who % len(at_work)]
        if trouble == "disk full":
            self.run.disk.faults = [("full", 0)]
            self.run.advance(life, 1, snapshots=True)
            self.run.disk.faults = []
            self.run.advance(life, 0)
        elif trouble == "overtaken":
            overtaken = self.run.advance(life, 1, snapshots=True, fate="lost")
            self.run.advance(life, 1, snapshots=True)
            self.run.deliver(life, overtaken, heard=True)
        else:
            self.run.advance(life, 1, snapshots=True)

    @rule(who=picks, tasks=st.integers(1, 3))
    def finish_tasks(self, who: int, tasks: int) -> None:
        """A trainer gets to the end of its task, and of the next."""
        living = [life for life in self.run.lives if not life.over]
        if living:
            self._finish_tasks(living[-1 - who % len(living)], tasks)

    def _finish_tasks(self, life: Life, tasks: int) -> None:
        for _ in range(3 * tasks):
            if not life.over and tasks > 0:
                tasks -= isinstance(self.run.advance(life, 9), Complete)

    @precondition(lambda self: self.run.kept)
    @rule(
        kind=st.sampled_from([Claim, Stream, Complete]),
        which=st.integers(0, 50),
        heard=st.booleans(),
    )
    def repeat(self, kind: type[Message], which: int, heard: bool) -> None:
        """A message arrives late, or again, perhaps after a long time."""
        kept = [sent for sent in self.run.kept if isinstance(sent[1], kind)]
        if kept:
            self.run.deliver(*kept[-1 - which % len(kept)], heard=heard)

    @rule(
        name=st.sampled_from(NAMES),
        told=st.booleans(),
        lives_on=st.booleans(),
        both_finish=st.booleans(),
    )
    def replace(self, name: str, told: bool, lives_on: bool, both_finish: bool) -> None:
        """A trainer is dead, or taken for dead, and is started from scratch."""
        mine = [life for life in self.run.lives if life.name == name]
        for life in mine:
            life.over = life.over or not lives_on
        if told:
            self.lose(name)
        self.run.lives.append(Life(name, mine[-1].incarnation + 1))
        if both_finish:
            for life in (self.run.lives[-1], mine[-1]):
                self._finish_tasks(life, 1)

    @rule(name=st.sampled_from(NAMES))
    def lose(self, name: str) -> None:
        self.run.lose(name)

    @rule(who=picks)
    def heartbeat(self, who: int) -> None:
        self.run.heartbeat(self.run.lives[-1 - who % len(self.run.lives)])

    # -- time, death and the disk -------------------------------------------------------------

    @rule(
        ticks=st.lists(st.sampled_from([TICK_S, TICK_S, 100 * TICK_S]), min_size=1, max_size=9),
        sign_of_life=st.sampled_from(["none", "stream", "heartbeat"]),
        who=picks,
    )
    def pass_time(self, ticks: list[float], sign_of_life: str, who: int) -> None:
        """A server that stalls hears nobody meanwhile, which is not the trainers' fault."""
        for seconds in ticks:
            self.run.tick(seconds)
            if sign_of_life == "stream":
                self.advance(who, 0, snapshots=False, fate="heard")
            elif sign_of_life == "heartbeat":
                self.heartbeat(who)

    @rule(comes_back=st.booleans(), server_dies=st.booleans(), who=picks)
    def expire(self, comes_back: bool, server_dies: bool, who: int) -> None:
        """No trainer is heard of for a lease; then one is, and claims again."""
        self._expire()
        if comes_back:
            for _ in range(3):
                self.advance(who, 0, snapshots=False, fate="heard")
        if server_dies:
            self.run.die(with_driver=False)

    def _expire(self) -> None:
        started_s = self.run.lived_s
        while self.run.running():
            assert self.run.lived_s <= started_s + LEASE_S + TICK_S, "a lease that does not end"
            self.run.tick(TICK_S)

    @rule(with_driver=seldom, asked_again=st.booleans())
    def die(self, with_driver: bool, asked_again: bool) -> None:
        """The server dies between two calls, alone or with the driver and all trainers."""
        asked = {id(life): (life, sent) for life, sent in self.run.kept if type(sent) is not Stream}
        self.run.die(with_driver=with_driver)
        if asked_again:
            for life, message in asked.values():
                if not life.over:
                    self.run.deliver(life, message, heard=True)

    @rule(faults=faults, with_driver=seldom)
    def fail_soon(self, faults: list[tuple[str, int]], with_driver: bool) -> None:
        """A write will fail, or the server will die before or in the middle of one."""
        self.run.disk.faults = list(faults)
        self.run.dies_with_driver = with_driver

    @invariant()
    def nothing_is_lost_or_counted_twice(self) -> None:
        self.run.check()

    def teardown(self) -> None:
        with self.cleanup:
            if sys.exc_info()[0] is None:
                self._end()

    def _end(self) -> None:
        """One trainer finishes the run from wherever it stands."""
        self.run.disk.faults = []
        if self.ends_with_same_server:
            self._expire()
            life = Life("last", 1)
        else:
            self.run.die(with_driver=True)
            life = self.run.lives[-1]
        for _ in range(2 * ROUNDS * BATCH + 2):
            if not life.over:
                self.run.advance(life, 9)
        assert self.run.server.status().finished
        self.run.check()
        assert self.run.folder.read_checkpoint(ROUNDS)[0] == undisturbed()[-1].files


class StopsInTime(RuleBasedStateMachine):
    """One slot whose trainers get lost, told or untold, over restarts of the server."""

    MAX_ATTEMPTS = 3

    def __init__(self) -> None:
        super().__init__()
        self.cleanup = ExitStack()
        path = Path(tempfile.mkdtemp())
        self.cleanup.callback(shutil.rmtree, path)
        self.cleanup.enter_context(Disk().installed())
        self.folder = RunFolder(path)
        self.clock = FakeClock()
        self.claims = 0
        self.n = 0
        self.ticket: Ticket | None = None
        self.newest: Ticket | None = None
        self.losses = self.losses_at_claim = 0
        self.drivers = 0
        self._start_server(trainers_live=False)

    @precondition(lambda self: self.ticket is None)
    @rule()
    def claims_it(self) -> None:
        self.claims += 1
        work = self.server.claim(claim(f"trainer-{self.claims}"))
        if self.losses >= self.MAX_ATTEMPTS:
            assert work == Finished()
        else:
            self.ticket, self.holder = assigned(work).ticket, f"trainer-{self.claims}"
            self.newest, self.losses_at_claim = self.ticket, self.losses
            assert assigned(work).durable_n == self.n

    @precondition(lambda self: self.ticket is not None)
    @rule()
    def gets_further(self) -> None:
        self.n += 1
        assert self.server.stream(with_snapshot(self.ticket, self.n)) == Continue(durable_n=self.n)
        self.losses = self.losses_at_claim = 0

    @precondition(lambda self: self.ticket is not None)
    @rule(told=st.booleans())
    def is_lost(self, told: bool) -> None:
        if told:
            self.server.trainer_lost(self.holder, "killed")
        else:
            for _ in range(7):
                self.clock.now_s += TICK_S
                self.server.tick()
        self.losses += 1
        self.ticket = None

    @rule(trainers_live=st.booleans())
    def server_dies(self, trainers_live: bool) -> None:
        if trainers_live and self.newest is not None:
            # The slot stays with its owner for one more lease; losing it counts when that is over.
            self.ticket, self.losses = self.newest, self.losses_at_claim
        else:
            self.ticket, self.newest, self.losses = None, None, 0
        self._start_server(trainers_live=trainers_live)

    @invariant()
    def the_run_stops_when_trainers_are_lost_in_vain(self) -> None:
        status = self.server.status()
        assert (status.failure is not None) == (self.losses >= self.MAX_ATTEMPTS)
        assert [task.attempt for task in status.running] == (
            [] if self.ticket is None else [self.ticket.attempt]
        )

    def teardown(self) -> None:
        self.cleanup.close()

    def _start_server(self, *, trainers_live: bool) -> None:
        self.drivers += not trainers_live
        self.server = make_server(
            self.folder,
            FakePlan(rounds=1, batch=1),
            self.clock,
            max_attempts=self.MAX_ATTEMPTS,
            trainers_live=trainers_live,
            session=f"driver {self.drivers}",
        )


def run(machine: type[RuleBasedStateMachine], *, examples: int, fresh: bool = False) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            derandomize=not fresh,
            phases=(Phase.generate, Phase.shrink),
            database=None,
            deadline=None,
            print_blob=fresh,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)
def test_a_contribution_counts_once_in_any_order() -> None:
    run(Protocol, examples=80)


def test_a_slot_that_loses_trainers_in_vain_stops_the_run_in_any_order() -> None:
    run(StopsInTime, examples=40)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_a_contribution_counts_once_in_many_more_orders() -> None:
    run(Protocol, examples=2000, fresh=True)
    run(StopsInTime, examples=600, fresh=True)
