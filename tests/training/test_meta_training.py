"""What meta-training draws, averages and steps, and the rows that rounds leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from leap_rl.learners.task import TaskSpec
from leap_rl.meta.outer_step import OuterStepResult
from leap_rl.sharing.initialization import load_tensors
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.training.messages import CurvePoint, Episodes, TaskRecord, Ticket
from leap_rl.training.rounds.meta_training import MetaTrainingFactory, draw_games, task_seed
from leap_rl.training.rounds.plan import DroppedSlot, FilledRound, FilledSlot
from leap_rl.training.rounds.rows import dropped_row, learn_row, meta_step_row, timed
from tests.training.fakes import SIZE, FakeTasks, claim, complete

GAMES = tuple(f"game_{index}" for index in range(10))


def test_a_batch_has_no_game_twice() -> None:
    for meta_step in range(50):
        assert len(set(draw_games(0, meta_step, GAMES, 7))) == 7


def test_a_batch_larger_than_the_pool_has_every_game_before_any_again() -> None:
    batch = draw_games(0, 3, GAMES, 25)
    assert set(batch[:10]) == set(batch[10:20]) == set(GAMES)
    assert batch[:10] != batch[10:20]
    assert len(batch) == 25


def test_games_are_drawn_evenly_and_independently_of_the_pools_order() -> None:
    drawn = Counter(game for step in range(2000) for game in draw_games(1, step, GAMES, 3))
    # Binomial(2000, 0.3): mean 600, deviation 20.5; five deviations.
    assert all(abs(count - 600) < 103 for count in drawn.values())
    assert draw_games(1, 5, GAMES, 3) == draw_games(1, 5, GAMES[::-1], 3)
    assert draw_games(1, 5, GAMES, 10) != draw_games(2, 5, GAMES, 10)


def test_task_seeds_are_all_different() -> None:
    seeds = {task_seed(s, r, k) for s in range(3) for r in range(20) for k in range(16)}
    assert len(seeds) == 3 * 20 * 16


def make_factory(optimizer: str = "sgd", meta_lr: float = 0.5) -> MetaTrainingFactory:
    return MetaTrainingFactory(
        seed=0,
        games=GAMES,
        batch_size=2,
        meta_steps=3,
        meta_lr=meta_lr,
        optimizer=optimizer,  # type: ignore[arg-type]
        layout=FakeTasks().shared_layout(),
        frames_per_agent_step=4,
    )


def slot(values: np.ndarray, game: str = "pong") -> FilledSlot:
    message = complete(Ticket(fingerprint="f", round=0, slot=0, attempt=1), claim(), values=values)
    return FilledSlot(
        spec=TaskSpec(game=game, seed=0),
        attempt=1,
        contribution=message.contribution,
        record=message.record,
        episodes=message.episodes,
    )


def test_closing_a_meta_step_is_one_step_along_the_mean(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    factory = make_factory()
    factory.write_first_checkpoint(folder, torch.arange(float(SIZE)))
    plan = factory(folder)
    first = np.linspace(-1, 1, SIZE, dtype=np.float32)
    second = np.linspace(2, 5, SIZE, dtype=np.float32)
    slots = [slot(first, "pong"), slot(second, "tennis")]
    closed = plan.close(FilledRound(number=0, slots=slots, elapsed_s=2.0))

    expected = np.arange(SIZE) - 0.5 * (first + second) / 2
    np.testing.assert_allclose(plan.theta0(), expected, rtol=1e-6)
    named = load_tensors(closed.files[INITIALIZATION])
    np.testing.assert_array_equal(named["theta"].numpy(), plan.theta0())

    row = closed.rows[0].values
    mean = (first.astype(float) + second) / 2
    assert row["meta/contribution_norm"] == pytest.approx(np.linalg.norm(mean))
    assert row["meta/step_norm"] == pytest.approx(0.5 * np.linalg.norm(mean), rel=1e-5)
    assert row["meta/initialization_norm"] == pytest.approx(np.linalg.norm(np.arange(SIZE)))
    share = second @ mean / (2 * mean @ mean)
    assert row["path/tennis/share"] == pytest.approx(share, rel=1e-5)
    assert row["path/pong/share"] == pytest.approx(1 - share, rel=1e-5)
    assert row["path/tennis/contribution_norm"] == pytest.approx(np.linalg.norm(second))
    assert row["agent_steps"] == 20
    assert row["frames"] == 80


def test_a_restored_plan_steps_on_to_the_same_bits(tmp_path: Path) -> None:
    factory = make_factory("adam", 0.1)
    theta0 = torch.linspace(0, 1, SIZE)
    contributions = [np.sin(np.arange(SIZE, dtype=np.float32) + step) for step in range(3)]

    straight = RunFolder(tmp_path / "straight")
    factory.write_first_checkpoint(straight, theta0)
    plan = factory(straight)
    for step, values in enumerate(contributions):
        plan.close(FilledRound(number=step, slots=[slot(values)], elapsed_s=1.0))

    broken = RunFolder(tmp_path / "broken")
    factory.write_first_checkpoint(broken, theta0)
    for step, values in enumerate(contributions):
        restored = factory(broken)
        closed = restored.close(FilledRound(number=step, slots=[slot(values)], elapsed_s=1.0))
        broken.write_checkpoint(step + 1, closed.files, closed.state)
    np.testing.assert_array_equal(restored.theta0(), plan.theta0())
    assert closed.state["agent_steps"] == 30


def test_a_dropped_task_is_no_part_of_the_mean_and_the_row_says_so(tmp_path: Path) -> None:
    folder, factory = RunFolder(tmp_path / "run"), make_factory("sgd", 1.0)
    factory.write_first_checkpoint(folder, torch.zeros(SIZE))
    plan = factory(folder)
    dropped = DroppedSlot(
        spec=TaskSpec(game="tennis", seed=1), attempt=1, restarts=2, reason="bad", agent_steps=5
    )
    values = np.linspace(-1, 1, SIZE, dtype=np.float32)
    closed = plan.close(
        FilledRound(number=0, slots=[slot(values, "pong")], dropped=[dropped], elapsed_s=2.0)
    )
    np.testing.assert_allclose(plan.theta0(), -values)
    row = closed.rows[0].values
    assert (row["tasks/dropped"], row["tasks/tennis/dropped"], row["tasks/restarted"]) == (1, 1, 1)


# -- rows -----------------------------------------------------------------------------------------

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
    filled = FilledRound(number=3, slots=slots, dropped=dropped, elapsed_s=elapsed_s, trainers=2)
    others: dict[str, Any] = {
        "initialization_norm": 10.0,
        "agent_steps_before": 3000,
        "frames_per_agent_step": 4,
        "validation": {},
    }
    row = meta_step_row(filled, contributions, step, **{**others, **changes})
    return dict(timed([row], filled)[-1].values)


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
        "time/busy_share": 0.75,  # six seconds of two trainers' four
        "time/meta_step_s": 4.0,
        "throughput/agent_steps_per_s": 250.0,
        "throughput/pong/agent_steps_per_s": pytest.approx(1000 / 6),
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
    assert row["time/busy_share"] == 18 / 8
    assert row["throughput/agent_steps_per_s"] == 750.0
    assert row["throughput/pong/agent_steps_per_s"] == 250.0
    assert row["throughput/breakout/agent_steps_per_s"] == 100.0


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
        *("throughput/agent_steps_per_s", "time/busy_share"),
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
