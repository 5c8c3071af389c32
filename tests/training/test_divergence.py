"""What becomes of a task whose numbers are no longer finite, and of one that is too late."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from leap_rl.core.choices import OnDivergence
from leap_rl.core.errors import ProtocolError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import Abandon, Continue, Counted, Diverged, Finished, Ticket
from leap_rl.training.server.parameter_server import MAX_RESTARTS, ParameterServer
from tests.training.fakes import (
    FakeClock,
    FakePlan,
    assigned,
    claim,
    complete,
    contribution,
    make_server,
    newest_sum,
    pass_time,
    stream,
    with_snapshot,
)
from tests.training.protocol_model import DiedError, Disk

BAD = [float("nan"), float("inf"), -float("inf")]


def test_a_task_that_starts_again_has_no_sum_to_close_a_late_round_on(folder: RunFolder) -> None:
    plan, clock = FakePlan(batch=2), FakeClock()
    server = make_server(folder, plan, clock, on_divergence="restart_task", close_after_s=100.0)
    first, second = (assigned(server.claim(claim(trainer))).ticket for trainer in "ab")
    server.stream(stream(first, 3))
    server.stream(stream(second, 2))
    server.diverged(diverged(first))
    clock.now_s += 100.0
    server.tick()
    ((_, filled),) = plan.closed
    assert [slot.spec.game for slot in filled] == ["game_1"]
    assert [slot.spec.game for slot in plan.dropped] == ["game_0"]


def diverged(ticket: Ticket, agent_steps: int = 40) -> Diverged:
    return Diverged(ticket=ticket, agent_steps=agent_steps, reason="went wrong at update 4: loss")


def bad_sum(slot: int, value: float = float("nan")) -> np.ndarray:
    values = contribution(slot, 3)
    values[5] = value
    return values


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("message", ["stream", "complete"])
def test_a_sum_that_is_not_finite_stops_the_run_by_name(
    server: ParameterServer, message: str, value: float
) -> None:
    ticket = assigned(server.claim(claim())).ticket
    bad = bad_sum(0, value)
    if message == "stream":
        answer: object = server.stream(stream(ticket, 3, bad))
    else:
        answer = server.complete(complete(ticket, claim(number=2), 3, bad))
    assert isinstance(answer, Abandon)
    named = "game_0 (slot 0 of round 0, task seed 0) went wrong: its contribution holds NaN"
    failure = server.status().failure or ""
    assert failure.startswith(named)
    assert "task.on_divergence = restart_task or drop_task" in failure
    assert server.status().slots_complete == 0
    assert server.claim(claim(number=3)) == Finished()


def test_a_task_starts_again_with_seeds_of_its_own(folder: RunFolder) -> None:
    server = make_server(folder, FakePlan(batch=1), on_divergence="restart_task")
    seeds = []
    for number in range(MAX_RESTARTS + 1):
        work = assigned(server.claim(claim(number=number + 1)))
        assert (work.durable_n, work.snapshot) == (0, None)
        seeds.append(work.task_seed)
        server.stream(with_snapshot(work.ticket, 2))  # must not be gone on from with another seed
        assert server.status().failure is None
        server.diverged(diverged(work.ticket))
    assert len(set(seeds)) == MAX_RESTARTS + 1 == server.counters.tasks_restarted + 1
    assert seeds[0] == 0
    assert "as with 3 other seeds" in (server.status().failure or "")


def test_restarts_cost_no_attempts(folder: RunFolder) -> None:
    plan = FakePlan(batch=1)
    server = make_server(folder, plan, on_divergence="restart_task", max_attempts=2)
    assigned(server.claim(claim()))
    server.trainer_lost("a", "killed")  # of the first seed: the next one has all its attempts
    work = assigned(server.claim(claim(number=2)))
    server.diverged(diverged(work.ticket))
    work = assigned(server.claim(claim(number=3)))
    server.trainer_lost("a", "killed")
    work = assigned(server.claim(claim(number=4)))
    assert isinstance(server.complete(complete(work.ticket, claim(number=5))), Counted)
    assert plan.closed[0][1][0].restarts == 1
    assert folder.read_state(1)["slots"][0]["restarts"] == 1


def test_a_restart_survives_the_server(folder: RunFolder) -> None:
    server = make_server(folder, FakePlan(batch=1), on_divergence="restart_task")
    server.diverged(diverged(assigned(server.claim(claim())).ticket))
    again = make_server(folder, FakePlan(batch=1), on_divergence="restart_task")
    seed = assigned(again.claim(claim(number=2))).task_seed
    assert seed != 0
    assert assigned(server.claim(claim(number=2))).task_seed == seed


def test_a_repeated_word_of_divergence_changes_nothing(folder: RunFolder) -> None:
    server = make_server(folder, FakePlan(batch=1), on_divergence="restart_task")
    first = assigned(server.claim(claim())).ticket
    server.diverged(diverged(first))
    again = assigned(server.claim(claim(number=2)))
    assert isinstance(server.diverged(diverged(first)), Abandon)
    assert server.stream(stream(again.ticket, 1)) == Continue(durable_n=0)
    with pytest.raises(ProtocolError, match="another run"):
        server.diverged(diverged(replace(first, fingerprint="0" * 64)))


@pytest.mark.parametrize("on_divergence", ["restart_task", "drop_task"])
def test_when_a_sum_was_streamed_decides_nothing(
    folder: RunFolder, on_divergence: OnDivergence
) -> None:
    server = make_server(folder, on_divergence=on_divergence)
    ticket = assigned(server.claim(claim())).ticket
    server.stream(with_snapshot(ticket, 2))
    bad = replace(stream(ticket, 3, bad_sum(0)), snapshot=np.zeros(7, np.uint8))
    assert server.stream(bad) == Continue(durable_n=2)
    assert newest_sum(server, 0)[0] == 2
    assert server.stream(stream(ticket, 4)) == Continue(durable_n=2)
    assert isinstance(server.complete(complete(ticket, claim(number=2), 5, bad_sum(0))), Abandon)
    assert server.status().slots_complete == (1 if on_divergence == "drop_task" else 0)


def test_a_dropped_task_is_left_out_and_told(folder: RunFolder) -> None:
    plan = FakePlan()
    server = make_server(folder, plan, on_divergence="drop_task")
    tickets = [assigned(server.claim(claim(trainer))).ticket for trainer in "abc"]
    server.diverged(diverged(tickets[1]))
    assert server.counters.tasks_dropped == 1
    assert make_server(RunFolder(folder.path), FakePlan()).status().slots_complete == 1
    for trainer, ticket in (("a", tickets[0]), ("c", tickets[2])):
        server.complete(complete(ticket, claim(trainer, number=2)))
    assert [slot.spec.game for slot in plan.closed[0][1]] == ["game_0", "game_2"]
    assert [(slot.spec.game, slot.agent_steps) for slot in plan.dropped] == [("game_1", 40)]
    slots = folder.read_state(1)["slots"]
    assert [slot.get("dropped") for slot in slots] == [None, "went wrong at update 4: loss", None]


def test_a_round_without_a_task_left_stops_the_run(folder: RunFolder) -> None:
    server = make_server(folder, FakePlan(batch=2), on_divergence="drop_task")
    for number in (1, 2):
        ticket = assigned(server.claim(claim(number=number))).ticket
        server.diverged(diverged(ticket))
    assert "round 0 has no task left" in (server.status().failure or "")
    assert server.claim(claim(number=3)) == Finished()
    assert folder.latest() == 0


@pytest.mark.parametrize("on_divergence", ["restart_task", "drop_task"])
def test_the_server_may_die_at_any_change_on_disk(
    tmp_path: Path, on_divergence: OnDivergence
) -> None:
    """Slot 0's first seed diverges, in whatever life of the server; its others do not."""
    outcomes = set()
    for changes in count():
        folder = RunFolder(tmp_path / str(changes))
        folder.write_checkpoint(0, {}, {})
        disk = Disk([("die", changes)])
        with disk.installed():
            _run_to_its_end(folder, on_divergence)
        state = folder.read_state(1)
        kept = [(slot["restarts"], slot.get("dropped")) for slot in state["slots"]]
        outcomes.add((tuple(kept), (folder.checkpoint(1) / "total.bin").read_bytes()))
        if disk.faults:  # it died nowhere: all changes have been tried
            break
    assert changes > 10
    assert len(outcomes) == 1


