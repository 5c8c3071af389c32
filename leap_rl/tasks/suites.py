"""The suites of tasks, by `task.kind`. Importing this imports no torch."""

from __future__ import annotations

from leap_rl.tasks.atari import AtariSuite
from leap_rl.tasks.catch import CatchSuite
from leap_rl.tasks.gymnasium import GymnasiumSuite
from leap_rl.tasks.omniglot import OmniglotSuite
from leap_rl.tasks.quadratic import QuadraticSuite
from leap_rl.tasks.suite import Suite

SUITES: dict[str, Suite] = {
    suite.kind: suite
    for suite in (
        AtariSuite(),
        GymnasiumSuite(),
        CatchSuite(),
        OmniglotSuite(),
        QuadraticSuite(),
    )
}

OPTIONS: tuple[str, ...] = tuple(
    dict.fromkeys(option for suite in SUITES.values() for option in suite.options)
)
"""Fields of `TaskOptions` that have an effect on some suites alone."""


def suite_of(kind: str) -> Suite:
    """Return the suite of that name; ValueError if there is none."""
    if kind not in SUITES:
        raise ValueError(
            f"task.kind = {kind!r}: must be one of {', '.join(SUITES)}; environments of your own "
            "are games of gymnasium (docs/environments.md), and agent.algorithm says who learns"
        )
    return SUITES[kind]
