"""The plots of a report: their panels, titles and captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from leap_rl.evaluation import meta_run, transfer_plots
from leap_rl.evaluation.page import Picture
from leap_rl.evaluation.plots import AnyPanel, draw
from leap_rl.evaluation.summary import Summary

WIDE, NARROW = 10.2, 4.0
"""Inches of a figure on a page's width and on a phone's, where its letters have the text's size."""


class Plot(NamedTuple):
    """A plot of a summary, or of the rows of a meta-training run's metrics."""

    panels_of: Callable[[Any], Sequence[AnyPanel]]
    columns: int
    title: str
    says: str


EVALUATION = {
    "curves": Plot(
        transfer_plots.curve_panels,
        3,
        "Learning curves",
        "Mean return of agents by agent steps. The dashed line is half of what agents from random "
        "starts gain, and crosses mark where each curve reaches it. Bands are 95 % bootstrap "
        "intervals of the mean, over runs where there are several, else over agents.",
    ),
    "saved": Plot(
        transfer_plots.saved_panels,
        3,
        "Agent steps saved",
        "By game and over all, with 95 % intervals, as a share of an agent's budget: right of the "
        "dashed line agents learn sooner than from a random start, left of it later.",
    ),
    "agents": Plot(
        transfer_plots.agent_panels,
        3,
        "Every agent",
        "The return of each agent: what the means above are made of.",
    ),
    "profile": Plot(
        transfer_plots.profile_panels,
        1,
        "Performance profile",
        "The share of agents whose final return is above each value. Where two profiles cross, "
        "neither initialization is better throughout.",
    ),
}
META_RUN = {
    "validation": Plot(
        meta_run.validation_panels,
        1,
        "Validation",
        "What versions of the initialization gain over the baseline, version 0, on the validation "
        "games, in standard deviations of its curves. In a fork that validates otherwise the "
        "baseline is the first version that it validated.",
    ),
    "paths": Plot(
        meta_run.path_panels,
        5,
        "The gradient paths' length or energy",
        "What Leap makes smaller, by game, over meta-steps. Each point is one task's.",
    ),
    "cosines": Plot(
        meta_run.cosine_panels,
        1,
        "Which games pull together",
        "Mean cosine between the contributions of pairs of games that were in one batch: above 0 "
        "they pull the initialization the same way, below 0 against each other.",
    ),
}


def meta_run_pictures(rows: Sequence[Mapping[str, float]], folder: Path) -> list[Picture]:
    """Draw a meta-training run's plots into a folder; those with nothing to show are left out."""
    return _draw(META_RUN, rows, folder)


def evaluation_pictures(summary: Summary, folder: Path) -> list[Picture]:
    """Draw an evaluation's plots into a folder; those with nothing to show are left out."""
    return _draw(EVALUATION, summary, folder, names=summary.evaluation.initializations)


def _draw(
    plots: Mapping[str, Plot], data: object, folder: Path, *, names: Sequence[str] = ()
) -> list[Picture]:
    pictures = []
    for stem, plot in plots.items():
        if panels := plot.panels_of(data):
            files = draw(panels, folder / stem, columns=plot.columns, least_width=WIDE, names=names)
            (svg,) = (file.read_bytes() for file in files if file.suffix == ".svg")
            with TemporaryDirectory(prefix="leap_rl-") as aside:
                (file,) = draw(
                    panels,
                    Path(aside) / stem,
                    columns=1,
                    least_width=NARROW,
                    names=names,
                    formats=("svg",),
                )
                narrow = file.read_bytes()
            picture = Picture(title=plot.title, svg=svg, narrow=narrow, says=plot.says)
            pictures.append(picture)
    return pictures
