"""benchmarks/interval_coverage.py, and the page of results that has its table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import interval_coverage
from benchmarks.interval_coverage import ALL, SETTINGS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("number", "truth"), [(0, 19_779.0), (11, 0.0)])
def test_an_interval_holds_the_truth_as_often_as_it_says(number: int, truth: float) -> None:
    row = interval_coverage.coverage(SETTINGS[number], truth, runs=3, agents=3, evaluations=100)
    # Binomial(100, 0.95): outside of 88 to 100 once in 500.
    assert float(row["holds the truth"].rstrip("%")) >= 88
    assert abs(float(row["bias"].replace(",", ""))) < 4_000
    assert float(row["half-width"].replace(",", "")) < 25_000


def test_an_arm_like_random_agents_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_coverage, "TRUTH_RUNS", 20)
    monkeypatch.setattr(interval_coverage, "TRUTH_RANDOM", 200)
    monkeypatch.setattr(interval_coverage, "TRUTH_AGENTS", 5)
    assert interval_coverage.truth(SETTINGS[11]) == 0.0
    assert 15_000 < interval_coverage.truth(SETTINGS[0]) < 24_000


def test_the_docs_have_a_row_of_each_setting() -> None:
    page = (ROOT / "docs/results/interval_coverage.md").read_text()
    table = page.split("-m benchmarks.interval_coverage")[1]
    drawn = {"setting": "x", "holds the truth": "95.0%", "runs": "3", "agents": "5"}
    (short,) = interval_coverage.in_short(
        [drawn | {"truth": "1", "bias": "+0", "half-width": "2", "not sound": "3%"}]
    )
    assert f"| {' | '.join(short)} |" in table
    rows = re.findall(r"^\| ([^|]+?) \| \d+ to ", table, re.MULTILINE)
    assert rows == [setting.name for setting in ALL]
