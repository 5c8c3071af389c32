"""What the parameter server counts of a run, event by event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.prometheus import SERIES
from leap_rl.training.messages import Diverged
from leap_rl.training.server.counters import Counters
from leap_rl.training.server.parameter_server import ParameterServer
from tests.training.fakes import (
    FakeClock,
    FakePlan,
    assigned,
    claim,
    complete,
    contribution,
    fill_round,
    make_server,
    pass_time,
    stream,
    with_snapshot,
)

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
    assert counts(server) == {"streams": 3, "repeats_refused": 4, "agent_steps": 5}


def test_an_overtaken_claim_is_a_repeat(server: ParameterServer) -> None:
    server.claim(claim("a", number=2))
    server.claim(claim("a", number=1))
    assert counts(server) == {"repeats_refused": 1}


def test_a_whole_sum_is_counted_once(server: ParameterServer) -> None:
    message = complete(assigned(server.claim(claim("a"))).ticket, claim("a", number=2))
    server.complete(message)
    assert counts(server) == {"tasks_completed": 1, "agent_steps": 10}
    server.complete(message)  # and its claim comes again with it
    assert counts(server) == {"tasks_completed": 1, "agent_steps": 10, "repeats_refused": 2}


def test_messages_of_lost_attempts_are_counted(server: ParameterServer) -> None:
    ticket = assigned(server.claim(claim("a"))).ticket
    server.trainer_lost("a", "killed")
    server.stream(stream(ticket, 3))
    server.complete(complete(ticket, claim("a", number=2)))
    server.stream(stream(replace(ticket, round=7), 3))
    assert counts(server) == {"trainers_lost": 1, "abandons": 3}


def test_leases_that_are_over_are_counted(server: ParameterServer, clock: FakeClock) -> None:
    for trainer in "ab":
        server.claim(claim(trainer))
    pass_time(server, clock, 30.0)
    server.heartbeat("a", 1)
    pass_time(server, clock, 40.0)
    assert counts(server) == {"lease_expiries": 1}
    assert [task.trainer for task in server.status().running] == ["a"]


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


@pytest.mark.parametrize(
    ("on_divergence", "counted"),
    [("restart_task", "tasks_restarted"), ("drop_task", "tasks_dropped")],
)
def test_tasks_that_go_wrong_are_counted(tmp_path: Path, on_divergence: str, counted: str) -> None:
    server = make_server(RunFolder(tmp_path), on_divergence=on_divergence)  # type: ignore[arg-type]
    ticket = assigned(server.claim(claim("a"))).ticket
    server.diverged(Diverged(ticket=ticket, agent_steps=40, reason="went wrong"))
    assert counts(server) == {counted: 1}


def test_tasks_that_are_late_are_counted(tmp_path: Path) -> None:
    clock = FakeClock()
    server = make_server(RunFolder(tmp_path), FakePlan(batch=3), clock, close_after_s=100.0)
    ticket = assigned(server.claim(claim("a"))).ticket
    server.stream(stream(ticket, 3, contribution(0, 3)))
    clock.now_s += 100.0
    server.tick()
    assert (server.counters.tasks_cut_off, server.counters.tasks_dropped) == (1, 2)


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
