"""Carries out a run in a process of its own: a request goes there, events come back.

The request is JSON on the process's stdin, the events are JSON lines on a pipe of their own. Its
stderr is the caller's. `supervise` asks again whenever such a process is killed.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any, Final, Literal

from leap_rl.core.errors import EXIT_FAILED, ClusterLostError, RunFailedError, UnfitSnapshotError
from leap_rl.runs.display import shown, tell
from leap_rl.runs.header import LoadedRun
from leap_rl.runs.invocation import Invocation
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.object_store import StoreError
from leap_rl.tracking.config import OF_A_SWEEP
from leap_rl.tracking.metrics import Row
from leap_rl.training.interrupts import StopReason

POLL_EVERY_S: Final = 0.2

STOP_WITHIN_S: Final = 30.0
"""A process that was asked to stop leaves within 6 s, unless the machine is very busy."""

ERRORS: Final = {
    error.__name__: error
    for error in (
        *(RunFolderError, StoreError, ValueError),
        *(ClusterLostError, UnfitSnapshotError, RunFailedError),
    )
}
"""What a run raises for its user."""

_RUN_IDS: Final[dict[str, str]] = {}
"""Ids of wandb runs that processes were given, and the places of their runs."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What another process is to do with a run."""

    action: Literal["make", "resume", "report"]
    command: str
    """The command that makes the run, or `resume` or `report`; for messages."""
    place: str
    """The run's folder, or its URL."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The nested options of a run to make."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options by dotted name, over those of the config or of the run that is resumed."""
    inits: tuple[str, ...] = ()
    """What an evaluation compares, as `leap-rl evaluate --init` has it."""
    trusts_imports: bool = False
    """Whether modules may be imported that an option names."""
    quiet: bool = False
    """Whether the process's stderr is dropped."""
    supervised: bool = False
    """Whether the caller asks again when the process is killed."""
    stops_with: int | None = None
    """A process, the caller, whose end stops the run, such that it can be resumed."""
    rows_seen: int = 0
    """Of the run's rows, those that the caller has."""
    started_s: float | None = None
    """When the command started, on the monotonic clock, which the processes of a machine share;
    none for when the process does."""
    joined: Mapping[str, str] | None = None
    """A cluster whose trainers serve the run, as of `Joined`; none for trainers of its own."""


@dataclass(frozen=True, kw_only=True)
class RowLogged:
    """A row of the run's metrics was logged."""

    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The run ended by itself."""

    status: int
    """The exit status that a command of its own would have."""
    error: str | None = None
    """The class of the exception that ended it, if one did, and its message."""
    message: str = ""


Event = RowLogged | Ended

_EVENTS: Final[Mapping[str, type[Event]]] = {one.__name__: one for one in (RowLogged, Ended)}


def encode_event(event: Event) -> bytes:
    """Return an event as one line."""
    return json.dumps({"event": type(event).__name__, **asdict(event)}).encode() + b"\n"


def decode_event(line: bytes) -> Event:
    """Return the event that a line says."""
    document = json.loads(line)
    return _EVENTS[document.pop("event")](**document)


def _environment(request: Request) -> dict[str, str]:
    """Return a process's environment: what a sweep's agent says of a wandb run is for one run.

    That is the first of this process, such as of a script that trains and then evaluates; cells of
    a study have runs of their own.
    """
    variables = dict(os.environ)
    if (run_id := variables.get("WANDB_RUN_ID")) is None:
        return variables
    is_cell = request.stops_with is not None
    if is_cell or _RUN_IDS.setdefault(run_id, request.place) != request.place:
        for name in OF_A_SWEEP:
            variables.pop(name, None)
    return variables


class RunProcess:
    """A process that does what it is asked; it is not waited for unless `wait` is called."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._outlet, inlet = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "leap_rl.runs.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL if request.quiet else None,
                pass_fds=[inlet],
                env=_environment(request),
            )
        except BaseException:
            os.close(self._outlet)
            raise
        finally:
            os.close(inlet)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(json.dumps({"events": inlet, "request": asdict(request)}).encode())
        self.has_ended_by_itself = False
        """Whether the process told its own end; otherwise something killed it."""
        self._events: queue.Queue[Event | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self, on_row: Callable[[Mapping[str, Any]], object]) -> int:
        """Wait for its end; return its exit status, negative if a signal killed it.

        Args:
            on_row: Called, in this thread, with each row of the run's metrics once it is logged.

        Raises:
            ValueError: The request was refused, as RunFolderError if the folder is to blame.
            RunFailedError: The run failed.
            StoreError: The object store cannot be reached.
        """
        while (event := self._events.get()) is not None:
            if isinstance(event, RowLogged):
                on_row(event.values)
                continue
            self.has_ended_by_itself = True
            if event.error is not None:
                self._process.wait()
                raise ERRORS[event.error](event.message)
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        self._process.send_signal(number)

    def stop(self) -> None:
        """Ask the process to stop, and kill it if it does not."""
        # A terminal's Ctrl-C has reached it too: signals so close together are one.
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        except BaseException:  # a second Ctrl-C
            self._process.kill()
            raise
        finally:
            self._process.wait()

    def _read(self) -> None:
        """Read events until the process has ended: processes that it started may hold the pipe."""
        rest = b""
        while True:
            ended = self._process.poll() is not None  # before looking: nothing comes after it
            if select.select([self._outlet], [], [], 0 if ended else POLL_EVERY_S)[0]:
                read = os.read(self._outlet, 1 << 16)
                if not read:
                    break
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    self._events.put(decode_event(line))
            elif ended:
                break
        os.close(self._outlet)
        self._events.put(None)


