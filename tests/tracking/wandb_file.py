"""Reads wandb's own file format back, for tests: wandb itself offers no reader of offline runs.

A file is a 7-byte header and then 32 KiB blocks of chunks, as in a LevelDB log: CRC-32 (4 bytes),
length (2 bytes), type (1 byte), payload. A record is one FULL chunk, or a FIRST, any MIDDLE and a
LAST one joined; the few bytes at a block's end that cannot hold a chunk's header are padding.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

KEY = "feedfacefeedfacefeedfacefeedfacefeedface"
"""A made-up API key."""

HEADER_BYTES = 7
BLOCK_BYTES = 32 * 1024
CHUNK_HEADER = struct.Struct("<IHB")
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def chunks(content: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, payload) of each chunk, its checksum verified."""
    position = HEADER_BYTES
    while position < len(content):
        room = BLOCK_BYTES - position % BLOCK_BYTES
        if room < CHUNK_HEADER.size:
            position += room
            continue
        checksum, length, kind = CHUNK_HEADER.unpack_from(content, position)
        position += CHUNK_HEADER.size
        payload = content[position : position + length]
        assert zlib.crc32(bytes([kind]) + payload) == checksum, f"damaged at byte {position}"
        position += length
        yield kind, payload


def records(path: Path) -> Iterator[Record]:
    """All records of a `.wandb` file, in order."""
    parts: list[bytes] = []
    for kind, payload in chunks(path.read_bytes()):
        if kind in (FULL, FIRST):
            assert not parts, "a record began inside another"
        parts.append(payload)
        if kind in (FULL, LAST):
            yield Record.FromString(b"".join(parts))
            parts = []


def rows(path: Path) -> list[dict[str, Any]]:
    """The logged rows, without the keys that wandb adds (`_step` and the like)."""
    logged = []
    for record in records(path):
        if record.WhichOneof("record_type") != "history":
            continue
        items = {
            item.key or ".".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        logged.append({key: value for key, value in items.items() if not key.startswith("_")})
    return logged


def run(path: Path) -> tuple[Any, dict[str, Any]]:
    """The run's own record, and the config that it was started with."""
    record = next(r.run for r in records(path) if r.WhichOneof("record_type") == "run")
    config = {
        item.key or ".".join(item.nested_key): json.loads(item.value_json)
        for item in record.config.update
    }
    return record, {key: value for key, value in config.items() if not key.startswith("_")}


def artifacts(path: Path) -> list[tuple[Any, dict[str, Any]]]:
    """The artifacts that are to be uploaded, each with its metadata, in order."""
    found = [r.artifact for r in records(path) if r.WhichOneof("record_type") == "artifact"]
    return [(artifact, json.loads(artifact.metadata or "{}")) for artifact in found]


def media(path: Path) -> dict[str, bytes]:
    """The logged files by name: tables (as JSON), pages, videos."""
    found = {}
    for record in records(path):
        for item in record.history.item:
            name, *parts = item.nested_key or [item.key]
            if parts == ["path"]:
                file = path.parent / "files" / json.loads(item.value_json)
                found[name] = file.read_bytes()
    return found


def files(folder: Path) -> list[Path]:
    """A run's offline files, in the order of their start."""
    return sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda p: p.stat().st_mtime_ns)


def end() -> None:
    """Ends wandb's own process; only then is all that a finished run left to it on disk."""
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()
