"""What counts of a task whose round closes before it is complete."""

from __future__ import annotations

import numpy as np

from leap_rl.training.messages import Episodes, TaskRecord
from leap_rl.training.rounds.policy import DroppedSlot, FilledSlot
from leap_rl.training.server.slots import Slot


def cut_off(slot: Slot) -> FilledSlot | DroppedSlot:
    """Return a slot filled with its newest sum, or dropped where there is none.

    What a stream does not carry, such as the episodes, is missing.
    """
    agent_steps = 0 if slot.live is None else slot.live.agent_steps
    if slot.contribution is None or slot.n == 0:
        return DroppedSlot(
            spec=slot.spec,
            attempt=slot.attempt,
            restarts=slot.restarts,
            reason="had no sum when its round closed, after meta.close_after_s",
            agent_steps=agent_steps,
        )
    return FilledSlot(
        spec=slot.spec,
        attempt=slot.attempt,
        restarts=slot.restarts,
        cut_off=True,
        contribution=slot.contribution,
        record=TaskRecord(
            trainer=slot.owner or "",
            processor="",
            updates=slot.n,
            agent_steps=agent_steps,
            losses={},
            path={},
            curve=(),
            working_s=0.0,
            waiting_s=0.0,
        ),
        episodes=Episodes(
            agent_steps=np.empty(0, dtype=np.int64),
            returns=np.empty(0, dtype=np.float64),
            lengths=np.empty(0, dtype=np.int64),
        ),
    )
