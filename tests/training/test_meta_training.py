from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from leap_rl.learners.task import TaskSpec
from leap_rl.sharing.initialization import load_tensors
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.training.messages import Ticket
from leap_rl.training.rounds.meta_training import MetaTrainingFactory, draw_games, task_seed
from leap_rl.training.rounds.plan import DroppedSlot, FilledRound, FilledSlot
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
