"""What a command says when its run is done: where things lie, and what to try next."""

from __future__ import annotations

from collections.abc import Mapping

from leap_rl.cli.launch import program, shown
from leap_rl.config import TrainConfig
from leap_rl.run_folder import RunFolder
from leap_rl.tracking.jsonl import read_rows
from leap_rl.training.initialization import FILE_NAME


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
    print("\nLearned.")
    for slot, row in enumerate(_last_rows(folder).values()):
        game, (agent_steps, mean_return) = row
        score = "no episode ended" if mean_return is None else f"mean return {mean_return:.2f}"
        print(f"  {game:<20} {agent_steps:>10} agent steps  {score:<24}", end="")
        print(f"  {shown(folder.agent(slot, game))}")
    print(f"  figures              {shown(folder.path / 'metrics.jsonl')}")


def _last_rows(folder: RunFolder) -> Mapping[str, tuple[str, tuple[int, float | None]]]:
    """Return, for each game in order, its agent steps and its newest mean return."""
    games: dict[str, tuple[str, tuple[int, float | None]]] = {}
    for row in read_rows(folder.path / "metrics.jsonl"):
        game = next(key.split("/")[1] for key in row if key.endswith("/episodes"))
        _, (_, before) = games.get(game, (game, (0, None)))
        mean_return = row.get(f"return/{game}/mean", before)
        games[game] = (game, (int(row["agent_steps"]), mean_return))
    return games
