"""Publishes the parameter server's counters on Ray's Prometheus pages.

Ray's agent collects the numbers every ten seconds and shows them on the page of the server's node.
A restarted server begins another series: Ray labels each with its process.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ray.util.metrics import Counter, Gauge

from leap_rl.tracking.metrics import Row
from leap_rl.tracking.prometheus import SERIES, Series
from leap_rl.tracking.status import RunStatus
from leap_rl.training.server.rounds import Counters

_log = logging.getLogger(__name__)


class _Counter(Counter):
    """A counter that shows 0: Ray's own appears with its first event, which an increase misses."""

    def start(self) -> None:
        self._record(0)


class RunMetrics:
    """Shows a run to Prometheus, as its server sees it; `wall_clock` is in Unix seconds."""

    def __init__(self, run: str, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._counted: dict[str, int] = {}
        self._messages = 0
        self._games: dict[str, float] = {}
        self._counters: dict[str, _Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._broken = False
        with self._best_effort():
            self._register(run)

    def publish(self, status: RunStatus, counters: Counters) -> None:
        if not self._broken:
            with self._best_effort():
                self._publish(status, counters)

    @contextmanager
    def _best_effort(self) -> Iterator[None]:
        """Warn of what fails here, once."""
        try:
            yield
        except Exception as error:  # metrics must not stop a run
            self._broken = True
            _log.warning("Prometheus has failed (%s); the run continues without it", error)

    def _register(self, run: str) -> None:
        tags = {"run": label(run)}
        for series in SERIES:
            described = (series.name, series.meaning, ("run", *series.labels))
            if series.kind == "counter":
                counter = self._counters[_what(series)] = _Counter(*described)
                counter.set_default_tags(tags)
                counter.start()
            else:
                gauge = self._gauges[_what(series)] = Gauge(*described)
                gauge.set_default_tags(tags)

    def _publish(self, status: RunStatus, counters: Counters) -> None:
        for what, counter in self._counters.items():
            total: int = getattr(counters, what)
            new = total - self._counted.get(what, 0)
            if new > 0:
                counter.inc(new)
            self._counted[what] = total
        self._show_progress(status, counters)
        self._show_games(status)
        self._show_row(counters.row)

    def _show_progress(self, status: RunStatus, counters: Counters) -> None:
        self._gauges["meta_step"].set(status.round)
        self._gauges["meta_steps"].set(status.rounds)
        running = len(status.running)
        states = {
            "pending": status.slots_total - status.slots_complete - running,
            "running": running,
            "complete": status.slots_complete,
        }
        for state, slots in states.items():
            self._gauges["slots"].set(slots, {"state": state})
        messages = counters.streams + counters.tasks_completed
        if messages > self._messages:
            self._messages = messages
            self._gauges["last_message_timestamp_seconds"].set(self._wall_clock())

    def _show_games(self, status: RunStatus) -> None:
        speeds: defaultdict[str, float] = defaultdict(float, dict.fromkeys(self._games, 0.0))
        for task in status.running:
            speeds[task.game] += task.agent_steps_per_s
            if task.mean_return is not None:
                tags = {"game": label(task.game)}
                self._gauges["mean_return"].set(task.mean_return, tags)
        for game, speed in speeds.items():
            if self._games.get(game) != speed:
                self._gauges["agent_steps_per_second"].set(speed, {"game": label(game)})
        self._games = dict(speeds)

    def _show_row(self, row: Row) -> None:
        for series in SERIES:
            if series.row is not None and series.row in row:
                self._gauges[_what(series)].set(row[series.row])


def label(text: str) -> str:
    """Return a text as a label's value: Ray takes ASCII alone."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


def _what(series: Series) -> str:
    """Return the series' own part of its name, which `Counters` has too."""
    return series.name.removeprefix("leap_rl_").removesuffix("_total")
