"""What a command says when its run is done: where things lie, and what to try next."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.cli.launch import program, shown
from leap_rl.config import TrainConfig
from leap_rl.run_folder import RunFolder
from leap_rl.tracking.jsonl import read_rows
from leap_rl.tracking.metrics import Row
from leap_rl.training.initialization import FILE_NAME

FINAL_PART = 0.2
"""The part of a learning run, at its end, whose returns say how well the agent plays."""


def announce_initialization(folder: RunFolder, config: TrainConfig) -> None:
    """Print a meta-training run's outcome."""
    number = folder.latest()
    assert number is not None
    initialization = shown(folder.checkpoint(number) / FILE_NAME)
    print(f"\nMeta-trained for {number} meta-steps.")
    print(f"  run folder      {shown(folder.path)}")
    print(f"  initialization  {initialization}")
    print(f"  figures         {shown(folder.path / 'metrics.jsonl')}")
    if config.task.kind == "atari":
        print("\nNext, let an agent learn a game it never saw from this initialization:")
        print(
            f"  {program()} learn --init {initialization} --task.games '[\"breakout\"]' "
            f"--task.agent_steps 96000"
        )


def announce_agents(folder: RunFolder) -> None:
    """Print a learning run's outcome."""
    rows = read_rows(folder.path / "metrics.jsonl")
    games = dict.fromkeys(
        key.split("/")[1] for row in rows for key in row if key.endswith("/episodes")
    )
    print(f"\nLearned; mean returns are of the last {FINAL_PART:.0%} of the agent steps.")
    for slot, game in enumerate(games):
        agent_steps, episodes, mean_return = _outcome(game, rows)
        score = f"{mean_return:.2f} ({episodes} episodes)" if episodes else "no episode ended"
        print(f"  {game:<18} {agent_steps:>9} agent steps  {score:<24}", end="")
        print(f"  {shown(folder.agent(slot, game))}")
    print(f"  figures            {shown(folder.path / 'metrics.jsonl')}")


def _outcome(game: str, rows: Sequence[Row]) -> tuple[int, int, float]:
    """Return a game's agent steps, the episodes that ended in their last part, and their mean."""
    own = [row for row in rows if f"return/{game}/episodes" in row]
    agent_steps = int(own[-1]["agent_steps"])
    final = [row for row in own if row["agent_steps"] > (1 - FINAL_PART) * agent_steps]
    counts = [int(row[f"return/{game}/episodes"]) for row in final]
    total = sum(
        count * row[f"return/{game}/mean"]
        for count, row in zip(counts, final, strict=True)
        if count
    )
    return agent_steps, sum(counts), total / max(sum(counts), 1)
