"""A run is asked to stop by Ctrl-C, SIGTERM or its time; asked twice, it is left at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leap_rl.core.errors import RunFailedError
from leap_rl.training import interrupts
from leap_rl.training.interrupts import Interrupts, StopReason
from leap_rl.training.runtime.local import LocalRuntime


@pytest.fixture(autouse=True)
def _children_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave alone what other tests of this process started, such as wandb's service."""
    monkeypatch.setattr(interrupts, "kill_descendants", lambda process: None)


def kill_self(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def wait_until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_second_of_two_signals_does_not_interrupt_the_stopping() -> None:
    with Interrupts(stop_after_s=1e300) as stop:
        with pytest.raises(KeyboardInterrupt):
            kill_self(signal.SIGTERM)
        kill_self(signal.SIGTERM)
        assert stop.reason is StopReason.TERMINATED
        with pytest.raises(KeyboardInterrupt):
            stop.check()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_a_signal_is_raised_and_remembered(number: signal.Signals, status: int) -> None:
    before = signal.getsignal(number)
    stop = Interrupts()
    with pytest.raises(KeyboardInterrupt), stop:  # noqa: PT012
        kill_self(number)
        time.sleep(5)
    assert stop.reason is not None
    assert stop.reason.value == status
    with pytest.raises(KeyboardInterrupt):
        stop.check()
    assert signal.getsignal(number) is before


def test_where_it_is_held_back_a_loop_looks_for_it() -> None:
    stop = Interrupts()
    with stop, stop.held_back():
        stop.check()
        kill_self(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            stop.check()


def test_the_time_is_over() -> None:
    stop = Interrupts(stop_after_s=0.2)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), stop:
        time.sleep(5)
    assert 0.2 <= time.monotonic() - started < 2
    assert stop.reason is StopReason.TIME_OVER
    assert stop.reason.value == 75


def test_the_time_counts_from_the_start_of_the_command() -> None:
    stop = Interrupts(stop_after_s=10, started_s=time.monotonic() - 20)
    with pytest.raises(KeyboardInterrupt), stop:
        time.sleep(5)


def test_a_time_that_is_over_at_the_start_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or the watcher would end this process, seconds later and whatever it does by then."""
    before = signal.getsignal(signal.SIGINT)
    left: list[int] = []
    entered = []
    monkeypatch.setattr(interrupts, "STOP_WITHIN_S", 0.3)
    listen = Interrupts._listen

    def listen_slowly(stop: Interrupts) -> None:
        listen(stop)
        wait_until(stop.is_set)

    monkeypatch.setattr(Interrupts, "_listen", listen_slowly)
    stop = Interrupts(stop_after_s=0, leave=left.append)
    with pytest.raises(KeyboardInterrupt), stop:
        entered.append(stop)
    time.sleep(0.5)
    assert not entered
    assert not left
    assert stop.reason is StopReason.TIME_OVER
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_that_ends_in_time_hears_nothing() -> None:
    with Interrupts(stop_after_s=0.05) as stop:
        pass
    time.sleep(0.2)
    assert stop.reason is None


def test_the_second_signal_leaves_at_once() -> None:
    left: list[int] = []
    stop = Interrupts(leave=left.append)
    stop.on_leaving(lambda: left.append(0))
    with stop, stop.held_back():
        kill_self(signal.SIGTERM)
        time.sleep(interrupts.ONE_WISH_S + 0.1)
        assert not left
        kill_self(signal.SIGINT)
        wait_until(lambda: len(left) == 2)
    assert left == [0, 143]  # the cleanup, then the status of what came first


def test_two_signals_at_once_are_one() -> None:
    left: list[int] = []
    with Interrupts(leave=left.append) as stop, stop.held_back():
        kill_self(signal.SIGTERM)
        time.sleep(0.01)
        kill_self(signal.SIGTERM)
        time.sleep(0.2)
    assert not left


def test_a_signal_after_the_time_was_over_leaves_at_once() -> None:
    left: list[int] = []
    with Interrupts(stop_after_s=0.3, leave=left.append) as stop, stop.held_back():
        wait_until(stop.is_set)
        time.sleep(interrupts.ONE_WISH_S + 0.1)
        kill_self(signal.SIGINT)
        wait_until(lambda: left)
    assert left == [75]


def test_a_run_that_does_not_stop_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "STOP_WITHIN_S", 0.3)
    left: list[int] = []
    with Interrupts(leave=left.append) as stop, stop.held_back():
        kill_self(signal.SIGINT)
        wait_until(lambda: left)
    assert left == [130]


def test_a_run_whose_cluster_is_lost_stops_and_is_left_by_the_next_signal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    left: list[int] = []
    stop = Interrupts(farewell="continue", leave=left.append)
    thread = threading.Timer(0.1, stop.lose, ["the cluster is gone"])
    thread.start()
    with stop:
        with pytest.raises(KeyboardInterrupt):
            time.sleep(5)
        assert stop.reason is StopReason.CLUSTER_LOST
        stop.lose("it is gone once more")
        time.sleep(interrupts.ONE_WISH_S + 0.1)
        assert not left
        kill_self(signal.SIGINT)
        wait_until(lambda: left)
    assert left == [1]
    assert capfd.readouterr().err == "leap-rl: the cluster is gone; continue\n"


def test_a_cluster_that_is_lost_while_the_run_stops_changes_nothing() -> None:
    left: list[int] = []
    with Interrupts(leave=left.append) as stop, stop.held_back():
        kill_self(signal.SIGTERM)
        time.sleep(interrupts.ONE_WISH_S + 0.1)
        stop.lose("the cluster is gone")
        time.sleep(0.2)
    assert not left
    assert stop.reason is StopReason.TERMINATED


def test_entered_twice_or_elsewhere_it_changes_nothing() -> None:
    stop = Interrupts()
    with pytest.raises(KeyboardInterrupt), stop:  # noqa: PT012
        with stop:
            pass
        kill_self(signal.SIGTERM)
        time.sleep(5)

    def elsewhere() -> None:
        with Interrupts():
            pass

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()


ENDS = """
import ctypes, os, signal, time
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime
make_ray_runtime(trainers=1, address=LOCAL)  # before Ray is imported
from leap_rl.training.runtime.ray import runtime

def ends():
    ctypes.CDLL(None).signal(signal.SIGTERM, None)  # as Ray's C++ does
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)
    print("ended", flush=True)

runtime.ray.is_initialized = lambda: False
runtime.ray.init = lambda **options: None
runtime.ray.shutdown = ends
interrupts = Interrupts()
try:
    with interrupts, runtime.cluster(None, 1, interrupts=interrupts):
        pass
except KeyboardInterrupt:
    print(interrupts.reason.name, flush=True)
    os._exit(0)  # Ray's own exit waits for what was never started
"""


def test_sigterm_while_ray_ends_is_told_once_it_has() -> None:
    found = subprocess.run(
        [sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.returncode, found.stdout) == (0, "ended\nTERMINATED\n"), found.stderr


@pytest.mark.parametrize("status", [0, None])
def test_a_task_that_ends_the_process_fails_the_run(status: int | None, tmp_path: Path) -> None:
    def make(**given: object) -> Any:
        return SimpleNamespace(run=lambda: sys.exit(status))

    run_spec: Any = SimpleNamespace(
        run_dir=tmp_path, make_server=lambda: None, make_schedule=lambda: None, make_trainer=make
    )
    with pytest.raises(RunFailedError, match=rf"^a task called sys\.exit\({status}\)"):
        LocalRuntime().run(run_spec, lambda status: None)
