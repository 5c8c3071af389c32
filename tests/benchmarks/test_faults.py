from __future__ import annotations

import pytest

from benchmarks.harness.faults import FOLLOWS, draw_faults
from leap_rl.training.faults import FaultPoint

VISITS = {
    **dict.fromkeys((point for point in FaultPoint if point not in FOLLOWS), 12),
    FaultPoint.SERVER_RESUMING: 1,
    FaultPoint.DRIVER_STARTING: 1,
}


def test_as_many_deaths_as_kinds_of_moments_hit_each_kind() -> None:
    for seed in range(20):
        at = draw_faults(VISITS, kills=len(FaultPoint), seed=seed)
        assert set(at) == set(FaultPoint)
        assert all(len(numbers) == 1 for numbers in at.values())


@pytest.mark.parametrize("kills", [1, 5, 19, 20, 33, 60])
def test_there_are_as_many_as_asked_for_at_moments_that_come(kills: int) -> None:
    for seed in range(10):
        at = draw_faults(VISITS, kills=kills, seed=seed)
        assert sum(map(len, at.values())) == kills
        for point, numbers in at.items():
            assert len(set(numbers)) == len(numbers)
            if point not in FOLLOWS:
                assert 1 <= min(numbers) <= max(numbers) <= max(1, VISITS[point] // 2)


def test_what_follows_a_death_is_drawn_only_where_there_is_one() -> None:
    visits = {FaultPoint.TRAINER_TRAINING: 100, FaultPoint.SERVER_RESUMING: 1}
    at = draw_faults(visits, kills=5, seed=0)
    # A trainer's death, one of the driver that replaces it, one of the driver that resumes; no
    # server died, so that none starts from scratch.
    assert set(at) == {
        FaultPoint.TRAINER_TRAINING,
        FaultPoint.DRIVER_REPLACING,
        FaultPoint.DRIVER_RESUMING,
    }
    assert at[FaultPoint.DRIVER_REPLACING] == at[FaultPoint.DRIVER_RESUMING] == [1]
