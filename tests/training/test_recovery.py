"""The files behind the slots, and servers that take over from one that died."""

from __future__ import annotations

from typing import Any

import pytest

from leap_rl.storage.checksummed_file import decode_arrays, encode_arrays
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import Abandon, Counted, Finished
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.server.slots import SlotFiles
from tests.training.fakes import (
    FakePlan,
    assigned,
    claim,
    complete,
    make_server,
    stream,
    with_snapshot,
)


def test_a_round_that_was_full_when_the_server_died_closes_when_it_returns(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(folder, FakePlan(rounds=1, batch=1))
    message = complete(assigned(server.claim(claim())).ticket, claim(number=2))
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_checkpoint", _unwritable)
        with pytest.raises(OSError, match="is full"):
            server.complete(message)
    plan = FakePlan(rounds=1, batch=1)
    assert make_server(folder, plan).status().finished
    assert len(plan.closed) == 1


def _unwritable(*content: object, **options: object) -> None:
    raise OSError("the disk is full")


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
