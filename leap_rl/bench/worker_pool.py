"""Processes that measure the same thing at the same time, each on one thread, as trainers do."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from types import TracebackType
from typing import Any

from leap_rl.compute.determinism import configure_torch, prepare_environment
from leap_rl.training.errors import RunFailedError

TOGETHER_TIMEOUT_S = 300.0
"""For the slowest to come to a window's start."""

PARTING_S = 10.0
"""For an idle process to end."""


class WorkerPool:
    """Some processes with a worker each, whose methods are called in all of them at once.

    Args:
        make_worker: Makes a worker from the process's number; it and what the worker's methods
            return must be picklable.
        processes: How many.
        parents: Whether the workers start processes of their own. These must be daemons or end
            when their pipe does, so that none is left behind.
    """

    def __init__(
        self, make_worker: Callable[[int], Any], *, processes: int, parents: bool = False
    ) -> None:
        self._make_worker = make_worker
        self._processes = processes
        self._daemon = not parents

    def __enter__(self) -> WorkerPool:
        prepare_environment()  # which the processes inherit
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(self._processes)  # which must outlive their start
        self._connections: list[Connection] = []
        self._members = []
        for index in range(self._processes):
            ours, theirs = context.Pipe()
            arguments = (self._make_worker, index, self._barrier, theirs)
            member = context.Process(target=_serve, args=arguments, daemon=self._daemon)
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
            if kind is None:  # idle, so that it tidies up and ends by itself
                member.join(PARTING_S)
            member.terminate()
            member.join()

    @property
    def pids(self) -> list[int]:
        """The processes' numbers."""
        return [member.pid for member in self._members if member.pid is not None]

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every worker, all of them starting at the same moment.

        Returns:
            The answers, in the order of the processes.

        Raises:
            RunFailedError: A process died, or one kept the others waiting for too long.
            ValueError: What a worker raised, as any other exception of its. Where several failed,
                the error of the first process that did not merely wait in vain for another.
        """
        for connection in self._connections:
            with suppress(BrokenPipeError):  # its end of the pipe says why
                connection.send((method, arguments))
        answers: list[Any] = [None] * self._processes
        pending = dict(enumerate(self._connections))
        while pending:
            ready = wait(list(pending.values()))
            for index in [index for index, one in pending.items() if one in ready]:
                del pending[index]
                answers[index] = self._answer(index)
                if isinstance(answers[index], Exception):
                    self._barrier.abort()  # the others would wait for it
        failures = [answer for answer in answers if isinstance(answer, Exception)]
        for failure in failures:
            if not isinstance(failure, BrokenBarrierError):
                raise failure
        if failures:
            raise RunFailedError(
                f"bench processes waited more than {TOGETHER_TIMEOUT_S:.0f} s for one another"
            )
        return answers

    def _answer(self, index: int) -> Any:
        """Return what a process answers, an exception if it failed or has died."""
        try:
            return self._connections[index].recv()
        except (EOFError, ConnectionResetError):
            self._members[index].join()
            return RunFailedError(
                f"bench process {index} died (exit status {self._members[index].exitcode}); "
                "was there memory for all of them?"
            )


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
            connection.send(portable(error, index))
        time.sleep(1.0)  # let the parent read it first


def portable(error: Exception, index: int) -> Exception:
    """Return an error as it can travel, with a note of where it arose."""
    note = f"in bench process {index}:\n{traceback.format_exc()}"
    error.add_note(note)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
        error.add_note(note)
    return error
