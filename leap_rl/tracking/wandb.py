"""The Weights & Biases mirror; the only file that imports wandb.

One process of a run logs, the driver. Offline files are uploaded later with `wandb sync`; each
resume adds a folder, and `wandb sync` joins those with one run id in the order of their start.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import wandb

from leap_rl.tracking.config import TrackingConfig
from leap_rl.tracking.metrics import Axis, Row
from leap_rl.tracking.sink import Sink, TrackingError

INIT_TIMEOUT_S = 30.0


class WandbSink(Sink):
    """Logs each row to one wandb run, whose id is kept in the run folder for a resume.

    wandb is kept from recording anything but the rows and `run_config`: no console output, machine
    statistics, environment, code or git state.

    Args:
        config: mode (`offline` or `online`), project, entity, group and tags.
        run_folder: the run's folder; wandb's files go into its `wandb` folder.
        run_config: the resolved config; must hold no secrets.
        kind: the command, as wandb's job type.

    Raises:
        TrackingError: online without an API key, or the server cannot be reached or refuses.
    """

    def __init__(
        self,
        config: TrackingConfig,
        *,
        run_folder: Path,
        run_config: Mapping[str, object],
        kind: str,
    ) -> None:
        online = config.wandb == "online"
        # Set before anything else, as logging in prints too.
        wandb.setup(wandb.Settings(silent=True))
        try:
            # Without this, a missing key would be asked for on the terminal.
            if online and not wandb.login(prompt=False):
                raise TrackingError(_no_online("no API key is configured (see wandb login)"))
            self._run = wandb.init(
                project=config.wandb_project,
                entity=config.wandb_entity,
                group=config.wandb_group,
                tags=config.wandb_tags,
                job_type=kind,
                dir=run_folder,
                id=_run_id(run_folder / "wandb" / "run_id.txt"),
                resume="allow" if online else None,
                config=dict(run_config),
                mode="online" if online else "offline",
                # A run of its own, whatever else this process logs to wandb.
                reinit="create_new",
                settings=wandb.Settings(
                    silent=True,
                    console="off",
                    x_disable_stats=True,
                    x_disable_meta=True,
                    disable_git=True,
                    disable_code=True,
                    save_code=False,
                    x_save_requirements=False,
                    init_timeout=INIT_TIMEOUT_S,
                ),
            )
        except wandb.errors.Error as error:
            raise TrackingError(_no_online(str(error))) from error
        self._axis: Axis | None = None
        self._kind = kind
        self._exit_code = 0

    def write(self, row: Row, axis: Axis) -> None:
        """Log `row`; the first row's axis becomes the x axis of every chart."""
        if self._axis is None:
            self._axis = axis
            self._run.define_metric(axis)
            self._run.define_metric("*", step_metric=axis)
        self._run.log(dict(row))

    def write_clip(self, name: str, path: Path) -> None:
        """Log a film; wandb copies the file."""
        self._run.log({name: wandb.Video(str(path), format="mp4")})

    def fail(self, reason: str) -> None:
        """Send an alert, which reaches people where they asked wandb for it, and mark the run."""
        self._exit_code = 1
        self._run.alert(title=f"leap-rl {self._kind} failed", text=reason, level="ERROR")

    def close(self) -> None:
        """Finish the wandb run. Offline, wandb's own process may write its last bytes after this;
        the interpreter's exit waits for it."""
        self._run.finish(exit_code=self._exit_code)


def _no_online(reason: str) -> str:
    first_line = reason.strip().splitlines()[0].rstrip(".")
    return f"tracking.wandb = online: {first_line}; use offline, then wandb sync"


def _run_id(path: Path) -> str:
    """The id that a former process of this run left, or a new one, left for the next."""
    if path.exists():
        return path.read_text(encoding="utf-8").strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    run_id = secrets.token_hex(4)
    path.write_text(run_id + "\n", encoding="utf-8")
    return run_id
