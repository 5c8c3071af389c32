"""Prints the outcome of a finished run: results, paths, the next command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from textwrap import fill
from typing import TYPE_CHECKING

from leap_rl.core.lines import say
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.display import next_step, program, quoted, shown
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tracking.console import counted
from leap_rl.tracking.metrics import Row

if TYPE_CHECKING:
    from leap_rl.evaluation.summary import Summary

FINAL_PART = 0.2
"""The part of a learning run, at its end, whose returns say how well the agent plays."""


def announce_initialization(folder: RunFolder, config: TrainConfig) -> None:
    """Print where the initialization of a run lies, and what to try next."""
    number = folder.latest()
    assert number is not None
    initialization = shown(folder.checkpoint(number) / INITIALIZATION)
    say(f"\nMeta-trained for {counted(number, 'meta-step')}.")
    say(f"  run folder      {shown(folder)}")
    say(f"  initialization  {initialization}")
    say(f"  metrics         {shown(folder.path / 'metrics.jsonl')}")
    busy = busy_share(folder.rows())
    if busy is not None:
        say(f"  trainers busy   {busy:.0%} of their time")
    advice = next_step(config.task, config.agent, quoted(folder))
    if advice is not None:
        say(f"\nNext, {advice[0]}:\n  {program()} {advice[1]}")


def busy_share(rows: Sequence[Row]) -> float | None:
    """Return the share of all trainers' time that went to tasks, over the rows that have it."""
    known = [row for row in rows if row.get("time/busy_share")]
    if not known:
        return None
    available_s = sum(row["time/working_s"] / row["time/busy_share"] for row in known)
    return sum(row["time/working_s"] for row in known) / available_s


def announce_agents(folder: RunFolder) -> None:
    """Print how well the agents of a learning run do."""
    rows = folder.rows()
    slots = folder.read_state(1)["slots"]
    learned = {slot: one["game"] for slot, one in enumerate(slots) if "dropped" not in one}
    if rows and "examples" in rows[0]:
        _announce_classifiers(folder, learned, rows)
    else:
        _announce_players(folder, learned, rows)
    for one in slots:
        if "dropped" in one:
            say(f"  {one['game']:<18} dropped: it {one['dropped']}")
    say(f"  metrics            {shown(folder.path / 'metrics.jsonl')}")


def announce_evaluation(folder: RunFolder, summary: Summary | None, *, opens: bool) -> None:
    """Print an evaluation's verdict; ``opens`` shows its report in the browser."""
    from leap_rl.evaluation.comparison import read_summary
    from leap_rl.runs.report import announce_report, page_of

    say()
    for sentence in (summary or read_summary(folder)).verdict:
        say(fill(sentence, width=100, subsequent_indent="  "))
    say(f"\n  folder  {shown(folder)}")
    if (folder.path / "clips").exists():
        say(f"  clips   {shown(folder.path / 'clips')}")
    announce_report(page_of(folder), opens=opens)


def _announce_players(folder: RunFolder, learned: Mapping[int, str], rows: Sequence[Row]) -> None:
    """Print how well each game's agent plays, by slot."""
    say(f"\nLearned; mean returns are of the last {FINAL_PART:.0%} of the agent steps.")
    width = max(18, *map(len, learned.values()))
    for slot, game in learned.items():
        agent_steps, episodes, mean_return = _outcome(game, rows)
        score = f"{mean_return:.2f} ({episodes} episodes)" if episodes else "no episode ended"
        say(f"  {game:<{width}} {agent_steps:>9} agent steps  {score:<24}", end="")
        say(f"  {shown(folder.agent(slot, game))}")


def _announce_classifiers(
    folder: RunFolder, learned: Mapping[int, str], rows: Sequence[Row]
) -> None:
    """Print the paper's measures of each alphabet or data set, by slot."""
    say("\nLearned; the area is that under the training-error curve, as a share of the whole.")
    for slot, game in learned.items():
        training, validation = f"error/{game}/training", f"error/{game}/validation"
        area = fmean(row[training] for row in rows if training in row)
        final = [row[validation] for row in rows if validation in row][-1]
        say(f"  {game:<24} area {area:>6.1%}  final validation error {final:>6.1%}", end="")
        for row in rows:
            if (test := row.get(f"error/{game}/test")) is not None:  # once, at the end
                say(f"  test error {test:>6.1%}", end="")
        say(f"  {shown(folder.agent(slot, game))}")


def _outcome(game: str, rows: Sequence[Row]) -> tuple[int, int, float]:
    """Return a game's agent steps, the episodes that ended in their last part, and their mean."""
    own = [row for row in rows if f"return/{game}/episodes" in row]
    agent_steps = int(own[-1]["agent_steps"])
    final = [
        (int(row[f"return/{game}/episodes"]), row.get(f"return/{game}/mean", 0.0))
        for row in own
        if row["agent_steps"] > (1 - FINAL_PART) * agent_steps
    ]
    episodes = sum(count for count, _ in final)
    return agent_steps, episodes, sum(count * mean for count, mean in final) / max(episodes, 1)
