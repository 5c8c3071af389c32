"""Noisy quadratic bowls, for tests and for debugging. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.tasks.suite import Suite, check_games

QUADRATIC_GAMES = tuple(f"bowl_{index}" for index in range(8))
"""Bowls in a space of a few dimensions, each with its own lowest point."""


class QuadraticSuite(Suite):
    """The bowls."""

    kind = "quadratic"
    subject = "bowls to descend"
    learned_by = "gradient_descent"
    options = ("agent_steps", "num_envs", "unroll_length")
    compared_by = "evaluate games"

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        if list(games) in (["pretraining"], ["all"]):
            return QUADRATIC_GAMES
        return check_games(self.kind, tuple(games), QUADRATIC_GAMES)
