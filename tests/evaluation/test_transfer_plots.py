from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leap_rl.evaluation.comparison import normalized_scores, summarize
from leap_rl.evaluation.measures import area, grid, on_grid
from leap_rl.evaluation.report_plots import EVALUATION, evaluation_pictures
from leap_rl.evaluation.summary import Summary
from leap_rl.evaluation.transfer_plots import (
    agent_panels,
    difference_panels,
    mean_panels,
    profile_panels,
    reward_panels,
    score_panels,
)
from leap_rl.training.rounds.evaluation_slots import RANDOM
from tests.evaluation.agents import agent, evaluation, learner

BUDGET = 100_000


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summarize(
        evaluation(
            [
                learner(name, game, seed, half=half, floor=0)
                for name, half in ((RANDOM, 0.5), ("leap", 0.3))
                for game in ("breakout", "catch")
                for seed in range(3)
            ]
        )
    )


def test_the_papers_figure_is_the_normalized_mean_with_two_deviations(summary: Summary) -> None:
    panel = mean_panels(summary)[0]
    assert panel.title == "Breakout"
    line = panel.lines["leap"]
    setting = summary.settings["breakout"]
    assert setting.scale is not None
    points = grid(BUDGET)
    raw = np.array(
        [on_grid(c, points, setting.window) for c in summary.evaluation.of("leap", "breakout")]
    )
    scores = setting.scale(raw[:, -1])
    assert line.x[-1] == BUDGET
    assert line.y[-1] == pytest.approx(scores.mean())
    assert line.low is not None
    assert line.high is not None
    assert line.high[-1] - line.y[-1] == pytest.approx(2 * scores.std(ddof=1))
    assert line.y[-1] - line.low[-1] == pytest.approx(2 * scores.std(ddof=1))
    assert np.isfinite(line.y).all()
    assert line.x[0] == points[~np.isnan(raw).any(axis=0)][0]


def test_the_rewards_are_what_the_area_is_under(summary: Summary) -> None:
    panel = reward_panels(summary)[1]
    line = panel.lines["leap"]
    assert line.x == [5_000 * (point + 1) for point in range(20)]
    areas = [area(curve, BUDGET) for curve in summary.evaluation.of("leap", "catch")]
    assert np.mean(line.y) == pytest.approx(np.mean(areas))
    first = [curve.rewards[:5].sum() / 5 for curve in summary.evaluation.of("leap", "catch")]
    assert line.y[0] == pytest.approx(np.mean(first))
    assert line.high is not None
    assert line.high[0] - line.y[0] == pytest.approx(2 * np.std(first, ddof=1))


def test_a_short_tasks_rewards_are_drawn_as_they_are() -> None:
    one = replace(
        learner("leap", "catch", 0),
        interval_ends=np.array([50_000, 80_000, 100_000]),
        rewards=np.array([100.0, 30.0, 60.0]),
    )
    line = reward_panels(summarize(evaluation([one])))[0].lines["leap"]
    assert (line.x, line.y) == ([50_000, 80_000, 100_000], [2.0, 1.0, 3.0])


def test_the_runs_of_a_group_have_lines_of_their_own() -> None:
    curves = [learner("leap", "breakout", 1, run=run) for run in range(2)]
    panel = agent_panels(summarize(evaluation(curves)))[0]
    assert list(panel.lines) == ["leap, leap-0, seed 1", "leap, leap-1, seed 1"]


def test_every_seed_has_its_line_in_the_colour_of_its_initialization(summary: Summary) -> None:
    panel = agent_panels(summary)[1]
    assert [line.group for line in panel.lines.values()] == [RANDOM] * 3 + ["leap"] * 3
    curve = summary.evaluation.of("leap", "catch")[1]
    drawn = on_grid(curve, grid(BUDGET), summary.settings["catch"].window)
    np.testing.assert_array_equal(panel.lines["leap, seed 1"].y, drawn)


def test_scores_and_differences_are_those_of_the_summary(summary: Summary) -> None:
    panels = score_panels(summary)
    titles = ["area under the curve", "final performance", "final performance"]
    assert [panel.title for panel in panels] == titles
    found = summary.aggregates
    assert panels[0].rows["leap"] == found["leap", "area", "baseline"].interquartile_mean
    assert panels[2].rows["leap"] == found["leap", "final", "human"].interquartile_mean
    area, _, drawdown = difference_panels(summary)
    (comparison,) = summary.comparisons
    assert comparison.over_games is not None
    assert list(area.rows) == ["Breakout", "Catch", "all games"]
    assert area.rows["all games"] == comparison.over_games.area
    scale = summary.settings["catch"].reward_scale
    assert scale is not None
    catch = comparison.games["catch"]
    assert catch.area is not None
    assert area.rows["Catch"].value == pytest.approx(catch.area.value / scale.unit)
    assert drawdown.rows["Catch"] == catch.drawdown


def test_the_profile_falls_from_all_agents_to_none(summary: Summary) -> None:
    baseline, human = profile_panels(summary)
    assert "human" in human.x_label
    scores = np.concatenate(list(normalized_scores(summary, "leap", "final", "baseline").values()))
    line = baseline.lines["leap"]
    assert line.y[0] == 1.0
    assert min(panel.lines[name].y[-1] for panel in (baseline, human) for name in panel.lines) == 0
    middle = len(line.x) // 2
    assert line.y[middle] == pytest.approx(np.mean(scores > line.x[middle]))
    assert profile_panels(summary) == profile_panels(summary)


def test_all_plots_are_drawn_and_explained(
    summary: Summary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leap_rl.evaluation.plots.FORMATS", ("svg",))
    pictures = evaluation_pictures(summary, tmp_path)
    names = {"rewards", "curves", "seeds", "scores", "differences", "profile"}
    assert {file.stem for file in tmp_path.iterdir()} == names
    assert {picture.svg for picture in pictures} == {
        file.read_bytes() for file in tmp_path.glob("*.svg")
    }


def test_what_there_is_of_a_part_is_drawn() -> None:
    curves = [
        learner(RANDOM, "breakout", 0),
        agent([], [], seed=1),
        learner("leap", "pong", 0, start=-20, end=0),
    ]
    part = summarize(evaluation(curves, seeds=2, budget=BUDGET))
    # Nothing normalises leap's pong as long as the baseline has not played it.
    assert [panel.title for panel in mean_panels(part)] == ["Breakout"]
    assert mean_panels(part)[0].lines[RANDOM].low is None
    assert [panel.title for panel in agent_panels(part)] == ["Breakout", "Pong"]
    assert difference_panels(part) == []
    assert [len(panel.lines) for panel in reward_panels(part)] == [1, 1]
    # One of the baseline's two agents finished no episode: it has an area and no final performance.
    assert math.isfinite(score_panels(part)[0].rows[RANDOM].low)
    assert math.isinf(score_panels(part)[1].rows[RANDOM].low)
    empty = evaluation([], initializations=[RANDOM], games=["pong"], seeds=1)
    nothing = summarize(empty)
    assert not any(plot.panels_of(nothing) for plot in EVALUATION.values())
