from __future__ import annotations

import pytest

from leap_rl.bench.stopwatch import Stopwatch


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def pass_(self, ns: int) -> None:
        self.now_ns += ns


class Work:
    """`outer` takes 10 of its own around `inner`'s 3."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def outer(self) -> str:
        self.clock.pass_(4)
        self.inner()
        self.inner()
        self.clock.pass_(6)
        return "done"

    def inner(self) -> None:
        self.clock.pass_(3)

    def fails(self) -> None:
        self.inner()
        self.clock.pass_(2)
        raise OSError


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_nested_times_count_once(clock: Clock) -> None:
    work, watch = Work(clock), Stopwatch(clock)
    watch.wrap(work, "outer", "outside")
    watch.wrap(work, "inner", "inside")
    assert work.outer() == "done"
    work.inner()
    assert watch.totals_ns == {"outside": 10, "inside": 9}
    assert sum(watch.totals_ns.values()) == clock.now_ns


def test_a_call_that_fails_is_timed_too(clock: Clock) -> None:
    work, watch = Work(clock), Stopwatch(clock)
    watch.wrap(work, "inner", "inside")
    watch.wrap(work, "fails", "failing")
    with pytest.raises(OSError):  # noqa: PT011
        work.fails()
    work.outer()
    assert watch.totals_ns == {"failing": 2, "inside": 9}


def test_two_stopwatches_can_time_one_method(clock: Clock) -> None:
    work, inner, outer = Work(clock), Stopwatch(clock), Stopwatch(clock)
    inner.wrap(work, "inner", "inside")
    outer.wrap(work, "inner", "inside")
    work.inner()
    assert inner.totals_ns == outer.totals_ns == {"inside": 3}
    outer.unwrap()
    work.inner()
    assert (inner.totals_ns["inside"], outer.totals_ns["inside"]) == (6, 3)
    inner.unwrap()
    assert vars(work) == {"clock": clock}
