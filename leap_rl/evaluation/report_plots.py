"""The pictures of a report: drawn to files, and what is to be seen in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from leap_rl.evaluation.meta_plots import draw_meta_figures
from leap_rl.evaluation.page import Picture
from leap_rl.evaluation.plots import Line, Panel, draw
from leap_rl.evaluation.summary import Summary
from leap_rl.evaluation.transfer_plots import draw_transfer_figures

_CAPTIONS = {
    "rewards": (
        "Rewards",
        "Mean raw reward per 1,000 agent steps by game, of episodes that never ended too: the area "
        "is that under these lines. Bands are two standard deviations over agents to each side.",
    ),
    "curves": (
        "Learning curves",
        "Mean score over agents by game, in deviations of the reference's episodes; bands are two "
        "standard deviations over seeds to each side, as in the paper's figures.",
    ),
    "differences": (
        "Differences from the reference",
        "Differences of pairs, which share everything but where their encoders start, with 95 % "
        "intervals over seeds, and over runs where there are several: an interval that leaves out "
        "0 is more than chance explains.",
    ),
    "scores": (
        "Scores over all games",
        "Interquartile means over games, runs and seeds with stratified bootstrap intervals.",
    ),
    "profile": (
        "Performance profile",
        "The share of agents whose final score is above each value. Higher is better; where two "
        "profiles cross, neither initialization is better throughout.",
    ),
    "seeds": ("Every agent", "The raw score of each agent: what the means above are made of."),
    "validation": (
        "Validation",
        "What versions of the initialization gain over version 0 on the validation games, in "
        "standard deviations of version 0's curves.",
    ),
    "paths": (
        "The gradient paths' length or energy",
        "What Leap makes smaller, by game, over meta-steps. Each point is one task's.",
    ),
    "cosines": (
        "Which games pull together",
        "Mean cosine between the contributions of pairs of games that were in one batch: above 0 "
        "they pull the initialization the same way, below 0 against each other.",
    ),
}


def meta_run_pictures(rows: Sequence[Mapping[str, float]], folder: Path) -> list[Picture]:
    """Return the pictures of a meta-training run's rows; those that there is something for."""
    files = []
    judged = [row for row in rows if "validation/gain" in row]
    if len(judged) > 1:
        lines = {
            "mean": Line(
                [row["meta_step"] for row in judged], [row["validation/gain"] for row in judged]
            )
        }
        panel = Panel(lines, "version", "gain over version 0, deviations")
        files += draw([panel], folder / "validation")
    return _pictures([*files, *draw_meta_figures(rows, folder)])


def evaluation_pictures(summary: Summary, folder: Path) -> list[Picture]:
    """Return the pictures of an evaluation."""
    return _pictures(draw_transfer_figures(summary, folder))


def _pictures(files: Sequence[Path]) -> list[Picture]:
    drawn = {file.stem: file for file in files if file.suffix == ".svg"}
    assert drawn.keys() <= _CAPTIONS.keys(), "each picture is explained"
    return [
        Picture(title=title, svg=drawn[stem].read_bytes(), says=says)
        for stem, (title, says) in _CAPTIONS.items()
        if stem in drawn
    ]
