"""Rows of metrics are read by area, game and figure."""

from __future__ import annotations

from leap_rl.tracking.metrics import by_game


def test_a_metric_of_games_is_found_by_their_whole_names() -> None:
    row = {
        "loss/a/total": 1.0,
        "loss/MinAtar/Breakout-v1/total": 3.0,
        "loss/a/validation": 9.0,
        "path/a/total": 9.0,
        "losses/a/total": 9.0,
        "loss/total": 9.0,
        "meta_step": 0,
    }
    assert by_game(row, "loss", "total") == {"a": 1.0, "MinAtar/Breakout-v1": 3.0}
