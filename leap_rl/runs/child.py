"""``python -m leap_rl.runs.child`` does what `leap_rl.runs.process.Request` on its stdin says."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from leap_rl.core.determinism import prepare_environment
from leap_rl.core.errors import EXIT_INTERRUPTED, RunFailedError, explained
from leap_rl.core.lines import escape_logged

if TYPE_CHECKING:
    from leap_rl.runs.header import LoadedRun
    from leap_rl.runs.process import Event, Request

LOOK_EVERY_S: Final = 0.5
"""Between two looks at whether the caller is still there."""


def main() -> int:
    """Serve the request; returns the exit status."""
    started_s = time.monotonic()
    escape_logged()
    try:
        document = json.load(sys.stdin)
        # Until the run's own handlers are there, nothing has to be put in order.
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
        pipe: int = document["events"]
        os.set_inheritable(pipe, False)  # or processes that outlive this one would hold it open
        prepare_environment()  # before anything imports torch
        from leap_rl.runs.process import ERRORS, Ended, Request, RowLogged, encode_event

        def send(event: Event) -> None:
            line = encode_event(event)
            with suppress(BrokenPipeError):  # the caller was killed; the run continues
                while line:
                    line = line[os.write(pipe, line) :]

        request = Request(**document["request"])
        if request.stops_with is not None:
            threading.Thread(target=_stop_with, args=(request.stops_with,), daemon=True).start()
        try:
            status = serve(request, lambda row: send(RowLogged(values=row)), started_s=started_s)
            ended = Ended(status=status)
        except (ValueError, OSError, RuntimeError) as error:
            status, message = explained(error)
            known = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in ERRORS)
            kind = next(known, RunFailedError.__name__)
            ended = Ended(status=status, error=kind, message=message)
        send(ended)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return status


def serve(
    request: Request,
    on_row: Callable[[Mapping[str, Any]], object],
    *,
    started_s: float | None = None,
) -> int:
    """Do in this process what is requested; returns the exit status.

    Args:
        request: What to do.
        on_row: Called with each row of the run's metrics once it is logged.
        started_s: When the process started, on the monotonic clock; what the request says goes
            before it.

    Raises:
        ValueError: The request is refused.
        RunFailedError: The run failed.
        OSError: A file cannot be written, or an object store not reached.
    """
    from leap_rl.runs.execution import carry_out
    from leap_rl.runs.invocation import Invocation
    from leap_rl.storage.open_run import open_run
    from leap_rl.training.config import Joined

    if request.action == "report":
        from leap_rl.runs.kinds import report_part
        from leap_rl.runs.report import write_report

        write_report([open_run(request.place)], make_part=report_part)
        return 0
    if request.action == "make":
        run = _make(request)
    else:
        from leap_rl.runs.header import read_run
        from leap_rl.runs.resumption import prepare

        run = prepare(
            read_run(open_run(request.place)),
            request.options,
            trusts_imports=request.trusts_imports,
        )
    call = Invocation(
        started_s=next(
            when for when in (request.started_s, started_s, time.monotonic()) if when is not None
        ),
        trusts_imports=request.trusts_imports,
        supervised=request.supervised,
        on_row=on_row,
        rows_seen=request.rows_seen,
        joined=None if request.joined is None else Joined(**request.joined),
    )
    return carry_out(run, call, resumes=request.action == "resume").status


def _make(request: Request) -> LoadedRun:
    from leap_rl.core.parsing import parse_options
    from leap_rl.runs.config import COMMANDS, EvaluateConfig
    from leap_rl.runs.creation import create_run, resolve
    from leap_rl.runs.evaluation import configure, create_evaluation
    from leap_rl.runs.initializations import find_group

    options, trusted = {**request.options, "run_dir": request.place}, request.trusts_imports
    if request.inits:
        return create_evaluation(*configure(request.inits, options, trusts_imports=trusted))
    config = parse_options(
        COMMANDS[request.command], options, defaults=request.config, trusts_imports=trusted
    )
    if isinstance(config, EvaluateConfig):
        return create_evaluation(resolve(config), [find_group(init) for init in config.init])
    return create_run(resolve(config))


def _stop_with(caller: int) -> None:
    """Ask this process to stop once its caller is gone."""
    while os.getppid() == caller:
        time.sleep(LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
