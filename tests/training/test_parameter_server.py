from __future__ import annotations

import errno
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from leap_rl.messages import Abandon, Continue, Counted, Finished, Ticket, Wait, Work
from leap_rl.run_folder import RunFolder, RunFolderError
from leap_rl.tasks.task import TaskSpec
from leap_rl.training.errors import NonFiniteContributionError, ProtocolError
from leap_rl.training.parameter_server import ParameterServer
from leap_rl.training.rounds import FilledSlot
from leap_rl.training.slot_files import SlotFiles
from tests.training.fakes import (
    FINGERPRINT,
    SIZE,
    FakeClock,
    FakePolicy,
    assigned,
    claim,
    complete,
    contribution,
    frozen,
    make_server,
    stream,
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


@pytest.fixture
def policy() -> FakePolicy:
    return FakePolicy()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(folder: RunFolder, policy: FakePolicy, clock: FakeClock) -> ParameterServer:
    return make_server(folder, policy, clock)


def test_claims_get_the_slots_in_order_then_wait(server: ParameterServer) -> None:
    tickets = [assigned(server.claim(claim(trainer))).ticket for trainer in "abc"]
    assert [(t.round, t.slot, t.attempt) for t in tickets] == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    assert server.claim(claim("d")) == Wait()


def test_an_assignment_says_what_to_train_and_from_where(server: ParameterServer) -> None:
    work = assigned(server.claim(claim("a")))
    assert (work.game, work.task_seed, work.keep_agent) == ("game_0", 0, False)
    np.testing.assert_array_equal(work.theta0, np.zeros(SIZE, dtype=np.float32))


def test_a_repeated_claim_gets_the_same_answer(server: ParameterServer) -> None:
    first = server.claim(claim("a", number=1))
    assert server.claim(claim("a", number=1)) is first
    assert server.status().running[0].attempt == 1


def test_a_claim_that_waited_is_answered_when_a_slot_is_free(server: ParameterServer) -> None:
    for trainer in "abc":
        server.claim(claim(trainer))
    assert server.claim(claim("d", number=1)) == Wait()
    server.trainer_lost("b")
    assert assigned(server.claim(claim("d", number=1))).ticket.slot == 1


def test_an_overtaken_claim_changes_nothing(server: ParameterServer) -> None:
    server.claim(claim("a", number=2))
    assert server.claim(claim("a", number=1)) == Wait()
    assert [task.slot for task in server.status().running] == [0]


def test_a_new_claim_frees_what_its_trainer_dropped(server: ParameterServer) -> None:
    server.claim(claim("a", number=1))
    again = assigned(server.claim(claim("a", number=2)))
    assert (again.ticket.slot, again.ticket.attempt) == (0, 2)


def test_a_new_incarnation_frees_what_the_old_one_held(server: ParameterServer) -> None:
    old = assigned(server.claim(claim("a", number=5)))
    new = assigned(server.claim(claim("a", number=1, incarnation=2)))
    assert (new.ticket.slot, new.ticket.attempt) == (0, 2)
    assert isinstance(server.stream(stream(old.ticket, 3)), Abandon)


def test_the_dead_that_return_get_no_work(server: ParameterServer) -> None:
    server.claim(claim("a", incarnation=2))
    assert server.claim(claim("a", number=9, incarnation=1)) == Finished()
    assert [task.slot for task in server.status().running] == [0]


def test_a_stream_replaces_the_sum_and_a_late_one_does_not(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim())).ticket
    for n in (3, 5, 5, 4):  # one arrives twice, one is overtaken
        assert server.stream(stream(ticket, n)) == Continue(durable_n=0)
    n, total = server.newest_sum(0)
    assert n == 5
    np.testing.assert_array_equal(total, contribution(0, 5))


