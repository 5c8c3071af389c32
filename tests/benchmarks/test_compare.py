"""benchmarks/compare.py, with runs that take no time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare


class Runs:
    """Stands for all runs: ours give 100, 200, ... agent steps a second, a peer always 50."""

    def __init__(self) -> None:
        self.words: list[list[str]] = []
        self.environments: list[dict[str, str]] = []
        self.own = 0

    def __call__(self, words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.words.append(words)
        self.environments.append(options["env"])
        metrics: dict[str, Any] = {"versions": {"torch": "2"}, "agent_steps_per_s": 50.0}
        if "leap_rl" in words:
            self.own += 1
            metrics |= {
                "agent_steps_per_s": 100.0 * self.own,
                "emulator_limit_per_s": 1000.0,
                "fraction_of_limit": 0.1 * self.own,
                "trainers": 2,
                "envs": 32,
                "unroll": 5,
                "encoder": "e",
                "precision": "p",
                "processor": "P",
                "cores": 2,
                "date": "D",
                "others_cpu_share": 0.01,
            }
        return subprocess.CompletedProcess(words, 0, stdout=json.dumps(metrics))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr(compare.subprocess, "run", runs)
    monkeypatch.setattr(Path, "exists", lambda path: path.suffix != ".jsonl" or path.is_file())
    return runs


TWO_PEERS = ["--peers", "sb3_a2c", "envpool_step", "--repeats", "2"]


def test_each_peer_is_set_against_the_two_of_ours_around_it(runs: Runs) -> None:
    given = compare.read([*TWO_PEERS, "--games", "pong"])
    (row,) = compare.all_rows(given)
    whose = ["ours" if "leap_rl" in words else words[1] for words in runs.words]
    assert whose == [*["ours", "sb3_a2c.py", "ours", "envpool_step.py"] * 2, "ours"]
    # 100 A 200 B 300 A 400 B 500: A stands between 100 and 200 and between 300 and 400.
    assert compare.ratios(row) == {
        "sb3_a2c": pytest.approx((150 / 50 + 350 / 50) / 2),
        "envpool_step": pytest.approx((250 / 50 + 450 / 50) / 2),
    }


def test_the_table_ends_with_medians_over_the_games(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    given = compare.read(["--peers", "sb3_a2c", "--repeats", "1", "--games", "a", "b", "c"])
    lines = compare.compare(compare.all_rows(given), given).splitlines()
    # Ours are 100 and 200, 300 and 400, 500 and 600.
    assert lines[2] == "| a | 150 | 0.15 | 50 (3.00×) |"
    assert lines[4] == "| c | 550 | 0.55 | 50 (11.00×) |"
    assert lines[5] == "| **median** |  | 0.35 | (7.00×) |"
    assert capsys.readouterr().err.splitlines()[0] == "compare: a 150 0.15 50 (3.00×)"


def test_a_long_comparison_is_resumed_where_it_stopped(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "rows.jsonl"
    words = ["--peers", "sb3_a2c", "--repeats", "1", "--out", str(out), "--games", "a", "b", "c"]
    given = compare.read(words)
    measure = compare.measure

    def stopped(game: str, given: Any) -> Any:
        if game == "c":
            raise KeyboardInterrupt
        return measure(game, given)

    monkeypatch.setattr(compare, "measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        compare.all_rows(given)
    kept = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["game"] for row in kept] == ["a", "b"]
    monkeypatch.setattr(compare, "measure", measure)
    measured = len(runs.words)
    rows = compare.all_rows(given)
    assert len(runs.words) == measured + 3  # ours, the peer, ours: of game c alone
    assert [row["game"] for row in rows] == ["a", "b", "c"]
    assert rows[:2] == kept
    assert len(out.read_text().splitlines()) == 3
    with pytest.raises(SystemExit, match=r"--seconds = 7\.0: .*rows\.jsonl was measured with 30"):
        compare.all_rows(compare.read([*words, "--seconds", "7"]))


def test_an_instruction_set_holds_for_all(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    compare.all_rows(compare.read([*TWO_PEERS, "--games", "pong", "--isa", "avx2"]))
    for environment in runs.environments:
        assert environment["ONEDNN_MAX_CPU_ISA"] == "AVX2"
        assert environment["ATEN_CPU_CAPABILITY"] == "avx2"
        assert environment["MKL_ENABLE_INSTRUCTIONS"] == "AVX2"
        assert "PATH" in environment
    place = runs.words[0].index("--agent.precision")
    assert runs.words[0][place + 1] == "float32"
    with pytest.raises(SystemExit):
        compare.read(["--isa", "avx2", "--precision", "bfloat16"])
    assert compare.read([]).precision == "auto"


def test_ours_alone_is_set_against_the_limit(runs: Runs) -> None:
    given = compare.read(["--ours_only", "--repeats", "3", "--games", "a", "b"])
    lines = compare.targets(compare.all_rows(given)).splitlines()
    assert len(runs.words) == 6
    assert lines[2:6] == [
        "| a | 200 | 1,000 | 0.200 |",
        "| b | 500 | 1,000 | 0.500 |",
        "| **median** | 350 | 1,000 | 0.350 |",
        "| **least** | 200 | 1,000 | 0.200 |",
    ]
