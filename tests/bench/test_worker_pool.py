from __future__ import annotations

import os
from functools import partial

import pytest

from leap_rl.bench.worker_pool import WorkerPool
from leap_rl.core.errors import RunFailedError

pytestmark = pytest.mark.usefixtures("forked")

LAST = 1
"""The process in which things go wrong: not the first whose answer is read."""


class Worker:
    def __init__(self, broken: bool, index: int) -> None:
        if broken and index == LAST:
            raise ValueError(f"there is no worker {index}")
        self.index = index

    def number(self, factor: int) -> int:
        return factor * self.index

    def fail(self) -> None:
        if self.index == LAST:
            raise ValueError(f"worker {self.index} failed")

    def die(self) -> None:
        if self.index == LAST:
            os._exit(7)


def test_what_a_worker_raises_is_raised_and_a_death_is_reported() -> None:
    with WorkerPool(partial(Worker, False), processes=2) as pool:
        assert pool.call("number", 3) == [0, 3]
        with pytest.raises(ValueError, match="worker 1 failed"):
            pool.call("fail")
        with pytest.raises(RunFailedError, match="a bench process died"):
            pool.call("die")


def test_a_worker_that_cannot_be_made_is_an_error() -> None:
    with (
        pytest.raises(ValueError, match="there is no worker 1"),
        WorkerPool(partial(Worker, True), processes=2),
    ):
        pass
