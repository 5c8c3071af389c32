"""What the parameter server counts of a run, event by event."""

from __future__ import annotations

from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.prometheus import SERIES
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.server.rounds import Counters
from tests.training.fakes import (
    FakePlan,
    assigned,
    claim,
    complete,
    fill_round,
    make_server,
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
