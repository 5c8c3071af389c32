"""benchmarks/interval_coverage.py, and the table that docs/evaluation.md has of it."""

from __future__ import annotations

import runpy
from pathlib import Path

from leap_rl.evaluation.figures import markdown

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "interval_coverage.py"))


def test_few_seeds_are_held_by_students_interval_and_not_by_the_bootstrap() -> None:
    shares = SCRIPT["coverage"](2, 3, evaluations=200, resamples=200)
    # Binomial(200, 0.95): deviation 1.5 %.
    assert 0.90 <= shares["mean"] <= 1.0
    assert 0.5 < shares["interquartile mean"] < shares["mean"]
    assert shares["probability of improvement"] < shares["mean"]


def test_the_docs_have_the_scripts_table() -> None:
    table = markdown(SCRIPT["width_rows"](SCRIPT["options"]().parse_args([]).widths))
    assert table in (ROOT / "docs" / "evaluation.md").read_text()
