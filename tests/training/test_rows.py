from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from leap_rl.learners.task import TaskSpec
from leap_rl.meta.outer_step import OuterStepResult
from leap_rl.training.messages import CurvePoint, Episodes, TaskRecord
from leap_rl.training.rounds.plan import DroppedSlot, FilledRound, FilledSlot
from leap_rl.training.rounds.rows import dropped_row, learn_row, meta_step_row

RECORD = TaskRecord(
    trainer="a",
    processor="test",
    updates=10,
    agent_steps=1000,
    losses={"total": 1.0, "policy": 0.25, "value": 2.0, "entropy": 1.5},
    path={"energy": 1.0, "loss_pull": 2.0, "displacement": 3.0},
    curve=(),
    working_s=6.0,
    waiting_s=1.0,
)
POINT = CurvePoint(
    agent_steps=5120,
    losses={"total": 1.0, "policy": 0.5},
    episodes=4,
    return_sum=-30.0,
    agent_steps_per_s=800.0,
)


def filled(
    game: str = "pong", *, returns: Sequence[float] = (-20.0, -22.0), **record: object
) -> FilledSlot:
    numbers = np.arange(len(returns), dtype=np.int64)
    return FilledSlot(
        spec=TaskSpec(game=game, seed=0),
        attempt=1,
        contribution=np.zeros(1, np.float32),
        record=replace(RECORD, **record),  # type: ignore[arg-type]
        episodes=Episodes(agent_steps=numbers, returns=np.array(returns), lengths=numbers),
    )


def dropped(game: str, restarts: int = 0) -> DroppedSlot:
    spec = TaskSpec(game=game, seed=0)
    return DroppedSlot(spec=spec, attempt=1, restarts=restarts, reason="bad", agent_steps=7)


def row_of(
    slots: Sequence[FilledSlot],
    pulls: Sequence[Sequence[float]] = ((4.0, 0.0),),
    *,
    dropped: Sequence[DroppedSlot] = (),
    elapsed_s: float = 4.0,
    **changes: Any,
) -> dict[str, float]:
    """The row of slots with such contributions."""
    contributions = [torch.tensor(pull) for pull in pulls]
    mean = torch.stack(contributions).mean(0)
    step = OuterStepResult(theta=mean, mean=mean, step_norm=0.5, mean_norm=float(mean.norm()))
    filled = FilledRound(number=3, slots=slots, dropped=dropped, elapsed_s=elapsed_s)
    others: dict[str, Any] = {
        "initialization_norm": 10.0,
        "agent_steps_before": 3000,
        "frames_per_agent_step": 4,
        "validation": {},
    }
    return dict(meta_step_row(filled, contributions, step, **{**others, **changes}).values)


def area(row: dict[str, float], name: str) -> dict[str, float]:
    return {key: value for key, value in row.items() if key.startswith(f"{name}/")}


def test_the_row_of_one_game() -> None:
    assert row_of([filled()]) == {
        "meta_step": 3,
        "agent_steps": 4000,
        "frames": 16000,
        "meta/contribution_norm": 4.0,
        "meta/step_norm": 0.5,
        "meta/initialization_norm": 10.0,
        "meta/step_ratio": 0.05,
        "path/pong/energy": 1.0,
        "path/pong/loss_pull": 2.0,
        "path/pong/displacement": 3.0,
        "path/pong/contribution_norm": 4.0,
        "path/pong/cosine": 1.0,
        "path/pong/share": 1.0,
        "return/pong/mean": -21.0,
        "return/pong/episodes": 2,
        "loss/pong/total": 1.0,
        "loss/pong/policy": 0.25,
        "loss/pong/value": 2.0,
        "loss/pong/entropy": 1.5,
        "tasks/restarted": 0,
        "tasks/cut_off": 0,
        "tasks/dropped": 0,
        "time/working_s": 6.0,
        "time/waiting_s": 1.0,
        "time/meta_step_s": 4.0,
        "throughput/agent_steps_per_s": 250.0,
    }


