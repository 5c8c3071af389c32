"""The TensorBoard mirror; the only file that imports tensorboardX.

Values are stored as float32, so that the last digits of a count above 2^24 are lost there; the
exact ones are in `metrics.jsonl`.
"""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import scalar

from leap_rl.tracking.metrics import Axis, Row
from leap_rl.tracking.sink import Sink


class TensorBoardSink(Sink):
    """Writes each metric as a scalar at the row's axis value. A resume adds one more event file.

    tensorboardX's own writer has a queue and a thread. When a write fails the thread dies, and
    filling the queue then waits for ever. So a row is written here, in one call.
    """

    name = "TensorBoard"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder in the order of their names.
        opened_before = len(list(folder.glob("events.out.tfevents.*")))
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{opened_before}"
        self._file = open(folder / name, "xb", buffering=0)  # noqa: SIM115
        self._write(Event(wall_time=now, file_version="brain.Event:2"))

    def write(self, row: Row, axis: Axis) -> None:
        """Append the row's metrics, but for the axis itself."""
        summary = Summary()
        for key, value in row.items():
            if key != axis:
                summary.MergeFrom(scalar(key, value))
        self._write(Event(wall_time=time.time(), step=int(row[axis]), summary=summary))

    def close(self) -> None:
        """Close the event file."""
        self._file.close()

    def _write(self, event: Event) -> None:
        """Append a record as TFRecord has it: length, its checksum, contents, their checksum."""
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
        record = length + checksums[0] + data + checksums[1]
        written = self._file.write(record)
        while written < len(record):  # a disk that becomes full takes a part, then refuses
            written += self._file.write(record[written:])


def check_events(content: bytes) -> None:
    """Check the records of an event file.

    Raises:
        ValueError: One is damaged. A last one that a kill has torn is not.
    """
    at = 0
    while at + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        header, data = content[at : at + 8], content[at + 12 : at + 12 + length]
        end = at + 16 + length
        if struct.unpack_from("<I", content, at + 8)[0] != masked_crc32c(header):
            raise ValueError(f"is damaged at byte {at}")
        if end > len(content):
            return  # torn
        if struct.unpack_from("<I", content, end - 4)[0] != masked_crc32c(data):
            raise ValueError(f"is damaged at byte {at}")
        at = end
