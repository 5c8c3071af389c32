from __future__ import annotations

import re
from pathlib import Path

import pytest

from leap_rl.tracking.metrics import METRICS, pattern_of

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_docs_explain_exactly_the_registered_metrics() -> None:
    documented = re.findall(r"^\| `([^`]+)` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(documented) == sorted(METRICS)


@pytest.mark.parametrize(
    ("key", "pattern"),
    [
        ("meta_step", "meta_step"),
        ("meta/step_norm", "meta/step_norm"),
        ("return/space_invaders/mean", "return/<game>/mean"),
        ("throughput/agent_steps_per_s", "throughput/agent_steps_per_s"),
        ("throughput/pong/agent_steps_per_s", "throughput/<game>/agent_steps_per_s"),
        ("return/MinAtar/Asterix-v1@x=1/mean", "return/<game>/mean"),
        ("return/a/b/c/mean", None),
        ("return//mean", None),
        ("return/pong/mean/x", None),
        ("x/return/pong/mean", None),
        ("steps", None),
    ],
)
def test_pattern_of(key: str, pattern: str | None) -> None:
    assert pattern_of(key) == pattern
