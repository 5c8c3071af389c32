"""The TensorBoard mirror; the only file that imports tensorboardX.

Values are stored as float32, so that the last digits of a count above 2^24 are lost there; the
exact ones are in `metrics.jsonl`.
"""

from __future__ import annotations

from pathlib import Path

from tensorboardX import SummaryWriter

from leap_rl.tracking.metrics import Axis, Row
from leap_rl.tracking.sink import Sink


class TensorBoardSink(Sink):
    """Writes each figure as a scalar at the row's axis value. A resume adds one more event file.

    Args:
        folder: where the event files go; made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        # Its file names resolve seconds and it overwrites: a resume within one needs a suffix.
        opened_before = len(list(folder.glob("events.out.tfevents.*")))
        self._writer = SummaryWriter(
            str(folder),
            filename_suffix=f".{opened_before}",
            # It would report to comet.com by itself wherever that client is installed.
            comet_config={"disabled": True},
        )

    def write(self, row: Row, axis: Axis) -> None:
        """Write the row's figures, but for the axis itself, and hand them to the file."""
        for key, value in row.items():
            if key != axis:
                self._writer.add_scalar(key, value, global_step=int(row[axis]))
        self._writer.flush()

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()
