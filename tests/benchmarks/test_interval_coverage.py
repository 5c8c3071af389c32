"""benchmarks/interval_coverage.py, and the table that docs/evaluation.md has of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import interval_coverage
from benchmarks.harness.tables import markdown
from leap_rl.evaluation.statistics import interquartile_mean

ROOT = Path(__file__).parents[2]


def test_few_seeds_are_held_by_students_interval_and_not_by_the_bootstrap() -> None:
    shares = interval_coverage.coverage(2, 3, evaluations=200, resamples=200)
    # Binomial(200, 0.95): deviation 1.5 %.
    assert 0.90 <= shares["mean"] <= 1.0
    assert 0.5 < shares["interquartile mean"] < shares["mean"]
    assert shares["probability of improvement"] < shares["mean"]


def test_the_true_interquartile_mean_is_that_of_many_scores() -> None:
    rng = np.random.default_rng(0)
    means = np.array([0.0, 1.0, 5.0])
    scores = means[:, None] + 1.3 * rng.standard_normal((3, 200_000))
    middle = float(interquartile_mean(list(scores)))
    assert interval_coverage.truth_of_middle(means, 1.3) == pytest.approx(middle, abs=0.02)


def test_the_docs_have_the_scripts_table() -> None:
    given = interval_coverage.options().parse_args([])
    table = markdown(interval_coverage.width_rows(given.widths))
    assert table in (ROOT / "docs" / "evaluation.md").read_text()