def _run_to_its_end(folder: RunFolder, on_divergence: OnDivergence) -> None:
    """One trainer, which repeats what was not answered, until the round is closed."""
    plan = FakePlan(rounds=1, batch=2)
    lives = 0

    def start() -> ParameterServer:
        while True:
            try:
                live = lives > 0
                return make_server(folder, plan, on_divergence=on_divergence, trainers_live=live)
            except DiedError:
                continue

    server, number = start(), 1
    while not server.status().finished:
        try:
            work = server.claim(claim(number=number))
            if isinstance(work, Finished):
                continue
            ticket = assigned(work).ticket
            server.stream(with_snapshot(ticket, 2))
            if ticket.slot == 0 and work.task_seed == 0:
                server.diverged(diverged(ticket))
            else:
                server.complete(complete(ticket, claim(number=number + 1)))
            number += 1
        except DiedError:
            lives += 1
            server = start()
            number += 1


def test_a_late_round_closes_on_the_sums_so_far(folder: RunFolder, clock: FakeClock) -> None:
    plan = FakePlan()
    server = make_server(folder, plan, clock, close_after_s=100.0)
    tickets = [assigned(server.claim(claim(trainer))).ticket for trainer in "abc"]
    server.complete(complete(tickets[0], claim("a", number=2)))
    server.stream(stream(tickets[1], 4))
    server.stream(stream(tickets[2], 0))  # no segment yet: a sum of nothing is none
    pass_time(server, clock, 45.0)
    server.stream(stream(tickets[1], 7))
    pass_time(server, clock, 54.0)
    assert server.status().round == 0
    pass_time(server, clock, 2.0)
    assert server.status().round == 1
    (_, slots) = plan.closed[0]
    assert [(slot.spec.game, slot.cut_off) for slot in slots] == [
        ("game_0", False),
        ("game_1", True),
    ]
    np.testing.assert_array_equal(slots[1].contribution, contribution(1, 7))
    assert [slot.spec.game for slot in plan.dropped] == ["game_2"]
    assert (server.counters.tasks_cut_off, server.counters.tasks_dropped) == (1, 1)
    assert isinstance(server.stream(stream(tickets[1], 8)), Abandon)
    assert assigned(server.claim(claim("b", number=2))).ticket.round == 1


