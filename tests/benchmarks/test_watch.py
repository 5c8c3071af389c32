"""The benchmark of `path.watch` counts an agent's updates and prints its overhead."""

from __future__ import annotations

import json

import pytest

from benchmarks import watch


@pytest.mark.parametrize(("algorithm", "segments"), [("A2C", 40), ("DQN", 25)])
def test_it_prints_the_overhead_of_pairs(
    algorithm: str, segments: int, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("stable_baselines3")
    words = ["--algorithm", algorithm, "--pairs", "2", "--agent_steps", "200"]
    assert watch.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["segments"] == segments
    for name in ("overhead_percent", "within_hooks_percent"):
        median, low, high = found[name]
        assert low <= median <= high
    assert 0 < found["within_hooks_percent"][0] < 100
