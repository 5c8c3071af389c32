"""Options of validation: which games are learned while a run is under way, and how often."""

from __future__ import annotations

from dataclasses import dataclass, replace

from leap_rl.tasks.config import TaskConfig


@dataclass(frozen=True)
class ValidationConfig:
    """Learn games from the newest initialization while the run is under way."""

    every_meta_steps: int | None = None
    """Meta-steps between two validations; the first is of version 0, the baseline of the others.
    A validation costs as much as meta-training on as many games. None: never."""

    games: list[str] | str | None = None
    """Games to learn with the budget of the run's tasks. Games that are neither meta-trained on nor
    evaluated in the end keep what is measured in the end believable. None: for Atari boxing and
    seaquest."""

    agents: int = 1
    """Agents that learn each game, whose mean is taken. With one a game, which version is the best
    is largely chance, and `leap-rl evaluate` says so of RUN@best. Each one costs as much."""

    def __post_init__(self) -> None:
        if self.every_meta_steps is not None and self.every_meta_steps < 1:
            raise ValueError(
                f"validation.every_meta_steps = {self.every_meta_steps}: must be at least 1, or "
                "null"
            )
        if self.agents < 1:
            raise ValueError(f"validation.agents = {self.agents}: must be at least 1")
        for name, default in (("agents", 1), ("games", None)):
            value = getattr(self, name)
            if self.every_meta_steps is None and value != default:
                raise ValueError(
                    f"validation.{name} = {value}: has no effect without "
                    "validation.every_meta_steps; give both"
                )

    def of(self, task: TaskConfig) -> TaskConfig:
        """Return the tasks of validation, games spelled out, for a run with tasks like ``task``.

        Raises:
            ValueError: There are no such games, or none is named.
        """
        games, default = self.games, task.suite.validation_games
        if games is None and default is not None:
            games = list(default)
        if games is None:
            raise ValueError(
                f"validation.games = null: name the games, as task.kind = {task.kind} has no "
                "default"
            )
        # What stops early has the first part of a curve, which is no measure of the whole.
        whole = replace(task.images, patience=None)
        try:
            return replace(task, games=games, mix_games=False, images=whole)
        except ValueError as error:
            raise ValueError(str(error).replace("task.games", "validation.games")) from None
