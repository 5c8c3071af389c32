"""Agents that go on from round to round, as the parameter server keeps them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leap_rl.learners.task import TaskSpec
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.sealed import seal
from leap_rl.training.messages import Assignment, Bytes, Counted
from leap_rl.training.server.parameter_server import ParameterServer
from tests.training.fakes import (
    FakePolicy,
    assigned,
    claim,
    complete,
    make_server,
    with_snapshot,
)
from tests.training.test_divergence import diverged


class DrawingPolicy(FakePolicy):
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
    return make_server(folder, DrawingPolicy(rounds=9, batch=2))


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
    policy = DrawingPolicy(rounds=9, batch=2)
    server = make_server(folder, policy, on_divergence="restart_task")
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
    path.write_bytes(seal({"agent": agent(0, "b")}, {"fingerprint": "other", "game": "b"}))
    with pytest.raises(RunFolderError, match="another game or run"):
        start(folder).claim(claim())
    path.unlink()
    with pytest.raises(RunFolderError, match="cannot be resumed from"):
        start(folder).claim(claim())


def _files(folder: RunFolder) -> list[Path]:
    return sorted((folder.path / "carried_over").rglob("*.safetensors"))
