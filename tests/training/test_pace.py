"""A server that is too busy has its trainers stream less often."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import Abandon, Continue
from leap_rl.training.server.pace import LOOK_EVERY_S, SLOWEST, Pace
from leap_rl.training.trainer import trainer
from leap_rl.training.trainer.trainer import Due, StreamSchedule
from tests.training.fakes import (
    FakeClock,
    FakePlan,
    assigned,
    claim,
    make_server,
    ray_module,
    stream,
)


def test_a_look_finds_the_pace_at_which_half_of_the_time_is_left() -> None:
    clock, cpu = FakeClock(), FakeClock()
    pace = Pace(clock=clock, cpu_clock=cpu)

    def passes(*, served_s: float, cpu_s: float) -> float:
        with pace.serving():
            clock.now_s += served_s
        clock.now_s += LOOK_EVERY_S - served_s
        cpu.now_s += cpu_s
        pace.look()
        return pace.factor

    assert passes(served_s=0.5, cpu_s=2.0) == 1.0  # 40 % of it
    assert passes(served_s=1.0, cpu_s=4.0) == pytest.approx(1.6)  # of which 1.6 leave 50 %
    assert passes(served_s=2.5, cpu_s=1.0) == pytest.approx(1.6)  # waiting for a disk counts
    assert passes(served_s=0.5, cpu_s=1.25) == 1.0  # others have ended
    for _ in range(10):
        slowest = passes(served_s=5.0, cpu_s=5.0)
    assert slowest == SLOWEST


def test_the_servers_answer_sets_the_trainers_intervals(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = FakeClock()
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=now))
    server = ray_module("server_actor").ServerActor(None)
    server._made = make_server(folder, FakePlan())
    server._pace.factor = 3.0
    module = ray_module("trainer_actor")
    client = module.RayClient(None, StreamSchedule(stream_every_s=2.0, snapshot_every_s=60.0))

    async def play() -> Continue | Abandon:
        ticket = assigned(await server.claim(claim())).ticket
        client._in_flight = module._Sent(ticket, False, None, now())
        return await server.stream(stream(ticket, 5))

    answer = asyncio.run(play())
    monkeypatch.setattr(module, "ray", SimpleNamespace(get=lambda reference, timeout: answer))
    assert client._last_answer(client._in_flight.ticket) == Continue(durable_n=0, pace=3.0)
    client.schedule.sent(snapshot=True)
    due = []
    for _ in range(4):
        now.now_s += 5.0
        due.append(client.schedule.due(restorable=True))
    assert due == [Due.NOTHING, Due.SUM, Due.SUM, Due.SUM]  # in 6 s, no longer in 2
    now.now_s += 160.0
    assert client.schedule.due(restorable=True) is Due.SNAPSHOT
