"""benchmarks/system: every measurement for real, in little time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks.harness.medians import estimate
from benchmarks.system import omniglot, server
from benchmarks.system.__main__ import main
from benchmarks.system.config import ServerConfig
from leap_rl.tasks.images.config import OmniglotConfig
from leap_rl.training.runtime.local import LocalRuntime

Measure = Callable[[str], dict[str, Any]]

PARAMETERS = 675_120
"""Of the default encoder."""


@pytest.fixture
def json_of(capsys: pytest.CaptureFixture[str]) -> Measure:
    def measure(words: str) -> dict[str, Any]:
        """Return what a measurement prints: one JSON object on one line, and nothing else."""
        assert main([*words.split(), "--json"]) == 0
        out = capsys.readouterr().out
        assert out.count("\n") == 1
        metrics: dict[str, Any] = json.loads(out)
        return metrics

    return measure


@pytest.mark.parametrize(
    ("n", "low", "high"),
    # The tabulated ranks of the 95 % interval of a median (as in Conover 1999, counted from 1),
    # and the whole range of few values.
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (20, 6, 15), (50, 18, 33), (3, 1, 3), (1, 1, 1)],
)
def test_the_interval_of_a_median_is_that_of_the_tables(n: int, low: int, high: int) -> None:
    assert estimate(list(range(n, 0, -1))) == ((n + 1) / 2, low, high)


def test_overhead_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = "overhead --game pong --seconds 0.1 --envs 2 --atari.preset machado"
    assert main(words.split()) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("pong, 2 environments")
    # 4 channels of gray instead of 3 of colors: 16 kernels of 8 by 8 more.
    assert f"({PARAMETERS + 16 * 8 * 8:,} shared parameters)" in captured.out
    rows = {words[0]: words[1:] for line in captured.out.splitlines() if (words := line.split())}
    assert all(float(rows[kind][0].replace(",", "")) > 0 for kind in ("energy", "length"))
    assert "RMSProp's sum of squares" in captured.out  # which is not in the metrics
    assert captured.err == "bench: measuring on pong for 0 s\n"


def test_snapshot_measures_what_resuming_after_a_failure_costs(json_of: Measure) -> None:
    metrics = json_of("snapshot --game qbert --seconds 0.1 --envs 1")
    # Parameters, their running squares, the path's last point and gradient, and its two sums.
    assert metrics["snapshot_mb"] > 7 * PARAMETERS * 4 / 1e6
    assert all(metrics[f"{part}_ms"] > 0 for part in ("take", "write", "restore"))
    share = metrics["take_ms"] / 60e3
    assert metrics["share_of_trainer"] == pytest.approx(share, abs=6e-6)  # both are rounded
    assert metrics["snapshots"] >= 3


# -- server -------------------------------------------------------------------------------------


def test_only_messages_sent_while_all_trainers_streamed_count() -> None:
    streams = [(0, 1.0, 0.1), (1, 2.5, 0.1), (0, 3.0, 0.1), (0, 4.0, 0.1), (1, 6.0, 0.1)]
    # Slot 2 is a short task of the same trainers.
    assert server.common_window([*streams, (2, 0.5, 0.1)], trainers=2) == (2.5, 4.0)


def check_loads(metrics: dict[str, Any], trainers: list[int]) -> None:
    assert metrics["message_mb"] == round(PARAMETERS * 4 / 1e6, 3)
    assert [load["trainers"] for load in metrics["loads"]] == trainers
    for load in metrics["loads"]:
        assert load["messages_per_s"] > 0
        assert load["mb_per_s"] == pytest.approx(load["messages_per_s"] * 2.70048, rel=0.01)
        assert 0 < load["server_busy_share"] < 1
        assert 0 < load["complete_ms"] <= load["trainer_wait_ms"]


def test_a_server_is_sent_contributions_of_the_real_size(monkeypatch: pytest.MonkeyPatch) -> None:
    # Through calls instead of Ray's messages, so that it takes no minute on a busy machine.
    monkeypatch.setattr(server, "make_ray_runtime", lambda **options: LocalRuntime())
    heard: list[str] = []
    metrics = server.measure(ServerConfig(trainers=[1], seconds=1.0), heard.append)
    assert len(heard) == 1
    check_loads(metrics, [1])
    assert metrics["loads"][0]["messages_per_s"] >= 5
    assert json.loads(json.dumps(metrics)) == metrics


@pytest.mark.slow
def test_server_prints_the_load_of_each_number_of_trainers(json_of: Measure) -> None:
    check_loads(json_of("server --trainers [1,2] --seconds 0.5"), [1, 2])


# -- startup ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_startup_splits_a_real_start(json_of: Measure) -> None:
    metrics = json_of("startup --game pong --envs 2 --repeats 1")
    assert (metrics["game"], metrics["envs"], metrics["repeats"]) == ("pong", 2, 1)
    for runtime in ("local", "ray"):
        parts = dict(metrics[runtime])
        total = parts.pop("total_s")
        assert sum(parts.values()) == pytest.approx(total, abs=0.01)
        assert 0 < parts["import_s"] < total
    assert metrics["ray"]["total_s"] > metrics["local"]["total_s"]


# -- omniglot -----------------------------------------------------------------------------------

MAKE = omniglot.RandomImages(OmniglotConfig(updates=3, batch_size=5))


def test_the_plain_loop_learns_what_the_task_learns() -> None:
    task, theta0 = MAKE(omniglot.SPEC), MAKE.random_initialization(0)
    task.start(theta0)
    plain, path = omniglot.PlainLoop(task), omniglot.METHOD.start(theta0, borrow=True)
    errors = []
    for update in range(3):
        plain.update(update)
        errors.append(task.advance(path.visit).losses["training_error"])
    for name, tensor in plain.network.state_dict().items():
        torch.testing.assert_close(tensor, task.named_parameters()[name], rtol=1e-5, atol=1e-6)
    assert not torch.equal(task.learner.shared, theta0)
    assert torch.allclose(torch.tensor(plain.errors), torch.tensor(errors))


# -- the command --------------------------------------------------------------------------------


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
