from __future__ import annotations

import numpy as np

from leap_rl.evaluation.meta_run import (
    cosine_panels,
    cosine_table,
    path_panels,
    validation_panels,
)
from leap_rl.evaluation.report_plots import META_RUN

ROWS = [
    {
        "meta_step": 0,
        "path/pong/energy": 4.0,
        "path/pong/cosine": 0.9,
        "path/space_invaders/energy": 2.0,
        "cosine/pong/space_invaders": 0.5,
        "cosine/alien/pong": -0.25,
        "cosine/pong/pong": 0.75,
    },
    {"meta_step": 2, "path/pong/energy": 3.0, "cosine/pong/space_invaders": 0.0},
]


def test_a_games_path_is_drawn_over_the_meta_steps_that_had_it() -> None:
    pong, invaders = path_panels(ROWS)
    assert (pong.title, pong.y_label) == ("Pong", "path energy")
    assert (pong.lines["energy"].x, pong.lines["energy"].y) == ([0, 2], [4.0, 3.0])
    assert invaders.lines["energy"].x == [0]
    (length,) = path_panels([{"meta_step": 1, "path/pong/length": 7.0}])
    assert length.y_label == "path length"
    assert path_panels([{"meta_step": 0, "path/pong/displacement": 1.0}]) == []


def test_cosines_are_averaged_over_the_meta_steps_that_had_both_games() -> None:
    table = cosine_table(ROWS)
    assert sorted(table.games) == ["alien", "pong", "space_invaders"]
    at = {game: place for place, game in enumerate(table.games)}
    alien, pong, invaders = at["alien"], at["pong"], at["space_invaders"]
    assert table.means[pong, invaders] == table.means[invaders, pong] == 0.25
    assert table.means[alien, pong] == -0.25
    assert table.means[pong, pong] == 0.75
    assert np.isnan(table.means[alien, invaders])
    assert np.isnan(table.means[alien, alien])


def test_games_that_pull_together_are_neighbors() -> None:
    first, second = ["a", "c", "e"], ["b", "d", "f"]
    row = {
        f"cosine/{one}/{other}": 0.5 if (one in first) == (other in first) else -0.5
        for one in "abcdef"
        for other in "abcdef"
        if one < other
    }
    games = cosine_table([row]).games
    assert {frozenset(games[:3]), frozenset(games[3:])} == {frozenset(first), frozenset(second)}


def test_the_maps_colors_end_at_the_largest_cosine_between_two_games() -> None:
    (drawn,) = cosine_panels(ROWS)
    assert drawn.limit == 0.25
    assert "Space Invaders" in drawn.labels
    (zeros,) = cosine_panels([{"cosine/a/b": 0.0}])
    assert zeros.limit == 1.0


def test_what_the_rows_have_is_drawn() -> None:
    drawn = {name for name, plot in META_RUN.items() if plot.panels_of(ROWS)}
    assert drawn == {"paths", "cosines"}
    rows = [{"meta_step": 0, "return/pong/mean": 1.0}]
    assert not any(plot.panels_of(rows) for plot in META_RUN.values())
    judged = [{"meta_step": step, "validation/gain": step / 2} for step in (0, 4)]
    (panel,) = validation_panels(judged)
    assert (panel.lines["mean"].x, panel.lines["mean"].y) == ([0, 4], [0.0, 2.0])


def test_names_with_a_slash_are_told_apart() -> None:
    one, other = "MinAtar/Asterix-v1", "MinAtar/Breakout-v1"
    rows = [{"meta_step": 0, f"cosine/{one}/{other}": 0.5, f"path/{one}/energy": 1.0}]
    table = cosine_table(rows)
    assert set(table.games) == {one, other}
    assert table.means[0, 1] == 0.5
    assert len(path_panels(rows)) == 1
    mixed = {"cosine/ALE/Pong-v5/my:Maze-v0": 0.5, "loss/ALE/Pong-v5/total": 1.0}
    assert set(cosine_table([mixed | {"loss/my:Maze-v0/total": 1.0}]).games) == {
        "ALE/Pong-v5",
        "my:Maze-v0",
    }
