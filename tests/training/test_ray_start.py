"""The run's own cluster is started again where Ray fails; one that is joined is asked once."""

from __future__ import annotations

import logging
import signal
import subprocess
from typing import Any

import pytest

from leap_rl.core.errors import RunFailedError
from tests.training.fakes import ray_module

RAYLET = "The current node timed out during startup: raylet failed to startup\nand more"


class FailingRay:
    """Stands for Ray, whose first starts fail."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls: list[str] = []
        self.left: list[subprocess.Popen[bytes]] = []

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        self.calls.append(f"init {options['address']}")
        if self.calls.count(self.calls[-1]) <= self.failures:
            self.left.append(subprocess.Popen(["sleep", "60"]))
            raise ConnectionError(RAYLET)

    def shutdown(self) -> None:
        self.calls.append("shutdown")


def start(ray: FailingRay, address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = ray_module("runtime")
    monkeypatch.setattr(runtime, "ray", ray)
    with runtime.cluster(address, 1):
        ray.calls.append("run")


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_start_that_fails_is_tried_again(
    failures: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    ray = FailingRay(failures)
    start(ray, None, monkeypatch)
    assert ray.calls == ["init local", "shutdown"] * failures + ["init local", "run", "shutdown"]
    assert [process.wait(timeout=5) for process in ray.left] == [-signal.SIGKILL] * failures
    told = "Ray did not start (The current node timed out during startup: raylet failed to startup)"
    assert caplog.messages == [f"{told}; try {number} of 3" for number in range(2, 2 + failures)]


def test_the_third_failure_stops_the_run_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FailingRay(3)
    with pytest.raises(RunFailedError, match=r"in 3 tries \(.* raylet failed to startup\); --run"):
        start(ray, None, monkeypatch)
    assert ray.calls == ["init local", "shutdown"] * 3


def test_a_cluster_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FailingRay(1)
    with pytest.raises(RunFailedError, match="no Ray cluster answers there"):
        start(ray, "10.0.0.1:6379", monkeypatch)
    assert ray.calls == ["init 10.0.0.1:6379"]
    assert [process.poll() for process in ray.left] == [None], "it is not this run's"
    ray.left[0].kill()
    ray.left[0].wait()
