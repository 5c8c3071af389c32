from __future__ import annotations

from leap_rl.training.trainer.recorder import LossMean


def test_each_loss_is_averaged_over_the_updates_that_had_it() -> None:
    mean = LossMean()
    assert mean.means() == {}
    for losses in ({"total": 1.0}, {"total": 2.0, "validation": 0.5}, {"total": 6.0}):
        mean.add(losses)
    assert mean.means() == {"total": 3.0, "validation": 0.5}
