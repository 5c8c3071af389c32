"""Panels of curves, intervals and heat maps, drawn to files: the only importer of matplotlib.

Panels are plain data, and equal panels give equal files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from leap_rl.evaluation.statistics import FloatArray, IntervalEstimate

FORMATS = ("png", "svg")
MOST_CELL_TEXTS = 12
"""Rows of a heat map whose cells show their numbers."""
DPI = 150
TITLE_WIDTH, LABEL_WIDTH = 8.2, 26
"""Characters of a panel's title for each inch of its width, and of a line of a row's label; longer
ones are wrapped."""

# Okabe and Ito 2008, "Color Universal Design": told apart with any kind of color vision. Their
# yellow is left out, too faint for a line on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# The eighth line has the first color again, with other dashes.
DASHES = ("-", "--", ":", "-.")

STYLE: Any = {
    "svg.hashsalt": "leap_rl",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
}

Colors: TypeAlias = Mapping[str, tuple[str, str]]
"""Color and dashes by label or group."""


@dataclass(frozen=True)
class Line:
    """A line's points, and the band around them where there is one."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    group: str | None = None
    """Lines of a group are thin and share a color and an entry of the legend; else the label is
    its own."""


@dataclass(frozen=True)
class Panel:
    """Curves over a common axis."""

    lines: Mapping[str, Line]
    """By label, in the order of the legend."""
    x_label: str
    y_label: str
    log_y: bool = False
    title: str = ""
    level: float | None = None
    """Where a line stands that curves are to reach."""
    marks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Points of lines, by label or group, that a cross marks."""

    @property
    def names(self) -> Sequence[str]:
        return [line.group or label for label, line in self.lines.items()]

    @property
    def size(self) -> tuple[float, float]:
        return 3.4, 2.7

    def draw(self, axis: Any, colors: Colors) -> None:
        from matplotlib.ticker import EngFormatter, MaxNLocator

        for label, line in self.lines.items():
            color, dashes = colors[line.group or label]
            axis.plot(
                line.x,
                line.y,
                label=label,
                color=color,
                linestyle=dashes,
                linewidth=1.7 if line.group is None else 0.9,
                alpha=1.0 if line.group is None else 0.75,
                marker="o" if len(line.x) < 10 else "",
                markersize=4,
            )
            if line.low is not None and line.high is not None:
                axis.fill_between(line.x, line.low, line.high, color=color, alpha=0.18, linewidth=0)
        if self.level is not None:
            axis.axhline(self.level, color="black", linewidth=0.9, linestyle="--")
        for label, (x, y) in self.marks.items():
            looks = {"color": colors[label][0], "markeredgecolor": "white", "markersize": 10}
            axis.plot([x], [y], marker="X", zorder=3, **looks)
        axis.set(xlabel=self.x_label, ylabel=self.y_label)
        if self.log_y:
            axis.set_yscale("log")
        counts = all(float(x).is_integer() for line in self.lines.values() for x in line.x)
        locator = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=counts)
        axis.xaxis.set_major_locator(locator)
        for one in (axis.xaxis, axis.yaxis):
            if max(abs(end) for end in one.get_view_interval()) >= 10_000 and not self.log_y:
                one.set_major_formatter(EngFormatter(sep=""))
        axis.grid(alpha=0.3)


@dataclass(frozen=True)
class IntervalPanel:
    """Values with their intervals, one under the other."""

    rows: Mapping[str, IntervalEstimate]
    """By label, from the top; an infinite interval is not drawn."""
    x_label: str
    mark: float | None = None
    """Where the line of no difference stands."""
    title: str = ""
    group: str | None = None
    """Whose color all rows have; else each has that of its label."""
    span: tuple[float, float] | None = None
    """Ends of the axis, so that panels side by side compare; else those of the rows."""

    @property
    def names(self) -> Sequence[str]:
        return [self.group] if self.group else list(self.rows)

    @property
    def size(self) -> tuple[float, float]:
        labels = [wrapped(label, LABEL_WIDTH).split("\n") for label in self.rows]
        longest = max(len(line) for label in labels for line in label)
        return 3.4 + 0.08 * longest, 1.2 + sum(0.14 + 0.18 * len(label) for label in labels)

    def draw(self, axis: Any, colors: Colors) -> None:
        for place, (label, (value, low, high)) in enumerate(self.rows.items()):
            color, _ = colors[self.group or label]
            if math.isfinite(low) and math.isfinite(high):
                axis.plot([low, high], [place, place], color=color, linewidth=7, alpha=0.35)
            axis.plot([value], [place], color=color, marker="o", markersize=7)
        if self.mark is not None:
            axis.axvline(self.mark, color="black", linewidth=0.9, linestyle="--")
        axis.set(xlabel=self.x_label, ylim=(len(self.rows) - 0.5, -0.5))
        labels = [wrapped(label, LABEL_WIDTH) for label in self.rows]
        axis.set_yticks(range(len(self.rows)), labels)
        axis.margins(x=0.08)
        if self.span is not None:
            axis.plot(self.span, [0, 0], alpha=0.0)
        axis.locator_params(axis="x", nbins=5)
        axis.grid(axis="x", alpha=0.3)


@dataclass(frozen=True)
class HeatMap:
    """A square of values between -limit and limit; NaN is left blank."""

    labels: Sequence[str]
    values: FloatArray
    value_label: str
    limit: float = 1.0
    title: str = ""

    names = ()

    @property
    def size(self) -> tuple[float, float]:
        side = 2.6 + 0.3 * len(self.labels)
        return side + 0.9, side

    def draw(self, axis: Any, colors: Colors) -> None:
        image = axis.imshow(self.values, cmap="PuOr_r", vmin=-self.limit, vmax=self.limit)
        places = range(len(self.labels))
        labels = [wrapped(label, LABEL_WIDTH) for label in self.labels]
        axis.set_xticks(places, labels, rotation=90)
        axis.set_yticks(places, labels)
        axis.set_facecolor("#DDDDDD")
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
        if len(self.labels) <= MOST_CELL_TEXTS:
            for row, column in np.argwhere(np.isfinite(self.values)):
                value = self.values[row, column]
                color = "white" if abs(value) > 0.6 * self.limit else "black"
                text = f"{value:.2f}".replace("-0.00", "0.00")
                looks = {"ha": "center", "va": "center", "fontsize": "small", "color": color}
                axis.text(column, row, text, **looks)
        axis.figure.colorbar(image, ax=axis, shrink=0.8, label=self.value_label)


AnyPanel: TypeAlias = Panel | IntervalPanel | HeatMap


def draw(
    panels: Sequence[AnyPanel],
    path: Path,
    *,
    columns: int | None = None,
    least_width: float | None = None,
    names: Sequence[str] = (),
    formats: Sequence[str] | None = None,
) -> list[Path]:
    """Draw panels, and write them to `path` with each suffix of `formats`, by default `FORMATS`.

    They fill a grid of `columns`, by default one row, from left to right and from the top, at least
    `least_width` inches wide, by default 6.4 where there is one panel. `names` are labels and
    groups that get the first colors in this order, drawn here or not, so that several figures have
    them in the same.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    columns = min(columns or len(panels), len(panels))
    rows = -(-len(panels) // columns)
    shown = dict.fromkeys(name for panel in panels for name in panel.names)
    colors = {
        name: (PALETTE[i % len(PALETTE)], DASHES[i // len(PALETTE) % len(DASHES)])
        for i, name in enumerate(dict.fromkeys([*names, *shown]))
    }
    width, height = np.max([(3.4, 2.7), *(panel.size for panel in panels)], axis=0)
    if least_width is None:
        least_width = 6.4 if len(panels) == 1 and isinstance(panels[0], Panel) else 0.0
    width = max(width, least_width / columns)
    if isinstance(panels[0], Panel):
        height = max(height, min(3.6, 0.6 * width))
    with matplotlib.rc_context(STYLE):
        size = width * columns, height * rows
        figure, axes = plt.subplots(
            rows, columns, figsize=size, layout="constrained", squeeze=False
        )
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
        for index, (panel, axis) in enumerate(zip(panels, axes.flat, strict=False)):
            axis.set_title(wrapped(panel.title, int(TITLE_WIDTH * width)))
            panel.draw(axis, colors)
            if isinstance(panel, Panel):  # a label is not repeated beside or above an equal one
                left = panels[index - 1] if index % columns else None
                below = panels[index + columns] if index + columns < len(panels) else None
                if isinstance(below, Panel) and below.x_label == panel.x_label:
                    axis.set_xlabel("")
                if isinstance(left, Panel) and left.y_label == panel.y_label:
                    axis.set_ylabel("")
        if len(shown) > 1 and isinstance(panels[0], Panel):  # rows of intervals have names
            _add_legend(figure, {name: colors[name] for name in shown})
        path.parent.mkdir(parents=True, exist_ok=True)
        files = [path.with_name(f"{path.name}.{form}") for form in formats or FORMATS]
        for file in files:
            dated = {"Date": None} if file.suffix == ".svg" else None
            figure.savefig(file, dpi=DPI, metadata=dated)
        plt.close(figure)
    return files


def _add_legend(figure: Any, shown: Colors) -> None:
    from matplotlib.lines import Line2D

    looks: Sequence[Any] = list(shown.values())
    entries = [Line2D([], [], color=color, ls=dashes, lw=2.2) for color, dashes in looks]
    width, height = figure.get_size_inches()
    names = [_literal(name) for name in shown]
    # As many entries a row, of at most four, as are no wider than the figure.
    for ncols in range(min(4, len(shown)), 0, -1):
        legend = figure.legend(
            entries, names, loc="outside upper center", ncols=ncols, frameon=False
        )
        if ncols == 1 or legend.get_window_extent().width <= width * figure.dpi:
            break
        legend.remove()
    figure.set_size_inches(width, height + 0.15 + 0.2 * -(-len(shown) // ncols))


def wrapped(text: str, width: int) -> str:
    """Return a text, such as a game's id with options, in lines of at most `width` characters.

    Lines end behind a space, comma, `@`, `/`, `:` or `_`; only what has none is split.
    """
    lines = [""]
    for part in re.findall(r"[^\s,@/:_]*[\s,@/:_]|[^\s,@/:_]+", text):
        if lines[-1] and len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return _literal("\n".join(line.rstrip() for line in lines))


def _literal(text: str) -> str:
    """Return a text whose dollars set nothing in mathematics."""
    return text.replace("$", r"\$")


def title_of(game: str) -> str:
    """Return a game's name as a title."""
    return game.replace("_", " ").title() if game.islower() else game
