from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.measures import grid
from leap_rl.evaluation.report_plots import EVALUATION, evaluation_pictures
from leap_rl.evaluation.savings import reached
from leap_rl.evaluation.summary import Summary
from leap_rl.evaluation.transfer_plots import (
    agent_panels,
    curve_panels,
    profile_panels,
    saved_panels,
)
from leap_rl.training.rounds.evaluation_slots import RANDOM
from tests.evaluation.agents import evaluation, flat, learner, only

BUDGET = 100_000


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summarize(
        evaluation(
            [
                learner(name, game, seed, half=half, floor=0, run=run)
                for name, half, runs in ((RANDOM, 0.6, 1), ("leap", 0.3, 2))
                for game in ("breakout", "catch")
                for run in range(runs)
                for seed in range(5)
            ]
        )
    )


def test_the_first_figure_is_raw_mean_returns_with_the_level_and_where_it_is_reached(
    summary: Summary,
) -> None:
    assert next(iter(EVALUATION)) == "curves"
    panel = curve_panels(summary)[0]
    game = summary.games["breakout"]
    means = game.reference.means
    assert panel.title == "Breakout"
    assert panel.level == pytest.approx((means.first + means.final) / 2)
    assert panel.level is not None
    np.testing.assert_array_equal(panel.lines[RANDOM].y, means.curve)
    ours = np.mean([run.curves.mean(axis=0) for run in game.runs["leap"]], axis=0)
    np.testing.assert_allclose(panel.lines["leap"].y, ours)
    assert panel.lines["leap"].x == grid(BUDGET).tolist()
    for name, curve in ((RANDOM, means.curve), ("leap", ours)):
        at = reached(curve, panel.level, BUDGET).agent_steps
        assert panel.marks[name] == pytest.approx((at, panel.level))
    assert panel.marks["leap"][0] < panel.marks[RANDOM][0]


def test_a_band_never_leaves_the_datas_range(summary: Summary) -> None:
    game = summary.games["breakout"]
    line = curve_panels(summary)[0].lines[RANDOM]
    agents = game.runs[RANDOM][0].curves
    known = np.isfinite(line.y)
    low, middle, high = (np.array(each)[known] for each in (line.low, line.y, line.high))
    assert (agents.min(axis=0)[known] <= low + 1e-9).all()
    assert (low <= middle).all()
    assert (middle <= high).all()
    assert (high <= agents.max(axis=0)[known] + 1e-9).all()
    assert (low < high).mean() > 0.9


def test_a_level_that_is_never_reached_has_no_mark_and_none_is_drawn_without_a_gain() -> None:
    random = [learner(RANDOM, "catch", seed) for seed in range(5)]
    low = [flat(0.0, initialization="leap", game="catch", seed=seed) for seed in range(3)]
    (panel,) = curve_panels(summarize(evaluation([*random, *low])))
    assert set(panel.marks) == {RANDOM}
    still = [flat(1.0, game="catch", seed=seed) for seed in range(5)]
    summary = summarize(evaluation([*still, *low]))
    (panel,) = curve_panels(summary)
    assert (panel.level, panel.marks) == (None, {})
    assert saved_panels(summary) == []


def test_what_is_saved_is_a_share_of_the_budget(summary: Summary) -> None:
    panels = {panel.title: panel for panel in saved_panels(summary)}
    comparison = only(summary)
    assert list(panels) == ["Breakout", "Catch", "mean over 2 games"]
    saved = comparison.games["catch"].saved
    assert panels["Catch"].rows["leap"] == pytest.approx([each / BUDGET for each in saved])
    mean = panels["mean over 2 games"].rows["leap"]
    assert mean.value == comparison.over["all"].saved.value / BUDGET
    assert all(panel.mark == 0.0 for panel in panels.values())
    (span,) = {panel.span for panel in panels.values()}
    assert span is not None
    every = [each for panel in panels.values() for share in panel.rows.values() for each in share]
    assert span == (min(0, *every), max(every))


def test_every_agent_has_its_line_in_the_colour_of_its_initialization(summary: Summary) -> None:
    panel = agent_panels(summary)[1]
    assert [line.group for line in panel.lines.values()] == [RANDOM] * 5 + ["leap"] * 10
    drawn = panel.lines["leap, run 1, agent 2"].y
    np.testing.assert_array_equal(drawn, summary.games["catch"].runs["leap"][1].curves[2])


def test_the_profile_falls_from_all_agents_to_none(summary: Summary) -> None:
    (panel,) = profile_panels(summary)
    scores = [
        game.scale(np.concatenate([run.final for run in game.runs["leap"]]))
        for game in summary.games.values()
        if game.scale is not None
    ]
    line = panel.lines["leap"]
    assert line.y[0] == 1.0
    assert min(each.y[-1] for each in panel.lines.values()) == 0
    middle = len(line.x) // 2
    assert line.y[middle] == pytest.approx(np.mean(np.concatenate(scores) > line.x[middle]))
    assert profile_panels(summary) == profile_panels(summary)


def test_all_plots_are_drawn_and_explained(
    summary: Summary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leap_rl.evaluation.plots.FORMATS", ("svg",))
    pictures = evaluation_pictures(summary, tmp_path)
    assert {file.stem for file in tmp_path.iterdir()} == set(EVALUATION)
    assert {picture.svg for picture in pictures} == {
        file.read_bytes() for file in tmp_path.glob("*.svg")
    }
    # Inches: what an image is scaled by decides how large its letters are.
    assert all(10.2 <= width_of(picture.svg) <= 12 for picture in pictures)
    assert all(4 <= width_of(picture.narrow) <= 5.5 for picture in pictures)


def width_of(svg: bytes) -> float:
    found = re.search(rb'width="([0-9.]+)pt"', svg)
    assert found is not None
    return float(found[1]) / 72


def test_what_there_is_of_a_part_is_drawn() -> None:
    curves = [learner(RANDOM, "breakout", 0), learner("leap", "pong", 0, start=-20, end=0)]
    part = summarize(evaluation(curves, seeds=2, budget=BUDGET))
    # Nothing is known of leap's pong as long as the baseline has not played it.
    assert [panel.title for panel in curve_panels(part)] == ["Breakout"]
    assert curve_panels(part)[0].lines[RANDOM].low is None
    empty = evaluation([], initializations=[RANDOM], games=["pong"], seeds=1)
    assert not any(plot.panels_of(summarize(empty)) for plot in EVALUATION.values())
