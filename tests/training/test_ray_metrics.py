"""What Prometheus finds on Ray's page: each name, in step with the run, whatever dies."""

from __future__ import annotations

import os
import signal
import socket
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from leap_rl.core.errors import RunFailedError
from leap_rl.tracking.prometheus import SERIES
from leap_rl.tracking.status import RunStatus, TaskStatus
from leap_rl.training.server.rounds import Counters
from tests.commands import Process, wait_until
from tests.training.fakes import ray_module
from tests.training.test_runtime_ray import children, listening, train, trainers

RUN = ["--task.kind", "catch", "--task.games", '["catch", "catch_up"]', "--task.num_envs", "4"]
RUN += ["--task.agent_steps", "400", "--meta.meta_steps", "1000", "--meta.batch_size", "2"]
RUN += ["--validation.every_meta_steps", "1", "--validation.games", '["catch_dark"]']
RUN += ["--runtime.trainers", "1", "--tracking.console", "quiet", "--tracking.tensorboard", "false"]
RUN += ["--runtime.stream_every_s", "0.02", "--runtime.snapshot_every_s", "0.03"]


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    return number


@pytest.fixture
def run(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """A run whose page is never more than a second or two behind."""
    monkeypatch.setenv("RAY_metrics_report_interval_ms", "1000")
    process = train(*RUN, "--runtime.metrics_port", str(port), cwd=tmp_path)
    yield process
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def scraped(port: int) -> dict[str, Metric]:
    """What is on the page of a run, by the names that Prometheus knows; nothing if it is not yet
    there."""
    time.sleep(0.25)  # who asks all the time keeps the agent from its work
    families: list[Metric] = []
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    return {
        f"{one.name}_total" if one.type == "counter" else one.name: one
        for one in families
        if "leap_rl" in one.name
    }


def joined(page: Mapping[str, Metric], name: str) -> float:
    """The sum of a counter over all lives of the server."""
    return sum(sample.value for sample in page[f"ray_leap_rl_{name}_total"].samples)


@pytest.mark.parametrize("fails", ["start", "set"])
def test_a_page_that_fails_is_reported_once_and_left(
    fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ray_metrics = ray_module("metrics")

    def fail(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    for kind in (ray_metrics._Counter, ray_metrics.Gauge):
        for name in ("start", "set", "inc"):
            if hasattr(kind, name):
                monkeypatch.setattr(kind, name, fail if name == fails else lambda *_, **__: None)
    metrics = ray_metrics.RunMetrics("run")
    for _ in range(2):
        metrics.publish(status(), Counters())
    (line,) = caplog.messages
    assert line.startswith("Prometheus has failed (No space left on device)")


@pytest.mark.slow
def test_the_page_of_a_run_has_every_name_there_is(run: Process, port: int) -> None:
    names = {f"ray_{series.name}" for series in SERIES}
    page: dict[str, Metric] = {}

    def is_whole() -> bool:
        page.update(scraped(port))
        return page.keys() >= names and joined(page, "snapshots") > 0

    wait_until(is_whole, run)
    assert page.keys() == names
    for series in SERIES:
        family = page[f"ray_{series.name}"]
        assert family.type == series.kind
        assert family.documentation == series.meaning
        for sample in family.samples:
            assert sample.labels["run"] == "run"
            assert set(series.labels) <= sample.labels.keys()
            own = {name for name in sample.labels if name.islower() and "otel" not in name}
            assert own == {"run", *series.labels}, "Ray's begin with capitals"
    values = {name: family.samples[0].value for name, family in page.items()}
    assert values["ray_leap_rl_meta_steps"] == 1000
    assert 1 <= values["ray_leap_rl_meta_step"] < 1000
    assert joined(page, "agent_steps") >= 3 * 400
    assert joined(page, "tasks_completed") >= 3
    assert values["ray_leap_rl_trainers_lost_total"] == 0, "which is shown from the start"
    states = {one.labels["state"]: one.value for one in page["ray_leap_rl_slots"].samples}
    assert sum(states.values()) == 3
    assert states.keys() == {"pending", "running", "complete"}
    games = {one.labels["game"] for one in page["ray_leap_rl_mean_return"].samples}
    assert games <= {"catch", "catch_up", "catch_dark"}
    assert abs(values["ray_leap_rl_last_message_timestamp_seconds"] - time.time()) < 60
    addresses = listening({run.pid, *children(run.pid)})
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.mark.chaos
def test_the_counts_of_the_dead_stay_on_the_page(run: Process, port: int) -> None:
    page: dict[str, Metric] = {}

    def shows(condition: Callable[[], bool]) -> Callable[[], bool]:
        def is_shown() -> bool:
            page.update(scraped(port))
            return bool(page) and condition()

        return is_shown

    wait_until(shows(lambda: joined(page, "tasks_completed") > 0), run)
    os.kill(trainers(run)[0], signal.SIGKILL)
    wait_until(shows(lambda: joined(page, "trainers_lost") == 1), run)
    steps, completed = joined(page, "agent_steps"), joined(page, "tasks_completed")
    (server,) = [pid for pid, line in children(run.pid).items() if "ray::ServerActor" in line]
    os.kill(server, signal.SIGKILL)
    wait_until(shows(lambda: joined(page, "server_restarts") == 1), run)
    wait_until(shows(lambda: joined(page, "tasks_completed") > completed + 2), run)
    assert joined(page, "agent_steps") > steps
    assert joined(page, "trainers_lost") == 1
    workers = {one.labels["WorkerId"] for one in page["ray_leap_rl_streams_total"].samples}
    assert len(workers) == 2


def test_a_port_that_is_taken_is_one_line() -> None:
    cluster = ray_module("runtime").cluster
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(RunFailedError) as error, cluster(None, 1, number):
            pass
    assert str(error.value) == (
        f"runtime.metrics_port = {number}: cannot be listened on (Address already in use); name "
        "another, or null for any that is free"
    )


class Shown:
    """Stands for Ray's metrics, and remembers what they would show."""

    values: defaultdict[str, dict[str, float]]

    def __init__(self, name: str, meaning: str, tag_keys: tuple[str, ...]) -> None:
        self._name, self._tag_keys = name, tag_keys

    def set_default_tags(self, tags: dict[str, str]) -> None:
        assert tags == {"run": "l\\xe4ufe"}

    def start(self) -> None:
        self.values[self._name][""] = 0

    def inc(self, value: float) -> None:
        assert value > 0, "as Ray demands"
        self.values[self._name][""] += value

    def set(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        tags = tags or {}
        assert ("run", *tags) == self._tag_keys
        self.values[self._name]["".join(tags.values())] = value


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Any:
    ray_metrics = ray_module("metrics")
    Shown.values = defaultdict(dict)
    monkeypatch.setattr(ray_metrics, "_Counter", Shown)
    monkeypatch.setattr(ray_metrics, "Gauge", Shown)
    return ray_metrics.RunMetrics("läufe", wall_clock=lambda: 1e9)


def status(*running: tuple[str, float, float | None], round: int = 2) -> RunStatus:
    tasks = [
        TaskStatus(
            slot=slot,
            game=game,
            trainer="a",
            attempt=1,
            agent_steps=5,
            agent_steps_per_s=speed,
            mean_return=mean,
        )
        for slot, (game, speed, mean) in enumerate(running)
    ]
    return RunStatus(round=round, rounds=7, slots_complete=3, slots_total=8, running=tuple(tasks))


def test_what_is_shown_follows_the_tally(metrics: Any) -> None:
    assert Shown.values["leap_rl_lease_expiries_total"] == {"": 0}
    counters = Counters()
    metrics.publish(status(), counters)
    assert "leap_rl_last_message_timestamp_seconds" not in Shown.values
    counters.streams, counters.lease_expiries = 5, 1
    for _ in range(2):
        metrics.publish(status(), counters)
    assert Shown.values["leap_rl_streams_total"] == {"": 5}
    assert Shown.values["leap_rl_lease_expiries_total"] == {"": 1}
    assert Shown.values["leap_rl_last_message_timestamp_seconds"] == {"": 1e9}
    counters.committed("meta_step", {"meta/step_ratio": 0.25})
    metrics.publish(status(round=7), counters)
    assert Shown.values["leap_rl_step_ratio"] == {"": 0.25}
    assert Shown.values["leap_rl_meta_step"] == {"": 7}
    assert Shown.values["leap_rl_meta_steps"] == {"": 7}


def test_the_metrics_of_games_are_those_of_their_running_tasks(metrics: Any) -> None:
    metrics.publish(
        status(("pong", 3.0, None), ("pong", 4.0, -7.5), ("tetris", 2.0, None)), Counters()
    )
    assert Shown.values["leap_rl_agent_steps_per_second"] == {"pong": 7.0, "tetris": 2.0}
    assert Shown.values["leap_rl_mean_return"] == {"pong": -7.5}
    assert Shown.values["leap_rl_slots"] == {"pending": 2, "running": 3, "complete": 3}
    metrics.publish(status(("tetris", 2.0, None)), Counters())
    assert Shown.values["leap_rl_agent_steps_per_second"] == {"pong": 0.0, "tetris": 2.0}
    assert Shown.values["leap_rl_mean_return"] == {"pong": -7.5}
