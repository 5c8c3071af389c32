"""Figures of curves with their intervals, and tables, as files. The one importer of matplotlib."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMATS = ("png", "svg")


@dataclass(frozen=True)
class Line:
    """One line of a figure: its points, and the band around them where there is one."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class Panel:
    """One part of a figure."""

    lines: Mapping[str, Line]
    """By label, in the order of the legend."""
    x_label: str
    y_label: str
    log_y: bool = False


def draw(panels: Sequence[Panel], path: Path) -> list[Path]:
    """Draw panels side by side, and write them to `path` with each suffix of `FORMATS`.

    Equal figures are equal files.
    """
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "leap_rl"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, len(panels), figsize=(5.2 * len(panels), 3.6), layout="constrained", squeeze=False
    )
    for panel, axis in zip(panels, axes[0], strict=True):
        for label, line in panel.lines.items():
            (drawn,) = axis.plot(
                line.x, line.y, label=label, marker="o" if len(line.x) < 10 else ""
            )
            if line.low is not None and line.high is not None:
                axis.fill_between(line.x, line.low, line.high, color=drawn.get_color(), alpha=0.15)
        axis.set(xlabel=panel.x_label, ylabel=panel.y_label)
        if panel.log_y:
            axis.set_yscale("log")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_suffix(f".{form}") for form in FORMATS]
    for file in files:
        figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(figure)
    return files


def write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> list[Path]:
    """Write rows of equal columns as CSV and as a table in Markdown, and return the files."""
    assert rows, "a table has rows"
    columns = list(rows[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    as_csv, as_markdown = path.with_suffix(".csv"), path.with_suffix(".md")
    with as_csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    as_markdown.write_text(markdown(rows), encoding="utf-8")
    return [as_csv, as_markdown]


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of equal columns as a table in Markdown."""
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row[name]) for name in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"