@pytest.mark.parametrize("ending", ["lost", "lost after a snapshot", "another server"])
def test_a_task_that_is_cut_off_has_the_agent_steps_of_its_sum(
    folder: RunFolder, clock: FakeClock, ending: str
) -> None:
    """Though its trainer, or the server that heard of them, has died."""
    plan = FakePlan()
    server = make_server(folder, plan, clock, close_after_s=100.0)
    tickets = [assigned(server.claim(claim(trainer))).ticket for trainer in "abc"]
    server.stream(with_snapshot(tickets[1], 4))
    server.stream(stream(tickets[1], 6))
    if ending == "another server":
        server = make_server(folder, plan, clock, close_after_s=100.0)
    else:
        server.trainer_lost("b", "killed")
        if ending == "lost after a snapshot":  # the next one begins there, and is lost too
            assert assigned(server.claim(claim("d"))).durable_n == 4
            server.trainer_lost("d", "killed")
    for part in (45.0, 45.0, 20.0):
        pass_time(server, clock, part)
    (slot,) = plan.closed[0][1]
    n = 6 if ending == "lost" else 4
    assert (slot.spec.game, slot.cut_off, slot.record.updates) == ("game_1", True, n)
    assert slot.record.agent_steps == stream(tickets[1], n).progress.agent_steps > 0


def test_a_late_round_waits_for_what_is_learned_from_and_validates_last(
    folder: RunFolder, clock: FakeClock
) -> None:
    server = make_server(folder, FakePlan(validating=2), clock, close_after_s=100.0)
    trains, validates = (assigned(server.claim(claim(trainer))) for trainer in "ab")
    assert (trains.game, validates.game) == ("game_2", "game_0")
    server.stream(stream(validates.ticket, 3))
    for _ in range(3):
        pass_time(server, clock, 50.0)
        for trainer in "ab":
            server.heartbeat(trainer, 1)
    assert server.status().round == 0, "no sum of a task that counts"
    server.stream(stream(trains.ticket, 1))
    pass_time(server, clock, 1.0)
    assert server.status().round == 1


def test_a_late_round_without_any_sum_waits(folder: RunFolder, clock: FakeClock) -> None:
    server = make_server(folder, FakePlan(), clock, close_after_s=100.0)
    ticket = assigned(server.claim(claim())).ticket
    pass_time(server, clock, 50.0)
    server.heartbeat("a", 1)
    pass_time(server, clock, 55.0)
    assert server.status().round == 0
    server.stream(stream(ticket, 1))
    pass_time(server, clock, 1.0)
    assert server.status().round == 1
