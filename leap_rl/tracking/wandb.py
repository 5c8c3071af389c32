"""The Weights & Biases mirror; the only file that imports wandb.

The driver logs; wandb's own process writes and uploads. That process buffers its files and dies
with the driver, so the next driver logs lost rows again from `metrics.jsonl`. After any kill wandb
has each row once:

* Offline each driver writes a new file with the whole run, and marks older files so that
  `wandb sync` skips them.
* Online the driver asks the server for its number of rows, and logs the later ones.

If the server does not answer within seconds at the start, the run is tracked offline.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shlex
import ssl
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import wandb

from leap_rl.core.lines import say
from leap_rl.core.machine import kill_children_from
from leap_rl.core.regular_file import read_regular
from leap_rl.tracking.config import OF_A_SWEEP, TrackingConfig
from leap_rl.tracking.jsonl import read_rows
from leap_rl.tracking.metrics import AXES, Axis, Row
from leap_rl.tracking.sink import Cell, Sink, TrackingError
from leap_rl.tracking.wandb_folder import (
    ARTIFACT_TYPE,
    artifact_name,
    pass_over_older_files,
    read_sources,
    run_id,
)

ANSWER_TIMEOUT_S = 3.0  # for the server's first answer
INIT_TIMEOUT_S = 30.0  # for the wandb run to be made, once the server has answered
FINISH_TIMEOUT_S = 60.0  # for the last uploads, while the server answers
AWAY_TIMEOUT_S = 5.0  # for the last uploads, if it does not
_PERMANENT = re.compile(r"returned error 4(?!08|29)\d\d")
"""In wandb's error for a server that refuses for good."""