def test_what_went_wrong_is_counted() -> None:
    lost = [dropped("pong", restarts=1), dropped("alien"), dropped("pong")]
    slots = [replace(filled(), restarts=2, cut_off=True)]
    assert area(row_of(slots, dropped=lost), "tasks") == {
        "tasks/restarted": 2,
        "tasks/cut_off": 1,
        "tasks/dropped": 3,
        "tasks/pong/dropped": 2,
        "tasks/alien/dropped": 1,
    }
    lone = dropped_row(dropped("pong"))
    assert (lone.axis, lone.values) == ("agent_steps", {"agent_steps": 7, "tasks/pong/dropped": 1})
    lone = dropped_row(dropped("Latin"), "examples")
    assert (lone.axis, lone.values) == ("examples", {"examples": 7, "tasks/Latin/dropped": 1})


def test_a_game_in_several_slots_is_averaged_and_its_episodes_pooled() -> None:
    again = filled(
        returns=[21.0],
        path={"energy": 3.0, "loss_pull": 6.0, "displacement": 5.0},
        losses={"total": 2.0, "policy": 0.75, "value": 4.0, "entropy": 0.5},
        working_s=2.0,
    )
    slots = [filled(), filled("breakout", working_s=10.0), again]
    row = row_of(slots, [[3.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    assert row["path/pong/energy"] == 2.0
    assert row["path/pong/loss_pull"] == 4.0
    assert row["path/pong/displacement"] == 4.0
    assert row["path/pong/contribution_norm"] == 1.5
    assert row["path/pong/cosine"] == pytest.approx(0.5**0.5)  # over the one slot that has it
    assert row["path/pong/share"] == pytest.approx(0.5)
    assert area(row, "cosine") == {"cosine/breakout/pong": 0.0}
    assert row["loss/pong/total"] == 1.5
    assert row["loss/pong/entropy"] == 1.0
    # (-42 + 21) / 3 episodes; the mean of the slots' means would be 0.
    assert row["return/pong/mean"] == -7.0
    assert row["return/pong/episodes"] == 3
    assert row["return/breakout/mean"] == -21.0
    assert row["agent_steps"] == 6000
    assert row["time/working_s"] == 18.0
    assert row["time/waiting_s"] == 3.0
    assert row["throughput/agent_steps_per_s"] == 750.0


def test_games_that_pull_together_are_told_pair_by_pair() -> None:
    games = ["tennis", "pong", "tennis", "alien"]  # the last one has no direction
    pulls = [[1.0, 0.0], [3.0, 4.0], [0.0, 2.0], [0.0, 0.0]]
    assert area(row_of([filled(game) for game in games], pulls), "cosine") == {
        "cosine/pong/tennis": pytest.approx((0.6 + 0.8) / 2),
        "cosine/tennis/tennis": 0.0,
    }


def test_what_is_undefined_is_left_out() -> None:
    slot = filled(returns=[], losses={"total": 1.0}, path={"length": 1.0})
    row = row_of(
        [slot], [[0.0, 0.0]], initialization_norm=0.0, elapsed_s=0.0, frames_per_agent_step=0
    )
    missing = {
        *("frames", "meta/step_ratio", "path/pong/cosine", "path/pong/share", "return/pong/mean"),
        "throughput/agent_steps_per_s",
    }
    assert not missing & row.keys()
    assert row["return/pong/episodes"] == 0
    assert row["path/pong/length"] == 1.0


def test_a_learning_row() -> None:
    row = learn_row("pong", POINT)
    assert row.axis == "agent_steps"
    assert row.values == {
        "agent_steps": 5120,
        "return/pong/mean": -7.5,
        "return/pong/episodes": 4,
        "loss/pong/total": 1.0,
        "loss/pong/policy": 0.5,
        "throughput/pong/agent_steps_per_s": 800.0,
    }
