"""Processes that measure the same thing at the same time, each on one thread, as trainers do."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from types import TracebackType
from typing import Any

from leap_rl.determinism import configure_torch, prepare_environment
from leap_rl.training.errors import RunFailedError

TOGETHER_TIMEOUT_S = 300.0
"""For the slowest to come to a window's start."""


class Crew:
    """Some processes with a worker each, whose methods are called in all of them at once.

    Args:
        make_worker: Makes a worker from the process's number; it and what the worker's methods
            return must be picklable.
        processes: How many.
    """

    def __init__(self, make_worker: Callable[[int], Any], *, processes: int) -> None:
        self._make_worker = make_worker
        self._processes = processes

    def __enter__(self) -> Crew:
        prepare_environment()  # which the processes inherit
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(self._processes)  # which must outlive their start
        self._connections: list[Connection] = []
        self._members = []
        for index in range(self._processes):
            ours, theirs = context.Pipe()
            arguments = (self._make_worker, index, self._barrier, theirs)
            member = context.Process(target=_serve, args=arguments, daemon=True)
            member.start()
            theirs.close()
            self._connections.append(ours)
            self._members.append(member)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for connection in self._connections:
            connection.close()
        for member in self._members:
            member.terminate()
            member.join()

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every worker, all of them starting at the same moment.

        Returns:
            The answers, in the order of the processes.

        Raises:
            RunFailedError: A process died.
            ValueError: What a worker raised, as any other exception of its.
        """
        with suppress(BrokenPipeError):  # its end of the pipe says why
            for connection in self._connections:
                connection.send((method, arguments))
        return [self._answer(index) for index in range(self._processes)]

    def _answer(self, index: int) -> Any:
        try:
            answer = self._connections[index].recv()
        except (EOFError, ConnectionResetError):
            self._members[index].join()
            raise RunFailedError(
                f"bench process {index} died (exit status {self._members[index].exitcode}); "
                "was there memory for all of them?"
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _serve(
    make_worker: Callable[[int], Any], index: int, barrier: Barrier, connection: Connection
) -> None:
    """Answer requests until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends us
    configure_torch()
    try:
        worker = make_worker(index)
        while True:
            method, arguments = connection.recv()
            barrier.wait(TOGETHER_TIMEOUT_S)
            connection.send(getattr(worker, method)(*arguments))
    except EOFError:
        return
    except Exception as error:
        barrier.abort()
        with suppress(OSError):
            connection.send(error)
        time.sleep(1.0)  # let the parent read it first
