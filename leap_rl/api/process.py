"""Runs a command of the command line in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Final

from leap_rl.core.errors import RunFailedError
from leap_rl.core.parsing import TRUST_IMPORTS
from leap_rl.training.interrupts import StopReason

POLL_EVERY_S: Final = 0.2

PATIENCE_S: Final = 30.0
"""A command that was asked to stop leaves within 6 s, unless the machine is very busy."""

_PREFIX: Final = "leap-rl: "
"""What the line on stderr starts with that says why a command failed."""


def call(
    words: Sequence[str],
    *,
    trust_imports: bool = False,
    quiet: bool = False,
    poll: Callable[[], object] = lambda: None,
) -> None:
    """Run `leap-rl WORDS` until it ends. Its messages go to this process's stderr.

    A command that is interrupted, here or by ``poll``, stops as it does on Ctrl-C: within seconds,
    and its run can be resumed.

    Args:
        words: The command and its arguments.
        trust_imports: Whether modules may be imported that a config names.
        quiet: Whether its messages are dropped.
        poll: Called a few times a second while the command runs, and once after it. What it raises
            stops the command, and is raised here.

    Raises:
        ValueError: The command refused its arguments; the message names the field.
        RunFailedError: It failed, or was killed.
    """
    more = [TRUST_IMPORTS] if trust_imports else []
    process = subprocess.Popen(
        [sys.executable, "-m", "leap_rl", *words, *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stderr is not None
    reasons: list[str] = []
    reader = threading.Thread(target=_relay, args=(process.stderr, reasons, quiet), daemon=True)
    reader.start()
    try:
        while process.poll() is None:
            poll()
            time.sleep(POLL_EVERY_S)
    except BaseException:
        _stop(process)
        raise
    finally:
        reader.join(1.0)  # grandchildren may hold the pipe open
    poll()
    _raise_for(process.returncode, reasons[-1] if reasons else "", words[0])


def _relay(stderr: IO[str], reasons: list[str], quiet: bool) -> None:
    """Pass the command's messages on, and note those that say why it failed."""
    with stderr:
        for line in stderr:
            if line.startswith(_PREFIX):
                reasons.append(line.removeprefix(_PREFIX).strip())
            if not quiet:
                sys.stderr.write(line)
                sys.stderr.flush()


def _stop(process: subprocess.Popen[str]) -> None:
    """Ask the command to stop, and kill it if it does not."""
    # A terminal's Ctrl-C has reached it too: signals so close together are one.
    process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
    except BaseException:  # a second Ctrl-C
        process.kill()
        raise
    finally:
        process.wait()


def _raise_for(status: int, reason: str, command: str) -> None:
    if status in (0, StopReason.TIME_OVER.value):
        return
    if status == StopReason.INTERRUPTED.value:  # by the Ctrl-C that this process has yet to see
        raise KeyboardInterrupt
    if status == 2:
        raise ValueError(reason)
    if status < 0:
        reason = f"leap-rl {command} was killed ({signal.Signals(-status).name}); resume its run"
    elif status == StopReason.TERMINATED.value:
        reason = f"leap-rl {command} was told to terminate; resume its run"
    raise RunFailedError(reason or f"leap-rl {command} ended with status {status}")
