"""Choices of options that several rooms share."""

from __future__ import annotations

from typing import Final, Literal

REWARD_CLIP: Final = 5.0
"""Bound of an Atari game's rewards for learning. Paper."""

LossDifference = Literal["next_batch", "same_batch"]
"""From which batches the change of the loss along a segment is taken."""

Share = Literal["agent", "encoder", "convolutions"]
"""Which parameters of an actor-critic network the tasks share."""

OnDivergence = Literal["stop", "restart_task", "drop_task"]
"""What happens when a task's numbers are no longer finite."""

Domain = Literal["atari", "images", "vectors", "continuous"]
"""Kinds of games: Atari's screens, other images, vectors, and vectors with continuous actions."""
