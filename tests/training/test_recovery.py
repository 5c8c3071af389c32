"""The files behind the slots, agents that are carried over, and servers that take over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from leap_rl.learners.task import TaskSpec
from leap_rl.storage import locked_folder
from leap_rl.storage.checksummed_file import decode_arrays, encode_arrays
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import Abandon, Assignment, Bytes, Counted, Finished
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.server.slots import SlotFiles
from tests.training.fakes import (
    FakePlan,
    assigned,
    claim,
    complete,
    make_server,
    ray_module,
    stream,
    with_snapshot,
)
from tests.training.test_divergence import diverged


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


def test_an_actor_that_cannot_resume_says_so_at_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_server(*, trainers_live: bool) -> Any:
        raise RunFolderError("000.safetensors: belongs to another run")

    module = ray_module("server_actor")
    context = SimpleNamespace(was_current_actor_reconstructed=True)
    monkeypatch.setattr(module, "ray", SimpleNamespace(get_runtime_context=lambda: context))
    monkeypatch.setattr(locked_folder, "SERVER_WAIT_S", 0.0)
    actor = module.ServerActor(SimpleNamespace(run_dir=tmp_path, make_server=make_server))
    for _ in range(2):
        with pytest.raises(RunFolderError, match="belongs to another run"):
            asyncio.run(actor.supervise())


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


# -- agents that are carried over -----------------------------------------------------------------


class DrawingPlan(FakePlan):
    """Two of three games a round: a and b, b and c, c and a, ..."""

    def open(self, round_number: int) -> list[TaskSpec]:
        self.opened = round_number
        games = ["abc"[(round_number + slot) % 3] for slot in range(2)]
        return [TaskSpec(game=game, seed=10 * round_number + i) for i, game in enumerate(games)]


def agent(round_number: int, game: str) -> Bytes:
    return np.frombuffer(f"{game} after {round_number}".encode(), dtype=np.uint8)


def said(work: Assignment) -> str | None:
    return None if work.carried_agent is None else bytes(work.carried_agent).decode()


def train_round(server: ParameterServer, number: int) -> list[str | None]:
    """Fill a round; returns what its tasks went on from."""
    seen = []
    for slot in range(2):
        work = assigned(server.claim(claim(number=2 * (2 * number + slot) + 1)))
        assert work.ticket.round == number
        seen.append(said(work))
        message = complete(work.ticket, claim(number=2 * (2 * number + slot) + 2))
        answer = server.complete(replace(message, carried_agent=agent(number, work.game)))
        assert isinstance(answer, Counted)
    return seen


def start(folder: RunFolder) -> ParameterServer:
    return make_server(folder, DrawingPlan(rounds=9, batch=2))


def test_the_agent_of_a_game_is_carried_over_to_its_next_round(folder: RunFolder) -> None:
    server = start(folder)
    assert train_round(server, 0) == [None, None]  # a, b
    assert train_round(server, 1) == ["b after 0", None]
    assert train_round(server, 2) == ["c after 1", "a after 0"]
    assert folder.read_state(3)["carried_over"] == {"a": 2, "b": 1, "c": 2}


def test_agents_survive_the_server(folder: RunFolder) -> None:
    train_round(start(folder), 0)
    assert train_round(start(folder), 1) == ["b after 0", None]


def test_what_no_recent_checkpoint_refers_to_is_removed(folder: RunFolder) -> None:
    server = start(folder)
    for number in range(4):
        train_round(server, number)
    agents = {path.relative_to(folder.path / "carried_over").as_posix() for path in _files(folder)}
    # Checkpoint 4 says a: 3, b: 3, c: 2; checkpoint 3 says a: 2, b: 1, c: 2.
    assert agents == {f"{name}.safetensors" for name in ("000003/a", "000003/b", "000002/c")} | {
        "000002/a.safetensors",
        "000001/b.safetensors",
    }


def test_a_task_is_restored_from_its_snapshot_rather_than_from_an_agent(folder: RunFolder) -> None:
    server = start(folder)
    train_round(server, 0)
    work = assigned(server.claim(claim(number=9)))
    server.stream(with_snapshot(work.ticket, 3))
    again = assigned(server.claim(claim(number=10)))
    assert again.snapshot is not None
    assert again.carried_agent is None


def test_a_task_that_starts_again_has_a_new_agent(folder: RunFolder) -> None:
    plan = DrawingPlan(rounds=9, batch=2)
    server = make_server(folder, plan, on_divergence="restart_task")
    train_round(server, 0)
    work = assigned(server.claim(claim(number=9)))
    assert said(work) == "b after 0"
    server.diverged(diverged(work.ticket))
    assert said(assigned(server.claim(claim(number=10)))) is None


def test_an_agent_that_is_damaged_or_of_another_run_is_told(folder: RunFolder) -> None:
    train_round(start(folder), 0)
    path = folder.carried_agent(0, "b")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(RunFolderError, match=r"b\.safetensors: cannot be resumed from .*digest"):
        start(folder).claim(claim())
    path.write_bytes(folder.carried_agent(0, "a").read_bytes())
    with pytest.raises(RunFolderError, match="another game or run"):
        start(folder).claim(claim())
    path.write_bytes(encode_arrays({"agent": agent(0, "b")}, {"fingerprint": "other", "game": "b"}))
    with pytest.raises(RunFolderError, match="another game or run"):
        start(folder).claim(claim())
    path.unlink()
    with pytest.raises(RunFolderError, match="cannot be resumed from"):
        start(folder).claim(claim())


def _files(folder: RunFolder) -> list[Path]:
    return sorted((folder.path / "carried_over").rglob("*.safetensors"))
