from __future__ import annotations

import pytest

from leap_rl.bench.plan import fewest_trainers, plan_meta_step, plan_run, spread, table


@pytest.mark.parametrize(
    ("task_s", "trainers", "length_s", "tail_s", "fewest"),
    [
        ([100.0] * 16, 8, 200.0, 0.0, 8),  # they divide the batch and are never idle
        ([100.0] * 16, 12, 200.0, 100.0, 8),  # 8 of the 12 are idle in the second of two rounds
        ([10.0, 70.0, 20.0], 50, 70.0, 70.0, 2),  # not below the longest task; 10 + 20 fit beside
        # One trainer takes 50, then 20; the other 40, then 30, then 10: in slot order 80 s.
        ([30.0, 40.0, 50.0, 10.0, 20.0], 2, 80.0, 10.0, 2),
    ],
)
def test_the_longest_task_goes_to_the_trainer_that_is_free(
    task_s: list[float], trainers: int, length_s: float, tail_s: float, fewest: int
) -> None:
    step = plan_meta_step(task_s, trainers=trainers)
    assert (step.length_s, step.tail_s) == (length_s, tail_s)
    assert step.longest_task_s == max(task_s)
    assert fewest_trainers(task_s, trainers=trainers) == fewest


def test_a_runs_hours_follow_from_its_speed() -> None:
    metrics = plan_run(
        {"any": 2000.0}, agent_steps=7_200_000, batch_size=16, meta_steps=10, trainers=12
    )
    # A task takes one hour; a meta-step two rounds of them.
    assert metrics["rounds_per_meta_step"] == 2
    assert metrics["hours"] == pytest.approx(20.0)
    assert metrics["core_hours"] == pytest.approx(240.0)
    assert metrics["busy_core_hours"] == pytest.approx(160.0)
    assert metrics["idle_tail_hours_per_meta_step"] == pytest.approx(1.0)
    assert metrics["floor_hours"] == pytest.approx(10.0)
    assert metrics["fewest_trainers_as_fast"] == 8


def test_validation_takes_time_too() -> None:
    metrics = plan_run(
        {"any": 2000.0},
        agent_steps=7_200_000,
        batch_size=16,
        meta_steps=10,
        trainers=16,
        validations=4,
        validation_tasks=2,
    )
    # One round of an hour in six meta-steps, and a second one for two tasks in the four others.
    assert metrics["hours"] == pytest.approx(6 + 4 * 2)
    assert metrics["busy_core_hours"] == pytest.approx(10 * 16 + 4 * 2)
    assert metrics["busy_share"] == pytest.approx(168 / (14 * 16))
    assert metrics["floor_hours"] == pytest.approx(10.0)
    assert "4 of the meta-steps have 2 tasks more" in table({**metrics, "assumed": []})


def test_a_batch_holds_the_measured_games_in_equal_parts() -> None:
    metrics = plan_run(
        {"fast": 4.0, "slow": 1.0}, agent_steps=3600, batch_size=4, meta_steps=1, trainers=4
    )
    assert metrics["hours"] == pytest.approx(1.0)
    assert metrics["busy_core_hours"] == pytest.approx(2 * 0.25 + 2 * 1.0)


def test_measured_games_are_spread_over_the_pool() -> None:
    assert spread([str(number) for number in range(25)], 3) == ["4", "12", "20"]
    assert spread(["a", "b"], 3) == ["a", "b"]
