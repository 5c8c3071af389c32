"""The TensorBoard mirror; the only file that imports tensorboardX.

Values are float32, which loses the last digits of counts above 2^24; `metrics.jsonl` is exact.
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
    """Writes each metric as a scalar at the row's axis value. A resume adds an event file.

    Rows are written here in one call: when a write fails, the thread of tensorboardX's writer dies,
    and its queue then blocks forever.
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
        summary = Summary()
        for key, value in row.items():
            if key != axis:
                summary.MergeFrom(scalar(key, value))
        self._write(Event(wall_time=time.time(), step=int(row[axis]), summary=summary))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: Event) -> None:
        """Append a TFRecord: length, its checksum, contents, their checksum."""
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
        record = length + checksums[0] + data + checksums[1]
        written = self._file.write(record)
        while written < len(record):  # a disk that becomes full writes a part, then fails
            written += self._file.write(record[written:])


def check_events(content: bytes) -> None:
    """Raise a ValueError for a damaged record of an event file, except a torn last one."""
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
