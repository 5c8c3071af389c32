from __future__ import annotations

import json

import pytest

from benchmarks.system import server
from benchmarks.system.config import ServerConfig
from benchmarks.system.server import common_window
from leap_rl.training.runtime.local import LocalRuntime


def test_only_what_was_sent_while_all_streamed_counts() -> None:
    streams = [(0, 1.0, 0.1), (1, 2.5, 0.1), (0, 3.0, 0.1), (0, 4.0, 0.1), (1, 6.0, 0.1)]
    # Slot 2 is a short task of the same trainers.
    assert common_window([*streams, (2, 0.5, 0.1)], trainers=2) == (2.5, 4.0)


def test_a_server_is_sent_contributions_of_the_real_size(monkeypatch: pytest.MonkeyPatch) -> None:
    # Through calls instead of Ray's messages, so that it takes no minute on a busy machine.
    monkeypatch.setattr(server, "make_ray_runtime", lambda **options: LocalRuntime())
    heard: list[str] = []
    metrics = server.measure(ServerConfig(trainers=[1], seconds=1.0), heard.append)
    assert len(heard) == 1
    assert metrics["message_mb"] == round(675_120 * 4 / 1e6, 3)
    (load,) = metrics["loads"]
    assert load["trainers"] == 1
    assert load["messages_per_s"] >= 5
    assert load["mb_per_s"] == pytest.approx(load["messages_per_s"] * 2.70048, rel=0.01)
    assert 0 < load["server_busy_share"] < 1
    assert 0 < load["complete_ms"] <= load["trainer_wait_ms"]
    assert json.loads(json.dumps(metrics)) == metrics