class WandbSink(Sink):
    """Logs to one wandb run, whose id stays in the run folder for a resume.

    wandb gets no console output, machine statistics, environment, code or git state. `run_config`
    must contain no secrets. The other arguments and the errors are `open_tracker`'s.
    """

    name = "wandb"

    def __init__(
        self,
        config: TrackingConfig,
        *,
        run_folder: Path,
        run_config: Mapping[str, object],
        kind: str,
        place: str,
    ) -> None:
        self._kind = kind
        self._exit_code = 0
        self._run_folder = run_folder
        self._place = place
        self._id = run_id(run_folder)
        if os.environ.get("WANDB_RUN_ID", self._id) != self._id:
            # A sweep's agent set it for another run, and in a sweep wandb prefers the environment.
            for name in OF_A_SWEEP:
                os.environ.pop(name, None)
        arguments = {
            "project": config.wandb_project,
            "entity": config.wandb_entity,
            "group": config.wandb_group,
            "tags": config.wandb_tags,
            "job_type": kind,
            "name": os.environ.get("WANDB_NAME") or run_folder.name,
            "config": dict(run_config),
        }
        # By default wandb reports its own errors to its makers, offline too, and waits for that.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb.setup(wandb.Settings(silent=True))  # first, as logging in prints too
        run = self._start_online(arguments) if config.wandb == "online" else None
        self._online = run is not None
        if run is None:
            pass_over_older_files(run_folder)
            run = self._start(arguments, mode="offline", resume=None)
        self._run = run
        # Rows are logged before everything else, so wandb's step is the number of a row.
        self._there: int = self._run.starting_step
        self._rows = 0
        try:
            for row in read_rows(run_folder / "metrics.jsonl"):
                self.write(row, next(axis for axis in AXES if axis in row))
            for source in read_sources(run_folder):
                metadata = {"meta_step": source.meta_step}
                self._publish(source.artifact, Path(source.file), metadata=metadata, uses=True)
        except Exception:
            _end_service()
            raise

    def write(self, row: Row, axis: Axis) -> None:
        """Log `row` unless wandb has it; the first row's axis becomes the charts' x axis."""
        if self._rows == 0:
            for each in AXES:
                self._run.define_metric(each)
            self._run.define_metric("*", step_metric=axis)
        if self._rows >= self._there:
            self._run.log(dict(row))
        self._rows += 1

    def write_file(self, name: str, path: Path) -> None:
        if path.suffix == ".mp4":
            self._run.log({name: wandb.Video(str(path), format="mp4")})
        else:
            self._run.log({name: wandb.Html(path, inject=False)})

    def write_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]
    ) -> None:
        """Log a table; cells that are not finite become empty."""
        data = [[_finite(cell) for cell in row] for row in rows]
        self._run.log({name: wandb.Table(list(columns), data, allow_mixed_types=True)})

    def write_initialization(
        self, meta_step: int, path: Path, *, newest: bool, metadata: Mapping[str, object]
    ) -> None:
        """Log a version of the run's artifact; equal contents are one version."""
        self._publish(
            artifact_name(self._id),
            path,
            metadata={"meta_step": meta_step, **metadata},
            aliases=[f"meta-step-{meta_step}", *(["latest"] if newest else [])],
        )

    def fail(self, reason: str) -> None:
        """Send an alert, and mark the run as failed."""
        self._exit_code = 1
        title = f"leap-rl {self._kind} failed"
        self._run.alert(title=title, text=reason, level="ERROR")

    def close(self) -> None:
        """Finish the wandb run. Offline the interpreter's exit waits for wandb's last bytes."""
        errors: list[Exception] = []

        def finish() -> None:
            try:
                self._run.finish(exit_code=self._exit_code)
            except Exception as error:
                errors.append(error)

        # wandb ignores its own timeout for some uploads.
        thread = _within(AWAY_TIMEOUT_S, finish)
        if thread.is_alive() and (not self._online or _silence(_server()) is None):
            thread.join(FINISH_TIMEOUT_S)
        if thread.is_alive():
            resume = f"`leap-rl resume {shlex.quote(self._place)}`"
            say(
                f"leap-rl: {_server()} did not take everything that was to be uploaded; once it "
                f"answers, {resume} uploads the rest"
                if self._online
                else f"leap-rl: wandb did not write everything to {self._run_folder}/wandb within "
                f"{FINISH_TIMEOUT_S:.0f} s; {resume} writes it again",
                file=sys.stderr,
            )
            _end_service()
        elif errors:
            _end_service()
            raise errors[0]

    def _start_online(self, arguments: Mapping[str, Any]) -> wandb.Run | None:
        """Return the run; None, after a message, if the server is out of reach."""
        try:
            has_key = wandb.login(prompt=False, verify=False)  # or it asks on the terminal
        except wandb.errors.Error as error:
            raise _refused(error) from error
        if not has_key:
            raise _refused("no API key is configured (see wandb login)")
        try:
            silence = _silence(_server())
            if silence is None:
                return self._start(arguments, mode="online", resume="allow")
        except wandb.errors.Error as error:
            if not isinstance(error, wandb.errors.CommError) or _PERMANENT.search(str(error)):
                raise _refused(error) from error
            silence = _first_line(error)
        say(
            f"leap-rl: tracking.wandb = online: {_server()} is out of reach ({silence}); tracking "
            f"offline: once it is back, `wandb sync {self._run_folder}/wandb/offline-run-*` "
            "uploads the run",
            file=sys.stderr,
        )
        wandb.teardown()  # its process counts the run's id as used
        wandb.setup(wandb.Settings(silent=True))
        return None

    def _start(self, arguments: Mapping[str, Any], *, mode: Any, resume: Any) -> wandb.Run:
        return wandb.init(
            **arguments,
            dir=self._run_folder,
            id=self._id,
            mode=mode,
            resume=resume,
            reinit="create_new",  # independent of this process's other wandb runs
            settings=wandb.Settings(
                silent=True,
                console="off",
                x_disable_stats=True,
                x_disable_meta=True,
                disable_git=True,
                disable_code=True,
                save_code=False,
                x_save_requirements=False,
                host="",
                program="leap-rl",
                init_timeout=INIT_TIMEOUT_S,
            ),
        )

    def _publish(
        self,
        name: str,
        path: Path,
        *,
        metadata: Mapping[str, object],
        aliases: Sequence[str] = (),
        uses: bool = False,
    ) -> None:
        """Send wandb's process an artifact of one file, which is read when it is uploaded.

        This is a private message of wandb's, for which its version is bounded. The public
        Run.use_artifact is refused offline, and online waits without a timeout for the upload;
        Run.log_artifact first asks the server for the artifact's type (19 s with a server that does
        not answer). The message waits for nothing, and the upload finds by its content an artifact
        that the run `uses`.
        """
        metadata = {**metadata, "sha256": hashlib.sha256(read_regular(path)).hexdigest()}
        artifact = wandb.Artifact(name, type=ARTIFACT_TYPE, metadata=metadata)
        artifact.add_file(str(path), skip_cache=True, policy="immutable")
        artifact.finalize()
        assert self._run._interface is not None
        self._run._interface.publish_artifact(
            self._run, artifact, aliases, is_user_created=True, use_after_commit=uses
        )


def _silence(url: str) -> str | None:
    """Return why a server does not answer within seconds; None if it does."""
    reasons: list[str | None] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(url, timeout=ANSWER_TIMEOUT_S).close()
        except urllib.error.HTTPError:
            pass  # an answer
        except OSError as error:
            reason = getattr(error, "reason", error)
            if not isinstance(reason, ssl.SSLError):  # wandb has its own certificates
                reasons.append(_first_line(reason))
                return
        reasons.append(None)

    _within(ANSWER_TIMEOUT_S, ask)  # a look-up of the name has no timeout
    return reasons[0] if reasons else f"no answer within {ANSWER_TIMEOUT_S:g} s"


def _within(timeout_s: float, function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return thread


def _end_service() -> None:
    """End wandb's process, if this one started it: the interpreter's exit would wait for it."""
    kill_children_from(Path(wandb.__file__).parent)
    with suppress(Exception, SystemExit):  # it is gone
        wandb.teardown()


def _server() -> str:
    return str(wandb.setup().settings.base_url)


def _first_line(error: object) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")


def _refused(reason: object) -> TrackingError:
    reason = _first_line(reason)
    return TrackingError(f"tracking.wandb = online: {reason}; use offline, then wandb sync")


def _finite(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
