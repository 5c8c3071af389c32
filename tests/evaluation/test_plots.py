from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leap_rl.evaluation import plots
from leap_rl.evaluation.plots import (
    PALETTE,
    HeatMap,
    IntervalPanel,
    Line,
    Panel,
    draw,
    wrapped,
)
from leap_rl.evaluation.statistics import IntervalEstimate


@pytest.fixture(autouse=True)
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels take most of the time."""
    monkeypatch.setattr(plots, "DPI", 30)


LINE = Line([1, 2], [0.5, 0.25], [0.4, 0.2], [0.6, 0.3])


def colors(svg: Path) -> set[str]:
    return {color.upper() for color in re.findall(r"#[0-9a-f]{6}", svg.read_text())}


def test_plots_are_files_and_equal_ones_are_equal(tmp_path: Path) -> None:
    panels = [
        Panel({"leap": LINE, "none": LINE}, "x", "y"),
        IntervalPanel(
            {"leap": IntervalEstimate(1.0, 0.5, 2.0), "none": IntervalEstimate(0.5, -1.0, 1.0)},
            "x",
            mark=0.0,
        ),
        HeatMap(["a", "b"], np.array([[np.nan, 0.2], [0.2, 0.9]]), "cosine"),
    ]
    once, twice = (draw(panels, tmp_path / name / "v1.0") for name in ("a", "b"))
    assert [file.name for file in once] == ["v1.0.png", "v1.0.svg"]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(once, twice, strict=True))
    assert once[0].read_bytes()[:4] == b"\x89PNG"


def test_a_name_has_its_color_whatever_else_is_drawn(tmp_path: Path) -> None:
    alone = Panel({"seed 0": Line([1, 2], [3, 4], group="leap")}, "x", "y")
    (_, svg) = draw([alone], tmp_path / "alone", names=["random", "leap"])
    assert PALETTE[1] in colors(svg)
    assert PALETTE[0] not in colors(svg)
    (_, svg) = draw([alone], tmp_path / "first")
    assert PALETTE[0] in colors(svg)


@pytest.mark.parametrize("panels", [1, 2])
def test_lines_of_a_group_have_one_entry_in_the_legend(tmp_path: Path, panels: int) -> None:
    lines = {
        f"{name}, seed {seed}": Line([1, 2], [3, 4], group=name)
        for name in ("random", "leap")
        for seed in range(3)
    }
    (_, svg) = draw([Panel(lines, "x", "y")] * panels, tmp_path / "seeds")
    text = svg.read_text()
    assert [text.count(f"<!-- {name} -->") for name in ("random", "leap")] == [1, 1]
    assert "seed 0" not in text


def test_a_legend_is_no_wider_than_the_figure(tmp_path: Path) -> None:
    names = [f"a setting with a long name, {index}" for index in range(6)]
    (_, svg) = draw([Panel(dict.fromkeys(names, LINE), "x", "y")], tmp_path / "legend")
    text = svg.read_text()
    width = float(re.findall(r'viewBox="0 0 ([0-9.]+) ', text)[0])
    begins = [
        float(re.findall(rf"<!-- {name} -->\s*<g [^>]*translate\(([-0-9.]+) ", text)[0])
        for name in names
    ]
    assert min(begins) > 0
    assert max(begins) < width - 100  # about as long as a name is


def test_what_has_no_interval_is_drawn_as_a_point(tmp_path: Path) -> None:
    unsure = IntervalPanel({"leap": IntervalEstimate(1.0, -math.inf, math.inf)}, "x")
    sure = IntervalPanel({"leap": IntervalEstimate(1.0, 0.5, 1.5)}, "x")
    (_, without), (_, with_bar) = (
        draw([panel], tmp_path / name) for name, panel in (("unsure", unsure), ("sure", sure))
    )
    # Point and bar in the color of the row, the bar see-through.
    assert "opacity: 0.35" not in without.read_text()
    assert "opacity: 0.35" in with_bar.read_text()


@pytest.mark.parametrize("columns", [None, 2])
def test_a_grid_has_a_place_for_each_panel(tmp_path: Path, columns: int | None) -> None:
    panels = [Panel({"leap": LINE}, "x", "y", title=f"game {i}") for i in range(3)]
    (_, svg) = draw(panels, tmp_path / "grid", columns=columns)
    text = svg.read_text()
    assert [f"<!-- game {i} -->" in text for i in range(3)] == [True] * 3
    # Said once a row and once a column.
    assert text.count("<!-- y -->") == (2 if columns else 1)


def test_dollars_in_names_set_nothing_in_mathematics(tmp_path: Path) -> None:
    name = "g$x_1$y$_$"
    rows = IntervalPanel({name: IntervalEstimate(1.0, 0.5, 1.5)}, "x", title=name)
    (_, svg) = draw([rows, Panel({name: LINE}, "x", "y", title=name)], tmp_path / "dollars")
    assert svg.read_text().count(f"<!-- {name} -->") >= 3


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("MinAtar/Breakout-v1", ["MinAtar/Breakout-v1"]),
        ("LunarLander-v3@gravity=-9.0,wind_power=15",
         ["LunarLander-v3@", "gravity=-9.0,wind_power=15"]),
        ("x" * 30, ["x" * 26, "xxxx"]),
        ("a name with spaces between its words", ["a name with spaces between", "its words"]),
    ],
)  # fmt: skip
def test_a_long_name_is_wrapped_and_never_cut(text: str, lines: list[str], tmp_path: Path) -> None:
    assert wrapped(text, 26).split("\n") == lines
    panel = IntervalPanel({text: IntervalEstimate(1.0, 0.5, 1.5)}, "x")
    (_, svg) = draw([panel], tmp_path / "wrapped")
    assert all(f"<!-- {line} -->" in svg.read_text() for line in lines)
    # A title has as much room as its panel is wide.
    (_, svg) = draw([replace(panel, title=3 * text)], tmp_path / "narrow", least_width=4.0)
    (_, wide) = draw([replace(panel, title=3 * text)], tmp_path / "wide", least_width=20.0)
    assert f"<!-- {3 * text} -->" not in svg.read_text()
    assert f"<!-- {3 * text} -->" in wide.read_text()
