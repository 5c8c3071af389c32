from __future__ import annotations

import numpy as np
import pytest

from leap_rl.core.errors import ProtocolError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import Abandon, Continue, Counted, Finished, Ticket, Wait
from leap_rl.training.server.parameter_server import ParameterServer
from tests.training.fakes import (
    SIZE,
    FakeClock,
    FakePolicy,
    assigned,
    claim,
    complete,
    contribution,
    disk_full,
    fill_round,
    make_server,
    newest_sum,
    pass_time,
    stream,
)


def test_claims_get_the_slots_in_order_then_wait(server: ParameterServer) -> None:
    tickets = [assigned(server.claim(claim(trainer))).ticket for trainer in "abc"]
    assert [(t.round, t.slot, t.attempt) for t in tickets] == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    assert server.claim(claim("d")) == Wait()


def test_an_assignment_says_what_to_train_and_from_where(server: ParameterServer) -> None:
    work = assigned(server.claim(claim("a")))
    assert (work.game, work.task_seed, work.save_agent) == ("game_0", 0, False)
    np.testing.assert_array_equal(work.theta0, np.zeros(SIZE, dtype=np.float32))


def test_a_repeated_claim_gets_the_same_answer(server: ParameterServer) -> None:
    first = assigned(server.claim(claim("a", number=1)))
    assert assigned(server.claim(claim("a", number=1))).ticket == first.ticket
    assert server.status().running[0].attempt == 1


def test_a_claim_that_repeats_after_its_trainer_was_heard_is_late(
    server: ParameterServer,
) -> None:
    ticket = assigned(server.claim(claim("a", number=1))).ticket
    server.stream(stream(ticket, 3))
    assert server.claim(claim("a", number=1)) == Wait()
    assert newest_sum(server, 0)[0] == 3  # and rolls nothing back
    assert server.stream(stream(ticket, 4)) == Continue(durable_n=0)


def test_a_claim_whose_slot_was_lost_before_it_was_answered_is_made_again(
    server: ParameterServer,
) -> None:
    server.claim(claim("a", number=1))
    server.trainer_lost("a", "cut off")
    assert server.claim(claim("a", number=1)) == Wait()
    assert not server.status().running
    assert assigned(server.claim(claim("a", number=2))).ticket.attempt == 2


def test_a_claim_that_waited_is_answered_when_a_slot_is_free(server: ParameterServer) -> None:
    for trainer in "abc":
        server.claim(claim(trainer))
    assert server.claim(claim("d", number=1)) == Wait()
    server.trainer_lost("b", "killed")
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
    n, total = newest_sum(server, 0)
    assert n == 5
    np.testing.assert_array_equal(total, contribution(0, 5))


def test_a_stream_of_an_older_attempt_is_told_to_abandon(server: ParameterServer) -> None:
    old = assigned(server.claim(claim("a"))).ticket
    server.trainer_lost("a", "killed")
    assert isinstance(server.stream(stream(old, 3)), Abandon)  # nobody has taken it over yet
    new = assigned(server.claim(claim("b"))).ticket
    assert isinstance(server.stream(stream(old, 9)), Abandon)
    assert server.stream(stream(new, 1)) == Continue(durable_n=0)
    assert newest_sum(server, 0)[0] == 1


def test_taking_over_a_slot_rolls_its_sum_back(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim("a"))).ticket
    server.stream(stream(ticket, 8))
    server.trainer_lost("a", "killed")
    server.claim(claim("b"))
    assert newest_sum(server, 0) == (0, None)


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
    # The same next work, not a third slot.
    assert assigned(repeated.next).ticket == assigned(answer.next).ticket
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
    server.trainer_lost("a", "killed")
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
    work = assigned(fill_round(server))
    assert (work.ticket.round, work.ticket.attempt, work.task_seed) == (1, 1, 100)
    np.testing.assert_array_equal(work.theta0, np.ones(SIZE, dtype=np.float32))


def test_a_stream_of_a_closed_round_is_told_to_abandon(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim("z"))).ticket
    server.trainer_lost("z", "killed")
    fill_round(server)
    answer = server.stream(stream(ticket, 2))
    assert isinstance(answer, Abandon)
    assert "round 0 is closed" in answer.reason


def test_after_the_last_round_there_is_no_more_work(server: ParameterServer) -> None:
    fill_round(server)
    fill_round(server)
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
    server.heartbeat("a", 2)
    pass_time(server, clock, 50.0)
    server.heartbeat("a", 1)  # an old life
    server.heartbeat("b", 1)  # a stranger
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
        patch.setattr("leap_rl.storage.locked_folder.write_atomically", disk_full)
        with pytest.raises(OSError, match="No space left"):
            server.complete(complete(tickets[0], claim("a", number=2)))
    for ticket, trainer in zip(tickets[1:], "bc", strict=True):
        server.complete(complete(ticket, claim(trainer, number=2)))
    assert policy.closed == []
    assert server.status().slots_complete == 2
    server.complete(complete(tickets[0], claim("a", number=2)))
    assert len(policy.closed) == 1


def test_a_slot_that_loses_its_trainers_stops_the_run(folder: RunFolder) -> None:
    server = make_server(folder, max_attempts=2)
    for trainer in "ab":
        server.claim(claim(trainer))
        server.trainer_lost(trainer, "killed")
    failure = server.status().failure
    assert failure is not None
    assert "game_0" in failure
    assert "2 times" in failure
    assert server.claim(claim("c")) == Finished()


def test_the_last_cause_of_a_loss_is_told(folder: RunFolder) -> None:
    server = make_server(folder, max_attempts=1)
    server.claim(claim("a", incarnation=1))
    server.claim(claim("a", incarnation=2))
    failure = server.status().failure
    assert failure is not None
    assert failure.endswith("The last time: its trainer was started from scratch")


def test_a_message_of_another_run_is_refused(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim())).ticket
    foreign = Ticket(fingerprint="0" * 64, round=0, slot=0, attempt=ticket.attempt)
    with pytest.raises(ProtocolError, match="another run"):
        server.stream(stream(foreign, 1))
    with pytest.raises(ProtocolError, match="another run"):
        server.complete(complete(foreign, claim(number=2)))