def test_a_stream_of_an_older_attempt_is_told_to_abandon(server: ParameterServer) -> None:
    old = assigned(server.claim(claim("a"))).ticket
    server.trainer_lost("a")
    assert isinstance(server.stream(stream(old, 3)), Abandon)  # nobody has taken it over yet
    new = assigned(server.claim(claim("b"))).ticket
    assert isinstance(server.stream(stream(old, 9)), Abandon)
    assert server.stream(stream(new, 1)) == Continue(durable_n=0)
    assert server.newest_sum(0)[0] == 1


def test_taking_over_a_slot_rolls_its_sum_back(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim("a"))).ticket
    server.stream(stream(ticket, 8))
    server.trainer_lost("a")
    server.claim(claim("b"))
    assert server.newest_sum(0) == (0, None)


def test_a_complete_counts_once_however_often_it_arrives(
    server: ParameterServer, policy: FakePolicy
) -> None:
    first = assigned(server.claim(claim("a", number=1)))
    message = complete(first.ticket, claim("a", number=2))
    answer = server.complete(message)
    assert isinstance(answer, Counted)
    assert assigned(answer.next).ticket.slot == 1
    repeated = server.complete(message)
    assert isinstance(repeated, Counted)
    assert repeated.next is answer.next  # the same next work, not a third slot
    assert server.status().slots_complete == 1
    assert policy.closed == []


def test_a_complete_repeated_after_its_round_closed_is_counted(
    server: ParameterServer, policy: FakePolicy
) -> None:
    messages = []
    for trainer in "abc":
        ticket = assigned(server.claim(claim(trainer))).ticket
        messages.append(complete(ticket, claim(trainer, number=2)))
    for message in messages:
        server.complete(message)
    assert server.status().round == 1
    assert isinstance(server.complete(messages[0]), Counted)
    assert len(policy.closed) == 1


def test_a_complete_of_an_older_attempt_does_not_count(
    server: ParameterServer, policy: FakePolicy
) -> None:
    old = assigned(server.claim(claim("a"))).ticket
    server.trainer_lost("a")
    new = assigned(server.claim(claim("b"))).ticket
    assert isinstance(server.complete(complete(old, claim("a", number=2))), Abandon)
    assert server.status().slots_complete == 0
    assert isinstance(server.complete(complete(new, claim("b", number=2))), Counted)
    # And not after the slot was filled by another attempt either.
    assert isinstance(server.complete(complete(old, claim("a", number=3))), Abandon)


def test_the_sums_of_a_round_are_in_slot_order_whoever_finishes_first(
    server: ParameterServer, policy: FakePolicy
) -> None:
    tickets = {trainer: assigned(server.claim(claim(trainer))).ticket for trainer in "abc"}
    for trainer in "cab":
        server.complete(complete(tickets[trainer], claim(trainer, number=2)))
    (number, slots) = policy.closed[0]
    assert number == 0
    assert [slot.spec.game for slot in slots] == ["game_0", "game_1", "game_2"]
    for index, slot in enumerate(slots):
        np.testing.assert_array_equal(slot.contribution, contribution(index, 10))


def test_the_next_round_starts_from_the_next_version(server: ParameterServer) -> None:
    work = assigned(_fill_round(server))
    assert (work.ticket.round, work.ticket.attempt, work.task_seed) == (1, 1, 100)
    np.testing.assert_array_equal(work.theta0, np.ones(SIZE, dtype=np.float32))


def test_a_stream_of_a_closed_round_is_told_to_abandon(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim("z"))).ticket
    server.trainer_lost("z")
    _fill_round(server)
    answer = server.stream(stream(ticket, 2))
    assert isinstance(answer, Abandon)
    assert "round 0 is closed" in answer.reason


def test_after_the_last_round_there_is_no_more_work(server: ParameterServer) -> None:
    _fill_round(server)
    _fill_round(server)
    assert server.status().finished
    assert server.claim(claim("z", number=100)) == Finished()


def test_a_lease_that_is_over_frees_the_slot(server: ParameterServer, clock: FakeClock) -> None:
    server.claim(claim("a"))
    pass_time(server, clock, 60.0)
    assert len(server.status().running) == 1  # not yet: it is over after 60 s
    pass_time(server, clock, 0.1)
    assert server.status().running == ()
    assert assigned(server.claim(claim("b"))).ticket.attempt == 2


