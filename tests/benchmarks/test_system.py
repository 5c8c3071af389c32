"""benchmarks/system: what parts of the system cost, for real, in little time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.system.__main__ import BENCHES, main


@pytest.fixture
def json_of(capsys: pytest.CaptureFixture[str]) -> Callable[[str], dict[str, Any]]:
    def measure(words: str) -> dict[str, Any]:
        """What a measurement prints: one JSON object on one line, and nothing else."""
        assert main([*words.split(), "--json"]) == 0
        out = capsys.readouterr().out
        assert out.count("\n") == 1
        metrics: dict[str, Any] = json.loads(out)
        return metrics

    return measure


Measure = Callable[[str], dict[str, Any]]


def test_overhead_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = "overhead --game pong --seconds 0.1 --envs 2 --atari.preset machado"
    assert main(words.split()) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("pong, 2 environments")
    # 4 channels of gray instead of 3 of colors: 16 kernels of 8 by 8 more.
    assert f"({675_120 + 16 * 8 * 8:,} shared parameters)" in captured.out
    rows = {words[0]: words[1:] for line in captured.out.splitlines() if (words := line.split())}
    assert float(rows["energy"][0].replace(",", "")) > 0
    assert float(rows["length"][0].replace(",", "")) > 0
    assert "RMSProp's sum of squares" in captured.out  # which is not in the metrics
    assert captured.err == "bench: measuring on pong for 0 s\n"


def test_snapshot_says_what_going_on_after_a_death_costs(json_of: Measure) -> None:
    metrics = json_of("snapshot --game qbert --seconds 0.1 --envs 1")
    # Parameters, their running squares, the path's last point and gradient, and its two sums.
    assert metrics["snapshot_mb"] > 7 * 675_120 * 4 / 1e6
    assert all(metrics[f"{part}_ms"] > 0 for part in ("take", "write", "restore"))
    share = metrics["take_ms"] / 60e3
    assert metrics["share_of_trainer"] == pytest.approx(share, abs=6e-6)  # both are rounded
    assert metrics["snapshots"] >= 3


@pytest.mark.slow
def test_server_prints_the_load_of_each_number_of_trainers(json_of: Measure) -> None:
    metrics = json_of("server --trainers [1,2] --seconds 0.5")
    assert metrics["message_mb"] == round(675_120 * 4 / 1e6, 3)
    assert [load["trainers"] for load in metrics["loads"]] == [1, 2]
    for load in metrics["loads"]:
        assert load["messages_per_s"] > 0
        assert 0 < load["server_busy_share"] < 1
        assert 0 < load["complete_ms"] <= load["trainer_wait_ms"]


@pytest.mark.slow
def test_startup_takes_a_real_start_apart(json_of: Measure) -> None:
    metrics = json_of("startup --game pong --envs 2 --repeats 1")
    assert (metrics["game"], metrics["envs"], metrics["repeats"]) == ("pong", 2, 1)
    for runtime in ("local", "ray"):
        parts = dict(metrics[runtime])
        total = parts.pop("total_s")
        assert sum(parts.values()) == pytest.approx(total, abs=0.01)
        assert 0 < parts["import_s"] < total
    assert metrics["ray"]["total_s"] > metrics["local"]["total_s"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("overhead --game held_out", [": game = held_out:", "pool of 2", "'breakout'"]),
        ("overhead --atari.preset papr", [": atari.preset = papr", "machado"]),
        ("server --trainers x", ["trainers = x"]),
        ("slowness", ["bench: slowness: no such measurement", "overhead, snapshot, server"]),
        ("overhead --agent.device cuda", ["agent.device = cuda"]),
    ],
)
def test_bad_input_gets_one_line(
    words: str,
    parts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(words.split()) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert all(part in line for part in parts), line


def test_each_measurement_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    for name in BENCHES:
        assert f"\n  {name} " in listed
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert f"usage: python -m benchmarks.system {name}" in capsys.readouterr().out
