"""Whole runs through the command line: their initializations and stops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leap_rl.cli import EXIT_INTERRUPTED, main
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.training.messages import Complete
from leap_rl.training.runtime.local import LocalClient
from leap_rl.training.server.parameter_server import ParameterServer


def initializations(run: Path) -> list[str]:
    """Return the SHA-256 of each version's file, as its checkpoint records it."""
    folder = RunFolder(run)
    latest = folder.latest()
    assert latest is not None
    return [
        folder.read_checkpoint(number)[1]["sha256"][INITIALIZATION] for number in range(latest + 1)
    ]


@contextmanager
def stopped_after(tasks: int) -> Iterator[None]:
    """Stop the local run in this context when it would complete one more task than `tasks`."""
    complete = LocalClient.complete
    completed: list[Complete] = []

    def complete_some(client: LocalClient, message: Complete) -> object:
        if len(completed) == tasks:
            raise KeyboardInterrupt
        completed.append(message)
        return complete(client, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalClient, "complete", complete_some)
        yield


OFTEN = ["--runtime.stream_every_s", "1e-6", "--runtime.snapshot_every_s", "1e-6"]
"""A stream, and a snapshot with it, after each update."""


@contextmanager
def stopped_within(looks: int) -> Iterator[None]:
    """Stop the local run in this context at its `looks`-th look whether a stream is due."""
    due, calls = LocalClient.due, []

    def stop(client: LocalClient, *, restorable: bool) -> object:
        calls.append(1)
        if len(calls) == looks:
            raise KeyboardInterrupt
        return due(client, restorable=restorable)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalClient, "due", stop)
        yield


def train_with_stops(run: Path, options: Sequence[str], *resuming: str) -> set[tuple[int, int]]:
    """Train, stop once in the middle of each task, and resume until it is done.

    Args:
        run: The run's folder.
        options: Of `leap-rl train`.
        resuming: Options of `leap-rl resume`.

    Returns:
        The meta-steps and slots in which it was stopped.
    """
    stream = ParameterServer.stream
    stopped: set[tuple[int, int]] = set()

    def stop(self: ParameterServer, message: Any) -> object:
        answer = stream(self, message)
        place = (message.ticket.round, message.ticket.slot)
        if message.snapshot is not None and message.n >= 7 and place not in stopped:
            stopped.add(place)
            raise KeyboardInterrupt
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParameterServer, "stream", stop)
        argv = ["train", *options, *OFTEN, "--run_dir", str(run)]
        while (status := main(argv)) == EXIT_INTERRUPTED:
            argv = ["resume", str(run), *resuming]
    assert status == 0
    return stopped
