"""One readable example of each edge of a slot, what the server counts, what its actor adds.

`test_protocol.py` has the edges in any order.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from leap_rl.core.errors import ProtocolError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.prometheus import SERIES
from leap_rl.training.messages import (
    Abandon,
    Assignment,
    Continue,
    Counted,
    Finished,
    Ticket,
    Wait,
    Work,
)
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.server.rounds import Counters
from tests.training.fakes import (
    FakeClock,
    FakePlan,
    assigned,
    claim,
    complete,
    contribution,
    fill_round,
    make_server,
    newest_sum,
    pass_time,
    ray_module,
    stream,
    with_snapshot,
)

if TYPE_CHECKING:
    from leap_rl.training.runtime.ray.server_actor import ServerActor


def test_claims_get_the_slots_in_order_then_wait(server: ParameterServer) -> None:
    tickets = [assigned(server.claim(claim(trainer))).ticket for trainer in "abc"]
    assert [(t.round, t.slot, t.attempt) for t in tickets] == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    assert server.claim(claim("d")) == Wait()


def test_the_slowest_games_come_first_once_their_speeds_are_known(folder: RunFolder) -> None:
    server = make_server(folder, FakePlan(batch=4))
    first = assigned(server.claim(claim("a")))
    assert first.ticket.slot == 0  # nothing is known
    speeds = {"game_1": 4.0, "game_2": 20.0, "game_3": 3.0}  # of earlier meta-steps
    row = {f"throughput/{game}/examples_per_s": speed for game, speed in speeds.items()}
    server.counters.committed("meta_step", row)
    slots = [assigned(server.claim(claim(name))).ticket.slot for name in "bc"]
    assert slots == [3, 1]
    server.trainer_lost("c", "it died")
    # Slot 2 is of the same game as slot 0, which took a second for 10 units: 10 a second, not 20.
    again = server.rounds.open_round.slots[2]
    again.spec = replace(again.spec, game="game_0")
    server.counters.committed("meta_step", {"throughput/game_1/examples_per_s": 15.0})
    counted = server.complete(complete(first.ticket, claim("a", 2)))
    assert isinstance(counted, Counted)
    assert assigned(counted.next).ticket.slot == 2


def test_cores_without_a_task_are_lent_on_their_machine(folder: RunFolder) -> None:
    server = make_server(folder, FakePlan(batch=3))

    def claims(trainer: str, node: str | None) -> Work:
        return server.claim(replace(claim(trainer), node=node))

    names = {"a": "here", "b": "here", "c": "there"}
    tickets = [assigned(claims(name, node)).ticket for name, node in names.items()]

    def offered() -> list[int | None]:
        answers = [server.stream(stream(t, n)) for t, n in zip(tickets, (5, 3, 1), strict=True)]
        return [answer.env_processes for answer in answers if isinstance(answer, Continue)]

    assert offered() == [1, 1, 1]
    assert claims("d", "here") == claims("e", None) == Wait()
    assert offered() == [1, 2, 1]  # b is behind a
    assert claims("f", "here") == claims("g", "here") == Wait()
    assert offered() == [2, 3, 1]
    server.trainer_lost("f", "it died")
    assert offered() == [2, 2, 1]
    done = complete(tickets.pop(1), replace(claim("b", 2), node="here"))
    assert server.complete(done) == Counted(next=Wait())
    answer = server.stream(stream(tickets[0], 6))
    assert answer == Continue(durable_n=0, env_processes=4)


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


def test_a_new_claim_frees_what_its_trainer_dropped(server: ParameterServer) -> None:
    server.claim(claim("a", number=1))
    again = assigned(server.claim(claim("a", number=2)))
    assert (again.ticket.slot, again.ticket.attempt) == (0, 2)


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
    assert isinstance(server.complete(complete(old, claim("a", number=2))), Abandon)
    assert (server.counters.trainers_lost, server.counters.abandons) == (1, 3)


def test_a_complete_counts_once_however_often_it_arrives(
    server: ParameterServer, plan: FakePlan
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
    assert plan.closed == []
    counters = server.counters
    assert (counters.tasks_completed, counters.agent_steps, counters.repeats_refused) == (1, 10, 2)


def test_a_stream_of_a_closed_round_is_told_to_abandon(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim("z"))).ticket
    server.trainer_lost("z", "killed")
    fill_round(server)
    answer = server.stream(stream(ticket, 2))
    assert isinstance(answer, Abandon)
    assert "round 0 is closed" in answer.reason
    assert server.counters.abandons == 1


def test_a_lease_that_is_over_frees_the_slot(server: ParameterServer, clock: FakeClock) -> None:
    server.claim(claim("a"))
    pass_time(server, clock, 60.0)
    assert len(server.status().running) == 1  # not yet: it is over after 60 s
    pass_time(server, clock, 0.1)
    assert server.status().running == ()
    assert server.counters.lease_expiries == 1
    assert assigned(server.claim(claim("b"))).ticket.attempt == 2


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


def test_a_slot_that_loses_its_trainers_stops_the_run(folder: RunFolder) -> None:
    server = make_server(folder, max_attempts=2)
    server.claim(claim("a"))
    server.trainer_lost("a", "killed")
    server.claim(claim("b", incarnation=1))
    server.claim(claim("b", incarnation=2))
    failure = server.status().failure or ""
    assert failure.startswith("game_0 (slot 0 of round 0, task seed 0) lost its trainer 2 times")
    assert failure.endswith("The last time: its trainer was started from scratch")
    assert server.claim(claim("c")) == Finished()


def test_a_message_of_another_run_is_refused(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim())).ticket
    foreign = Ticket(fingerprint="0" * 64, round=0, slot=0, attempt=ticket.attempt)
    with pytest.raises(ProtocolError, match="another run"):
        server.stream(stream(foreign, 1))
    with pytest.raises(ProtocolError, match="another run"):
        server.complete(complete(foreign, claim(number=2)))


# -- what is counted ------------------------------------------------------------------------------

COUNTERS = [
    series.name.removeprefix("leap_rl_").removesuffix("_total")
    for series in SERIES
    if series.kind == "counter"
]


def counts(server: ParameterServer) -> dict[str, int]:
    """The counts that are not 0."""
    return {name: count for name in COUNTERS if (count := getattr(server.counters, name))}


def test_a_tally_counts_what_is_shown_and_nothing_else() -> None:
    counted = {name for name, value in vars(Counters()).items() if isinstance(value, int)}
    assert counted == set(COUNTERS)


def test_streams_are_counted_once_and_repeats_apart(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim("a"))).ticket
    server.claim(claim("a"))  # again, before it was heard
    for n in (0, 3, 5, 5, 4):  # one arrives twice, one is overtaken
        server.stream(stream(ticket, n))
    server.claim(claim("a"))  # and long after
    server.claim(claim("a", number=0))  # overtaken on the way
    assert counts(server) == {"streams": 3, "repeats_refused": 5, "agent_steps": 5}


def test_work_that_is_done_again_is_work(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim("a"))).ticket
    server.stream(with_snapshot(ticket, 4))
    server.stream(stream(ticket, 7))
    server.trainer_lost("a", "killed")
    again = assigned(server.claim(claim("b"))).ticket
    server.stream(stream(again, 6))  # 2 since the snapshot
    server.complete(complete(again, claim("b", number=2)))  # 10 in all
    assert server.counters.agent_steps == 7 + (10 - 4)
    assert server.counters.snapshots == 1


def test_a_task_that_begins_again_begins_at_nothing(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim("a"))).ticket
    server.stream(stream(ticket, 7))
    server.trainer_lost("a", "killed")
    server.stream(stream(assigned(server.claim(claim("b"))).ticket, 2))
    assert server.counters.agent_steps == 9


def test_a_server_that_takes_anothers_place_counts_no_work_twice(
    folder: RunFolder, server: ParameterServer
) -> None:
    ticket = assigned(server.claim(claim("a"))).ticket
    server.stream(with_snapshot(ticket, 4))
    server.stream(stream(ticket, 7))
    again = make_server(folder, trainers_live=True)
    assert counts(again) == {"server_restarts": 1}
    again.stream(stream(ticket, 8))  # of which it does not know what the other has counted
    assert again.counters.agent_steps == 0
    again.stream(stream(ticket, 9))
    assert again.counters.agent_steps == 1


def test_rounds_do_not_mix(folder: RunFolder) -> None:
    server = make_server(folder, FakePlan(batch=2))
    fill_round(server)
    fill_round(server)
    assert counts(server)["agent_steps"] == 40


def test_the_newest_row_outlives_the_server(folder: RunFolder) -> None:
    server = make_server(folder)
    assert server.counters.row == {}
    fill_round(server)
    fill_round(server)
    assert server.counters.row == {"meta_step": 1}
    assert make_server(folder).counters.row == {"meta_step": 1}


def test_a_judgement_stands_until_the_next() -> None:
    counters = Counters()
    counters.committed("meta_step", {"meta_step": 0, "validation/gain": 0.5})
    counters.committed("meta_step", {"meta_step": 1})
    counters.committed("agent_steps", {"agent_steps": 5})
    assert counters.row == {"meta_step": 1, "validation/gain": 0.5}


# -- claims that wait, in the actor ---------------------------------------------------------------

SOON_S = 0.05


@pytest.fixture
def actor(folder: RunFolder) -> ServerActor:
    """An actor of this process whose run has rounds of one task."""
    made: ServerActor = ray_module("server_actor").ServerActor(None)  # the server is there
    made._made = make_server(folder, FakePlan(batch=1))
    return made


def test_trainers_that_die_while_they_wait_cost_a_slot_nothing(actor: ServerActor) -> None:
    """All trainers of a machine that is gone, say, of which one had work."""

    async def play() -> None:
        assert isinstance(await actor.claim(claim("a")), Assignment)
        waiting = [asyncio.create_task(actor.claim(claim(trainer))) for trainer in "bcd"]
        await asyncio.sleep(SOON_S)
        for dead in "abcd":
            await actor.trainer_lost(dead, "killed")
            await asyncio.sleep(SOON_S)
        assert await asyncio.gather(*waiting) == [Wait()] * 3  # nobody hears it
        work = assigned(await actor.claim(claim("a", incarnation=2)))
        assert work.ticket.attempt == 2

    asyncio.run(play())


def test_a_claim_waits_until_there_is_work(actor: ServerActor) -> None:
    async def play() -> None:
        work = assigned(await actor.claim(claim("a")))
        waiting = asyncio.create_task(actor.claim(claim("b")))
        await asyncio.sleep(SOON_S)
        assert not waiting.done()
        # "a" asks for the next round's task along with its sum, and gets it.
        await actor.complete(complete(work.ticket, claim("a", number=2)))
        await asyncio.sleep(SOON_S)
        assert not waiting.done()
        await actor.trainer_lost("a", "killed")
        assert await waiting == Wait()
        assert isinstance(await actor.claim(claim("b", number=2)), Assignment)

    asyncio.run(play())
