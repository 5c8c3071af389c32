"""A pool of single-threaded processes that measure at the same time, as trainers work."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

from leap_rl.core.determinism import configure_torch, prepare_environment
from leap_rl.core.errors import RunFailedError

_worker: Any = None
"""The worker of this process if the process belongs to a pool."""


class WorkerPool:
    """Processes with one worker each; `call` runs a method in all of them at the same time.

    `make_worker` makes one from the process's number. It must be picklable, as must the values that
    the worker's methods return.
    """

    def __init__(self, make_worker: Callable[[int], Any], *, processes: int) -> None:
        self._make_worker = make_worker
        self._processes = processes

    def __enter__(self) -> WorkerPool:
        prepare_environment()  # the processes inherit it
        self._others = set(active_children())
        with ExitStack() as stack:
            # One executor a process: a shared one could run two calls in the same process.
            self._executors = [
                stack.enter_context(
                    ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_prepare)
                )
                for _ in range(self._processes)
            ]
            stack.push(self._end_at_once)
            self._results([(_make, self._make_worker, index) for index in range(self._processes)])
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            with ThreadPoolExecutor(self._processes) as ends:  # one after the other takes long
                list(ends.map(lambda executor: executor.shutdown(), self._executors))
        self._stack.__exit__(*error)

    def _end_at_once(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None:  # a window may be long
            for process in set(active_children()) - self._others:
                process.terminate()

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every worker at the same time; returns the results in order.

        RunFailedError: a process died. Exceptions of a worker are raised as they are.
        """
        return self._results([(_call, method, arguments)] * self._processes)

    def _results(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        pairs = zip(self._executors, calls, strict=True)
        futures = [executor.submit(*call) for executor, call in pairs]
        try:
            return [future.result() for future in futures]
        except BrokenProcessPool:
            raise RunFailedError(
                "a bench process died; was there memory for all of them?"
            ) from None


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it and ends its pool
    threading.Thread(target=_end_with_parent, daemon=True).start()
    atexit.register(_forget)
    configure_torch()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _forget() -> None:
    """Free the worker's emulators: ale-py reports a leak otherwise."""
    global _worker
    _worker = None


def _make(make_worker: Callable[[int], Any], index: int) -> None:
    global _worker
    _worker = make_worker(index)


def _call(method: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(_worker, method)(*arguments)
