"""Sends a run's rows to its configured sinks."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from leap_rl.core.lines import say
from leap_rl.tracking.config import TrackingConfig
from leap_rl.tracking.metrics import Axis, Row
from leap_rl.tracking.sink import Cell, Sink, TrackingError


class Tracker:
    """Sends each row to all sinks, in order. The last one is the truth, the others mirror it.

    A mirror that fails is reported once, and the run continues without it. As a context manager it
    closes the sinks, and tells them an exception of its block, unless it is a KeyboardInterrupt.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)

    def log(self, row: Row, *, axis: Axis) -> None:
        """Record one row in every sink; a ValueError, before any has it, if it is not finite."""
        assert axis in row, f"the row lacks its axis {axis}"
        for key, value in row.items():
            if not math.isfinite(value):
                raise ValueError(f"{key} = {value}: only finite numbers can be recorded")
        self._show(lambda sink: sink.write(row, axis))

    def log_file(self, name: str, path: Path) -> None:
        self._show(lambda sink: sink.write_file(name, path))

    def log_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        self._show(lambda sink: sink.write_table(name, columns, rows))

    def log_initialization(
        self, meta_step: int, path: Path, *, newest: bool, metadata: Mapping[str, object]
    ) -> None:
        self._show(
            lambda sink: sink.write_initialization(
                meta_step, path, newest=newest, metadata=metadata
            )
        )

    def _show(self, show: Callable[[Sink], None]) -> None:
        *mirrors, truth = self._sinks
        for mirror in mirrors:
            try:
                show(mirror)
            except Exception as error:  # no failure of a mirror stops a run
                _report_mirror(mirror.name, error)
                self._sinks = tuple(sink for sink in self._sinks if sink is not mirror)
                with suppress(Exception):
                    mirror.close()
        show(truth)

    def close(self) -> None:
        *mirrors, truth = self._sinks
        with closing(truth):
            for mirror in mirrors:
                try:
                    mirror.close()
                except Exception as error:
                    _report_mirror(mirror.name, error)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if isinstance(error, Exception):
                for sink in self._sinks:
                    with suppress(Exception):  # the first error is raised
                        sink.fail(_in_one_line(error))
        finally:
            self.close()


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _report_mirror(name: str, error: Exception) -> None:
    say(
        f"leap-rl: {name} has failed ({_in_one_line(error)}); the run continues without it, and "
        "metrics.jsonl has every row",
        file=sys.stderr,
    )


def open_tracker(
    config: TrackingConfig,
    *,
    run_folder: Path,
    run_config: Mapping[str, object],
    kind: str,
    place: str | None = None,
    rows: int | None = None,
) -> Tracker:
    """Open the configured sinks; a resumed run continues in the same files.

    Args:
        run_folder: A folder on this machine; made if it is missing.
        run_config: The resolved config as plain values, shown with the wandb run.
        kind: The command; wandb's job type.
        place: The run's folder or URL in messages; `run_folder` by default.
        rows: Rows in the run's checkpoints; metrics.jsonl loses later ones, of a lost checkpoint.

    Raises:
        TrackingError: wandb is to be online, and has no key or is refused.
    """
    # Sinks' modules are imported only when used: wandb alone takes most of a second.
    from leap_rl.tracking.jsonl import JsonlSink

    run_folder.mkdir(parents=True, exist_ok=True)
    truth = JsonlSink(run_folder / "metrics.jsonl", keep_rows=rows)
    openers: dict[str, Callable[[], Sink]] = {}
    if config.wandb != "disabled":
        from leap_rl.tracking.wandb import WandbSink

        openers[WandbSink.name] = lambda: WandbSink(
            config,
            run_folder=run_folder,
            run_config=run_config,
            kind=kind,
            place=place or str(run_folder),
        )
    if config.tensorboard:
        from leap_rl.tracking.tensorboard import TensorBoardSink

        openers[TensorBoardSink.name] = lambda: TensorBoardSink(run_folder / "tensorboard")
    mirrors: list[Sink] = []
    for name, opener in openers.items():
        try:
            mirrors.append(opener())
        except TrackingError:
            truth.close()
            raise
        except Exception as error:
            _report_mirror(name, error)
    return Tracker([*mirrors, truth])
