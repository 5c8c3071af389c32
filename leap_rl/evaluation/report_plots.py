"""The plots of a report: their panels, titles and captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from leap_rl.evaluation import meta_run, transfer_plots
from leap_rl.evaluation.page import Picture
from leap_rl.evaluation.plots import AnyPanel, draw
from leap_rl.evaluation.summary import Summary


class Plot(NamedTuple):
    """A plot of a summary, or of the rows of a meta-training run's metrics."""

    panels_of: Callable[[Any], Sequence[AnyPanel]]
    columns: int
    title: str
    says: str


EVALUATION = {
    "rewards": Plot(
        transfer_plots.reward_panels,
        3,
        "Rewards",
        "Mean raw reward per 1,000 agent steps by game, of episodes that never ended too: the area "
        "is that under these lines. Bands are two standard deviations over agents to each side.",
    ),
    "curves": Plot(
        transfer_plots.mean_panels,
        3,
        "Learning curves",
        "Mean score over agents by game, in deviations of the reference's episodes; bands are two "
        "standard deviations over seeds to each side, as in the paper's figures.",
    ),
    "differences": Plot(
        transfer_plots.difference_panels,
        3,
        "Differences from the reference",
        "Differences of pairs, which share everything but where their encoders start, with 95 % "
        "intervals over seeds, and over runs where there are several: an interval that leaves out "
        "0 is more than chance explains.",
    ),
    "scores": Plot(
        transfer_plots.score_panels,
        2,
        "Scores over all games",
        "Interquartile means over games, runs and seeds with stratified bootstrap intervals.",
    ),
    "profile": Plot(
        transfer_plots.profile_panels,
        2,
        "Performance profile",
        "The share of agents whose final score is above each value. Higher is better; where two "
        "profiles cross, neither initialization is better throughout.",
    ),
    "seeds": Plot(
        transfer_plots.agent_panels,
        3,
        "Every agent",
        "The raw score of each agent: what the means above are made of.",
    ),
}
META_RUN = {
    "validation": Plot(
        meta_run.validation_panels,
        1,
        "Validation",
        "What versions of the initialization gain over version 0 on the validation games, in "
        "standard deviations of version 0's curves.",
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
            files = draw(panels, folder / stem, columns=plot.columns, names=names)
            (svg,) = (file.read_bytes() for file in files if file.suffix == ".svg")
            pictures.append(Picture(title=plot.title, svg=svg, says=plot.says))
    return pictures
