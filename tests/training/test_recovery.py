"""The files behind the slots, and servers that take over from one that died."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from leap_rl.storage.checksummed_file import decode_arrays, encode_arrays
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import Abandon, Continue, Counted, Finished
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.server.slots import SlotFiles
from tests.training.fakes import (
    FakeClock,
    FakePlan,
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
    with_snapshot,
    write_slot,
)


def test_complete_slots_survive_the_server(folder: RunFolder) -> None:
    server = make_server(folder)
    first = assigned(server.claim(claim("a"))).ticket
    server.complete(complete(first, claim("a", number=2)))

    plan = FakePlan()
    again = make_server(folder, plan)
    assert again.status().slots_complete == 1
    fill_round(again)
    (_, slots) = plan.closed[0]
    np.testing.assert_array_equal(slots[0].contribution, contribution(0, 10))
    assert slots[0].record.trainer == "a"
    assert slots[0].episodes.lengths.tolist() == [7]


def test_a_round_that_was_full_when_the_server_died_closes_when_it_returns(
    folder: RunFolder,
) -> None:
    server = make_server(folder, FakePlan(rounds=1))
    fill_round(server)
    state = folder.read_state(1)
    # As after a crash between the last slot and the checkpoint.
    (folder.path / "checkpoints" / "latest").write_text("000000\n")
    for index in range(3):
        write_slot(folder, index)
    again = make_server(folder, FakePlan(rounds=1))
    assert again.status().finished
    assert folder.read_state(1)["sha256"] == state["sha256"]


def test_a_damaged_slot_is_set_aside_and_filled_again(
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
    assert server.stream(with_snapshot(ticket, 3)) == Continue(durable_n=3)
    assert server.stream(stream(ticket, 5)) == Continue(durable_n=3)
    again = make_server(folder)
    work = assigned(again.claim(claim("b")))
    assert (work.ticket.attempt, work.durable_n) == (2, 3)
    assert work.snapshot is not None
    assert work.snapshot.tolist() == [3] * 7
    assert newest_sum(again, 0)[0] == 3, "the sum rolls back with the task"
    np.testing.assert_array_equal(newest_sum(again, 0)[1], contribution(0, 3))


def test_a_damaged_snapshot_costs_the_work_behind_it_and_no_more(folder: RunFolder) -> None:
    server = make_server(folder)
    server.stream(with_snapshot(assigned(server.claim(claim("a"))).ticket, 3))
    path = folder.slot(0, 0).with_suffix(".snapshot")
    data = bytearray(path.read_bytes())
    data[-1] ^= 4
    path.write_bytes(data)
    work = assigned(make_server(folder).claim(claim("b")))
    assert (work.ticket.attempt, work.durable_n, work.snapshot) == (2, 0, None)


def test_a_complete_slot_has_no_snapshot_any_more(
    server: ParameterServer, folder: RunFolder
) -> None:
    ticket = assigned(server.claim(claim("a"))).ticket
    server.stream(with_snapshot(ticket, 3))
    server.complete(complete(ticket, claim("a", number=2)))
    assert not folder.slot(0, 0).with_suffix(".snapshot").exists()


def test_a_server_that_takes_over_knows_who_works_on_what(
    folder: RunFolder, clock: FakeClock
) -> None:
    server = make_server(folder, clock=clock)
    first = assigned(server.claim(claim("a", number=4, incarnation=2)))
    server.stream(with_snapshot(first.ticket, 3))
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


def test_a_complete_is_counted_once_by_the_server_that_takes_over(folder: RunFolder) -> None:
    messages = []
    server = make_server(folder, FakePlan(batch=2))
    for trainer in "ab":
        ticket = assigned(server.claim(claim(trainer))).ticket
        messages.append(complete(ticket, claim(trainer, number=2)))
    answer = server.complete(messages[0])
    assert isinstance(answer, Counted)
    again = make_server(folder, FakePlan(batch=2), trainers_live=True)
    assert again.complete(messages[0]) == answer
    closing = again.complete(messages[1])
    assert isinstance(closing, Counted)
    plan = FakePlan(batch=2)
    third = make_server(folder, plan, trainers_live=True)
    repeated = third.complete(messages[1])
    assert isinstance(repeated, Counted)
    assert assigned(repeated.next).ticket == assigned(closing.next).ticket
    assert plan.closed == []


def test_a_server_that_takes_over_gives_a_trainer_its_newest_slot_only(folder: RunFolder) -> None:
    server = make_server(folder)
    server.claim(claim("b"))
    first = assigned(server.claim(claim("a", number=1)))
    server.trainer_lost("b", "killed")
    second = assigned(server.claim(claim("a", number=2)))
    assert (first.ticket.slot, second.ticket.slot) == (1, 0)
    again = make_server(folder, trainers_live=True)
    assert [(task.slot, task.trainer) for task in again.status().running] == [(0, "a")]
    assert isinstance(again.stream(stream(first.ticket, 3)), Abandon)
    assert assigned(again.claim(claim("a", number=2))).ticket == second.ticket


def test_a_server_that_takes_over_tells_its_driver_s_trainers_from_those_before(
    folder: RunFolder,
) -> None:
    """A new driver's server that was killed before it had done anything leaves the old leases."""
    server = make_server(folder, session="old")
    old = assigned(server.claim(claim("a", number=7, incarnation=3)))
    server.stream(with_snapshot(old.ticket, 3))
    again = make_server(folder, session="new", trainers_live=True)
    assert again.status().running == ()
    work = assigned(again.claim(claim("a", number=1, incarnation=1)))
    assert (work.ticket.slot, work.ticket.attempt) == (0, old.ticket.attempt + 1)
    assert work.durable_n == 3
    assert isinstance(again.stream(stream(old.ticket, 9)), Abandon)
    # The next life of the new driver's server knows its own.
    third = make_server(folder, session="new", trainers_live=True)
    assert [task.attempt for task in third.status().running] == [work.ticket.attempt]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("lease", {"attempt": "one"}),
        ("lease", {"attempt": -1}),
        ("lease", {"attempt": True}),
        ("lease", {"trainer": 7}),
        ("lease", {"losses": None}),
        ("lease", {"more": 1}),
        ("snapshot", {"n": "many"}),
        ("safetensors", {"attempt": "one"}),
        ("safetensors", {"record": {"agent_steps": "many"}}),
        ("safetensors", {"record": {"losses": {"total": "low"}}}),
        ("safetensors", {"record": {"curve": [{"agent_steps": 1}]}}),
    ],
)
def test_a_sealed_file_with_values_that_cannot_be_is_set_aside(
    kind: str, changes: dict[str, Any], folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(folder)
    ticket = assigned(server.claim(claim("a"))).ticket
    server.stream(with_snapshot(ticket, 3))
    if kind == "safetensors":
        server.complete(complete(ticket, claim("a", number=2)))
    path = folder.slot(0, 0).with_suffix(f".{kind}")
    arrays, header = decode_arrays(path.read_bytes())
    content = header["content"]
    if "record" in changes:
        changes = {"record": {**content["record"], **changes["record"]}}
    path.write_bytes(encode_arrays(arrays, {**header, "content": {**content, **changes}}))
    again = make_server(folder, trainers_live=True)
    assert path.with_name(f"{path.name}.damaged").exists()
    assert "what it held is computed again" in caplog.text
    assert again.status().slots_complete == 0


def test_a_complete_is_counted_again_though_its_lease_is_gone(folder: RunFolder) -> None:
    server = make_server(folder)
    message = complete(assigned(server.claim(claim("a"))).ticket, claim("a", number=2))
    server.complete(message)
    folder.slot(0, 0).with_suffix(".lease").unlink()
    assert isinstance(make_server(folder, trainers_live=True).complete(message), Counted)


def test_a_round_steps_once_though_the_next_one_cannot_be_opened(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = FakePlan(batch=1)
    server = make_server(folder, plan)
    message = complete(assigned(server.claim(claim("a"))).ticket, claim("a", number=2))
    with monkeypatch.context() as patch:
        patch.setattr(SlotFiles, "read_lease", _unreadable)
        with pytest.raises(RunFolderError, match="cannot be read"):
            server.complete(message)
    assert isinstance(server.complete(message), Counted)
    assert server.claim(claim("a", number=3)) != Finished()
    assert (server.status().round, len(plan.closed)) == (1, 1)


def _unreadable(files: SlotFiles) -> None:
    raise RunFolderError("the slot cannot be read")


def test_a_claim_whose_lease_could_not_be_written_is_not_answered_by_an_old_one(
    server: ParameterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = assigned(server.claim(claim("a", number=1))).ticket
    server.complete(complete(ticket, claim("a", number=2)))
    with monkeypatch.context() as patch:
        patch.setattr("leap_rl.storage.locked_folder.write_atomically", disk_full)
        with pytest.raises(OSError, match="No space left"):
            server.claim(claim("a", number=3))
    assert assigned(server.claim(claim("a", number=3))).ticket.slot == 1


def test_closing_a_round_leaves_its_episodes_and_no_slots(
    server: ParameterServer, folder: RunFolder
) -> None:
    fill_round(server)
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
