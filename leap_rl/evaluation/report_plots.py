"""The pictures of a report: drawn to files, and what is to be seen in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from leap_rl.evaluation.meta_plots import meta_run_panels
from leap_rl.evaluation.page import Picture
from leap_rl.evaluation.plots import AnyPanel, draw
from leap_rl.evaluation.summary import Summary
from leap_rl.evaluation.transfer_plots import evaluation_panels

_PLOTS = {
    "rewards": (
        3,
        "Rewards",
        "Mean raw reward per 1,000 agent steps by game, of episodes that never ended too: the area "
        "is that under these lines. Bands are two standard deviations over agents to each side.",
    ),
    "curves": (
        3,
        "Learning curves",
        "Mean score over agents by game, in deviations of the reference's episodes; bands are two "
        "standard deviations over seeds to each side, as in the paper's figures.",
    ),
    "differences": (
        3,
        "Differences from the reference",
        "Differences of pairs, which share everything but where their encoders start, with 95 % "
        "intervals over seeds, and over runs where there are several: an interval that leaves out "
        "0 is more than chance explains.",
    ),
    "scores": (
        2,
        "Scores over all games",
        "Interquartile means over games, runs and seeds with stratified bootstrap intervals.",
    ),
    "profile": (
        2,
        "Performance profile",
        "The share of agents whose final score is above each value. Higher is better; where two "
        "profiles cross, neither initialization is better throughout.",
    ),
    "seeds": (
        3,
        "Every agent",
        "The raw score of each agent: what the means above are made of.",
    ),
    "validation": (
        1,
        "Validation",
        "What versions of the initialization gain over version 0 on the validation games, in "
        "standard deviations of version 0's curves.",
    ),
    "paths": (
        5,
        "The gradient paths' length or energy",
        "What Leap makes smaller, by game, over meta-steps. Each point is one task's.",
    ),
    "cosines": (
        1,
        "Which games pull together",
        "Mean cosine between the contributions of pairs of games that were in one batch: above 0 "
        "they pull the initialization the same way, below 0 against each other.",
    ),
}
"""In the order of the report: columns of panels, title, and what is to be seen."""


def meta_run_pictures(rows: Sequence[Mapping[str, float]], folder: Path) -> list[Picture]:
    """Return the pictures of a meta-training run's rows, and write them to a folder."""
    return _draw(meta_run_panels(rows), folder)


def evaluation_pictures(summary: Summary, folder: Path) -> list[Picture]:
    """Return the pictures of an evaluation, and write them to a folder."""
    return _draw(evaluation_panels(summary), folder, names=summary.evaluation.initializations)


def _draw(
    panels: Mapping[str, Sequence[AnyPanel]], folder: Path, *, names: Sequence[str] = ()
) -> list[Picture]:
    pictures = []
    for stem, (columns, title, says) in _PLOTS.items():
        if panels.get(stem):
            files = draw(panels[stem], folder / stem, columns=columns, names=names)
            (svg,) = (file.read_bytes() for file in files if file.suffix == ".svg")
            pictures.append(Picture(title=title, svg=svg, says=says))
    return pictures
