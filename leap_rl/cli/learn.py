"""``leap-rl learn``: agents alone, without meta-learning."""

from __future__ import annotations

from functools import partial

from leap_rl.cli import train
from leap_rl.runs.config import LearnConfig

main = partial(train.main, kind=LearnConfig)
