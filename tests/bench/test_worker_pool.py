from __future__ import annotations

import os
import pickle
import time
from functools import partial

import pytest

from leap_rl.bench.worker_pool import WorkerPool, portable
from leap_rl.training.errors import RunFailedError

LAST = 1
"""The process in which things go wrong: not the first that is asked."""


class TwoWordsError(Exception):
    """Cannot be unpickled: its constructor wants other arguments than it has kept."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


class Worker:
    def __init__(self, broken: bool, index: int) -> None:
        if broken and index == LAST:
            raise ValueError(f"there is no worker {index}")
        self.index = index

    def number(self, factor: int) -> int:
        return factor * self.index

    def fail(self) -> None:
        if self.index == LAST:
            time.sleep(0.5)  # the other is back at the barrier by then
            raise ValueError(f"worker {self.index} failed")

    def die(self) -> None:
        if self.index == LAST:
            os._exit(7)


def test_what_a_worker_raises_is_what_is_raised() -> None:
    with WorkerPool(partial(Worker, False), processes=2) as pool:
        assert pool.call("number", 3) == [0, 3]
        with pytest.raises(ValueError, match="worker 1 failed") as failure:
            pool.call("fail")
        assert "in bench process 1:\nTraceback" in failure.value.__notes__[0]


def test_the_error_that_made_the_others_wait_in_vain_is_raised() -> None:
    with (
        WorkerPool(partial(Worker, True), processes=2) as pool,
        pytest.raises(ValueError, match="there is no worker 1"),
    ):
        pool.call("number", 3)


def test_an_error_that_cannot_travel_is_told() -> None:
    error = portable(TwoWordsError("a", "b"), LAST)
    assert str(pickle.loads(pickle.dumps(error))) == "TwoWordsError: a b"
    assert portable(ValueError("c"), LAST).args == ("c",)


def test_a_death_is_told_at_once() -> None:
    with WorkerPool(partial(Worker, False), processes=2) as pool:
        with pytest.raises(RunFailedError, match=r"process 1 died \(exit status 7\)"):
            pool.call("die")
        with pytest.raises(RunFailedError, match="process 1 died"):
            pool.call("number", 3)  # which the other one waits for in vain