def test_a_stream_renews_the_lease(server: ParameterServer, clock: FakeClock) -> None:
    ticket = assigned(server.claim(claim("a"))).ticket
    pass_time(server, clock, 50.0)
    server.stream(stream(ticket, 1))
    pass_time(server, clock, 50.0)
    assert len(server.status().running) == 1


def test_a_beat_renews_the_lease_of_the_living_only(
    server: ParameterServer, clock: FakeClock
) -> None:
    server.claim(claim("a", incarnation=2))
    pass_time(server, clock, 50.0)
    server.beat("a", 2)
    pass_time(server, clock, 50.0)
    server.beat("a", 1)  # an old life
    server.beat("b", 1)  # a stranger
    assert len(server.status().running) == 1
    pass_time(server, clock, 10.1)
    assert server.status().running == ()


def test_a_server_that_stalled_adds_what_it_missed_to_the_leases(
    server: ParameterServer, clock: FakeClock
) -> None:
    server.claim(claim("a"))
    clock.now_s += 300.0  # nobody told it the time, nobody could be heard
    server.tick()
    assert len(server.status().running) == 1
    pass_time(server, clock, 60.0)
    assert server.status().running == ()


def test_a_sum_that_could_not_be_written_does_not_count(
    server: ParameterServer, policy: FakePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    tickets = [assigned(server.claim(claim(trainer))).ticket for trainer in "abc"]
    with monkeypatch.context() as patch:
        patch.setattr("leap_rl.training.slot_files.write_atomically", _disk_full)
        with pytest.raises(OSError, match="No space left"):
            server.complete(complete(tickets[0], claim("a", number=2)))
    for ticket, trainer in zip(tickets[1:], "bc", strict=True):
        server.complete(complete(ticket, claim(trainer, number=2)))
    assert policy.closed == []
    assert server.status().slots_complete == 2
    server.complete(complete(tickets[0], claim("a", number=2)))
    assert len(policy.closed) == 1


def _disk_full(path: Path, data: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_slot_that_loses_its_trainers_stops_the_run(folder: RunFolder) -> None:
    server = make_server(folder, max_attempts=2)
    for trainer in "ab":
        server.claim(claim(trainer))
        server.trainer_lost(trainer)
    failure = server.status().failure
    assert failure is not None
    assert "game_0" in failure
    assert "2 times" in failure
    assert server.claim(claim("c")) == Finished()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_sum_that_is_not_finite_is_refused_by_name(server: ParameterServer, value: float) -> None:
    ticket = assigned(server.claim(claim())).ticket
    bad = contribution(0, 3)
    bad[5] = value
    named = re.escape("game_0 (slot 0 of round 0, task seed 0) holds NaN or infinity after 3")
    with pytest.raises(NonFiniteContributionError, match=named):
        server.stream(stream(ticket, 3, bad))
    with pytest.raises(NonFiniteContributionError, match=named):
        server.complete(complete(ticket, claim(number=2), 3, bad))
    assert server.status().slots_complete == 0


def test_a_message_of_another_run_is_refused(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim())).ticket
    foreign = Ticket(fingerprint="0" * 64, round=0, slot=0, attempt=ticket.attempt)
    with pytest.raises(ProtocolError, match="another run"):
        server.stream(stream(foreign, 1))
    with pytest.raises(ProtocolError, match="another run"):
        server.complete(complete(foreign, claim(number=2)))


def test_complete_slots_survive_the_server(folder: RunFolder) -> None:
    server = make_server(folder)
    first = assigned(server.claim(claim("a"))).ticket
    server.complete(complete(first, claim("a", number=2)))

    policy = FakePolicy()
    again = make_server(folder, policy)
    assert again.status().slots_complete == 1
    _fill_round(again)
    (_, slots) = policy.closed[0]
    np.testing.assert_array_equal(slots[0].contribution, contribution(0, 10))
    assert slots[0].record.trainer == "a"
    assert slots[0].episodes.lengths.tolist() == [7]


def test_a_round_that_was_full_when_the_server_died_closes_when_it_returns(
    folder: RunFolder,
) -> None:
    server = make_server(folder, FakePolicy(rounds=1))
    _fill_round(server)
    state = folder.read_state(1)
    # As after a crash between the last slot and the checkpoint.
    (folder.path / "checkpoints" / "latest").write_text("000000\n")
    for index in range(3):
        _write_slot(folder, index)
    again = make_server(folder, FakePolicy(rounds=1))
    assert again.status().finished
    assert folder.read_state(1)["sha256"] == state["sha256"]


def test_a_damaged_slot_is_set_aside_and_filled_anew(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(folder)
    ticket = assigned(server.claim(claim())).ticket
    server.complete(complete(ticket, claim(number=2)))
    path = folder.slot(0, 0)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1  # one bit of the contribution: safetensors alone does not see it
    path.write_bytes(data)
    again = make_server(folder)
    assert again.status().slots_complete == 0
    assert "000.safetensors.damaged: is damaged" in caplog.text
    assert bytes(data) == path.with_name("000.safetensors.damaged").read_bytes()
    assert assigned(again.claim(claim("b"))).ticket.attempt == 2, "the lease still counts attempts"


def test_a_slot_of_another_run_is_refused(folder: RunFolder) -> None:
    server = make_server(folder)
    ticket = assigned(server.claim(claim())).ticket
    server.complete(complete(ticket, claim(number=2)))
    folder.slot(0, 0).rename(folder.slot(0, 1))
    with pytest.raises(RunFolderError, match=r"001\.safetensors: belongs to another task"):
        make_server(folder)


def test_a_snapshot_is_durable_once_the_answer_says_so(folder: RunFolder) -> None:
    server = make_server(folder)
    ticket = assigned(server.claim(claim("a"))).ticket
    assert server.stream(stream(ticket, 2)) == Continue(durable_n=0)
    assert server.stream(frozen(ticket, 3)) == Continue(durable_n=3)
    assert server.stream(stream(ticket, 5)) == Continue(durable_n=3)
    again = make_server(folder)
    work = assigned(again.claim(claim("b")))
    assert (work.ticket.attempt, work.durable_n) == (2, 3)
    assert work.snapshot is not None
    assert work.snapshot.tolist() == [3] * 7
    assert again.newest_sum(0)[0] == 3, "the sum rolls back with the task"
    np.testing.assert_array_equal(again.newest_sum(0)[1], contribution(0, 3))


def test_an_overtaken_snapshot_changes_nothing(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim("a"))).ticket
    server.stream(frozen(ticket, 4))
    assert server.stream(frozen(ticket, 3)) == Continue(durable_n=4)
    server.stream(frozen(ticket, 4, fill=9))
    server.trainer_lost("a")
    snapshot = assigned(server.claim(claim("b"))).snapshot
    assert snapshot is not None
    assert snapshot.tolist() == [4] * 7


def test_a_snapshot_of_an_older_attempt_is_not_taken(server: ParameterServer) -> None:
    old = assigned(server.claim(claim("a"))).ticket
    server.trainer_lost("a")
    server.claim(claim("b"))
    assert isinstance(server.stream(frozen(old, 6)), Abandon)
    server.trainer_lost("b")
    assert assigned(server.claim(claim("c"))).snapshot is None


def test_a_damaged_snapshot_costs_the_work_behind_it_and_no_more(folder: RunFolder) -> None:
    server = make_server(folder)
    server.stream(frozen(assigned(server.claim(claim("a"))).ticket, 3))
    path = folder.slot(0, 0).with_suffix(".snapshot")
    data = bytearray(path.read_bytes())
    data[-1] ^= 4
    path.write_bytes(data)
    work = assigned(make_server(folder).claim(claim("b")))
    assert (work.ticket.attempt, work.durable_n, work.snapshot) == (2, 0, None)


def test_a_slot_that_gets_further_may_lose_any_number_of_trainers(folder: RunFolder) -> None:
    server = make_server(folder, max_attempts=2)
    for life in range(1, 6):
        ticket = assigned(server.claim(claim("a", incarnation=life))).ticket
        server.stream(frozen(ticket, life))
        server.trainer_lost("a")
    assert server.status().failure is None
    server.claim(claim("a", incarnation=7))
    server.trainer_lost("a")
    assert server.status().failure is not None


def test_a_complete_slot_has_no_snapshot_any_more(
    server: ParameterServer, folder: RunFolder
) -> None:
    ticket = assigned(server.claim(claim("a"))).ticket
    server.stream(frozen(ticket, 3))
    server.complete(complete(ticket, claim("a", number=2)))
    assert not folder.slot(0, 0).with_suffix(".snapshot").exists()


def test_a_server_that_takes_over_knows_who_works_on_what(
    folder: RunFolder, clock: FakeClock
) -> None:
    server = make_server(folder, clock=clock)
    first = assigned(server.claim(claim("a", number=4, incarnation=2)))
    server.stream(frozen(first.ticket, 3))
    second = assigned(server.claim(claim("b")))
    again = make_server(folder, clock=clock, trainers_live=True)
    # Each goes on as if nothing had been; a repeated claim gets the same answer.
    assert [task.trainer for task in again.status().running] == ["a", "b"]
    assert assigned(again.claim(claim("a", number=4, incarnation=2))).ticket == first.ticket
    assert again.stream(stream(first.ticket, 5)) == Continue(durable_n=3)
    assert assigned(again.claim(claim("c"))).ticket.slot == 2
    assert again.claim(claim("a", number=1, incarnation=1)) == Finished()
    # Who is never heard of again has one fresh lease.
    pass_time(again, clock, 60.0)
    assert again.stream(stream(second.ticket, 1)) == Continue(durable_n=0)
    pass_time(again, clock, 30.0)
    assert [task.trainer for task in again.status().running] == ["b"]


def test_a_server_of_a_new_driver_waits_for_nobody(folder: RunFolder) -> None:
    server = make_server(folder, max_attempts=2)
    old = assigned(server.claim(claim("a"))).ticket
    for _ in range(3):  # a run that is stopped again and again has lost no trainer by that
        again = make_server(folder, max_attempts=2)
        assert again.status().running == ()
        work = assigned(again.claim(claim("a")))
        assert again.status().failure is None
    assert work.ticket.attempt == old.attempt + 3
    assert isinstance(again.stream(stream(old, 9)), Abandon)


def test_a_complete_is_counted_once_by_the_server_that_takes_over(folder: RunFolder) -> None:
    messages = []
    server = make_server(folder, FakePolicy(batch=2))
    for trainer in "ab":
        ticket = assigned(server.claim(claim(trainer))).ticket
        messages.append(complete(ticket, claim(trainer, number=2)))
    answer = server.complete(messages[0])
    assert isinstance(answer, Counted)
    again = make_server(folder, FakePolicy(batch=2), trainers_live=True)
    assert again.complete(messages[0]) == answer
    closing = again.complete(messages[1])
    assert isinstance(closing, Counted)
    policy = FakePolicy(batch=2)
    third = make_server(folder, policy, trainers_live=True)
    repeated = third.complete(messages[1])
    assert isinstance(repeated, Counted)
    assert assigned(repeated.next).ticket == assigned(closing.next).ticket
    assert policy.closed == []


def test_a_server_that_takes_over_gives_a_trainer_its_newest_slot_only(folder: RunFolder) -> None:
    server = make_server(folder)
    server.claim(claim("b"))
    first = assigned(server.claim(claim("a", number=1)))
    server.trainer_lost("b")
    second = assigned(server.claim(claim("a", number=2)))
    assert (first.ticket.slot, second.ticket.slot) == (1, 0)
    again = make_server(folder, trainers_live=True)
    assert [(task.slot, task.trainer) for task in again.status().running] == [(0, "a")]
    assert isinstance(again.stream(stream(first.ticket, 3)), Abandon)
    assert assigned(again.claim(claim("a", number=2))).ticket == second.ticket


def test_a_server_that_takes_over_waits_for_nobody_of_an_older_driver(folder: RunFolder) -> None:
    old = assigned(make_server(folder).claim(claim("a", number=7)))
    make_server(folder)  # of a new driver, whose trainers have claimed nothing yet
    again = make_server(folder, trainers_live=True)
    assert again.status().running == ()
    work = assigned(again.claim(claim("a", number=1)))
    assert (work.ticket.slot, work.ticket.attempt) == (0, old.ticket.attempt + 1)


def test_getting_further_is_not_forgotten_with_the_server(folder: RunFolder) -> None:
    server = make_server(folder, max_attempts=2)
    server.claim(claim("a"))
    server.trainer_lost("a")
    server.stream(frozen(assigned(server.claim(claim("b"))).ticket, 3))
    again = make_server(folder, max_attempts=2, trainers_live=True)
    again.trainer_lost("b")
    assert again.status().failure is None
    again.claim(claim("c"))
    again.trainer_lost("c")
    assert again.status().failure is not None


def test_a_round_steps_once_however_often_its_checkpoint_cannot_be_written(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = FakePolicy(batch=1)
    server = make_server(folder, policy)
    message = complete(assigned(server.claim(claim("a"))).ticket, claim("a", number=2))
    with monkeypatch.context() as patch:
        patch.setattr("leap_rl.run_folder._write_synced", _disk_full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                server.complete(message)
    answer = server.complete(message)
    assert isinstance(answer, Counted)
    assert assigned(answer.next).ticket.round == 1
    assert len(policy.closed) == 1


def test_a_claim_whose_lease_could_not_be_written_is_not_answered_by_an_old_one(
    server: ParameterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = assigned(server.claim(claim("a", number=1))).ticket
    server.complete(complete(ticket, claim("a", number=2)))
    with monkeypatch.context() as patch:
        patch.setattr("leap_rl.training.slot_files.write_atomically", _disk_full)
        with pytest.raises(OSError, match="No space left"):
            server.claim(claim("a", number=3))
    assert assigned(server.claim(claim("a", number=3))).ticket.slot == 1


def test_closing_a_round_leaves_its_episodes_and_no_slots(
    server: ParameterServer, folder: RunFolder
) -> None:
    _fill_round(server)
    table = pq.read_table(folder.curves(0)).to_pydict()
    assert table == {
        "meta_step": [0, 0, 0],
        "slot": [0, 1, 2],
        "game": ["game_0", "game_1", "game_2"],
        "agent_steps": [1, 1, 1],
        "episode_return": [2.5, 2.5, 2.5],
        "length": [7, 7, 7],
    }
    assert not folder.slots(0).exists()


def pass_time(server: ParameterServer, clock: FakeClock, seconds: float) -> None:
    """Let time pass as a driver does, telling the server now and then."""
    while seconds > 0:
        clock.now_s += min(seconds, 5.0)
        seconds -= 5.0
        server.tick()


def _fill_round(server: ParameterServer) -> Work:
    """Fill the open round by one trainer; returns the work that its last answer brought."""
    opened = server.status().round
    number = 1 + 10 * opened
    work = server.claim(claim("filler", number=number))
    while server.status().round == opened:
        number += 1
        answer = server.complete(complete(assigned(work).ticket, claim("filler", number=number)))
        assert isinstance(answer, Counted)
        work = answer.next
    return work


def _write_slot(folder: RunFolder, slot: int) -> None:
    ticket = Ticket(fingerprint=FINGERPRINT, round=0, slot=slot, attempt=1)
    message = complete(ticket, claim("filler"))
    filled = FilledSlot(
        spec=TaskSpec(game=f"game_{slot}", seed=slot),
        attempt=1,
        contribution=message.contribution,
        record=message.record,
        episodes=message.episodes,
    )
    SlotFiles(folder.slot(0, slot), filled.spec, FINGERPRINT).write_filled(filled)