def call(
    request: Request, on_row: Callable[[Mapping[str, Any]], object] = lambda row: None
) -> None:
    """Have a process of its own do what is requested, until it ends.

    A run that is interrupted, here or by ``on_row``, stops as it does on Ctrl-C: within seconds,
    and it can be resumed. What `RunProcess.wait` raises is raised; what ``on_row`` raises, too.

    Raises:
        RunFailedError: The process was killed, or ended without a word.
    """
    process = RunProcess(request)
    try:
        status = process.wait(on_row)
    except BaseException:
        process.stop()
        raise
    if status == 0 and not process.has_ended_by_itself:  # os._exit in somebody's own code
        raise RunFailedError(
            f"leap-rl {request.command} ended with status 0 before it had finished; resume its run"
        )
    check_status(request, status)


def check_status(request: Request, status: int) -> None:
    """Raise what the exit status of a process says that did what is requested.

    Raises:
        KeyboardInterrupt: It was interrupted.
        RunFailedError: It was killed or told to terminate, or failed without a word.
    """
    if status in (0, StopReason.TIME_OVER.value):
        return
    if status == StopReason.INTERRUPTED.value:  # by the Ctrl-C that this process has yet to see
        raise KeyboardInterrupt
    command = f"leap-rl {request.command}"
    if status < 0:
        raise RunFailedError(
            f"{command} was killed ({signal.Signals(-status).name}); resume its run"
        )
    if status == StopReason.TERMINATED.value:
        raise RunFailedError(f"{command} was told to terminate; resume its run")
    raise RunFailedError(f"{command} ended with status {status}")


def _cause_of_death(driver: RunProcess, status: int) -> str | None:
    """Return what ended a driver; none if it ended by itself or was asked to stop."""
    if status < 0:
        return f"the driver was killed ({signal.Signals(-status).name})"
    stopped = {reason.value for reason in StopReason} - {StopReason.CLUSTER_LOST.value}
    if driver.has_ended_by_itself or status in stopped:
        return None
    return f"the driver ended without a word (exit status {status})"  # as by Ray's C++


def supervise(run: LoadedRun, call: Invocation) -> int:
    """Run a run's driver in a process of its own, again whenever it is killed or loses its cluster.

    A driver that ends by itself has a reason, which another one would find too: it failed, its run
    is done, or it was asked to stop. The exit status of the last driver is returned, and what made
    it fail is raised.
    """
    restarts, most = 0, run.config.runtime.max_driver_restarts
    driver: RunProcess | None = None
    asked, rows_seen = 0, call.rows_seen

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = number
        if driver is not None:
            driver.send_signal(number)

    def on_row(row: Row) -> None:
        nonlocal rows_seen
        rows_seen += 1
        call.on_row(row)

    former = {one: signal.signal(one, pass_on) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        while True:
            request = Request(
                action="resume",
                command="resume",
                place=run.folder.place,
                trusts_imports=call.trusts_imports,
                supervised=True,
                rows_seen=rows_seen,
                started_s=call.started_s,
                joined=None if call.joined is None else asdict(call.joined),
            )
            driver = RunProcess(request)
            if asked:  # while it was started, so nobody has told it
                driver.send_signal(asked)
            try:
                status = driver.wait(on_row)
                cause = None if asked else _cause_of_death(driver, status)
            except ClusterLostError as error:
                if asked or call.joined is not None or restarts == most:
                    raise
                cause = str(error).partition(";")[0]
            if cause is None:
                return status if status >= 0 else 128 + asked
            if restarts == most:
                tell(
                    f"{cause} once more than {restarts} times, as runtime.max_driver_restarts "
                    f"allows; {shown(run.folder)} can be resumed"
                )
                return 128 - status if status < 0 else status or EXIT_FAILED
            restarts += 1
            tell(f"{cause}; resuming {shown(run.folder)}, restart {restarts} of {most}")
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)
