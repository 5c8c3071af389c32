"""A checkpoint's state.json: JSON with its own checksum.

{"schema": 2, "number": 12, "sha256": {FILE: SHA-256, ...}, "rows": [...], ..., "checksum": ...}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA = 2
CHECKSUM = "checksum"
"""Key in state.json and config.yaml: SHA-256 of everything else in the file, as canonical JSON."""


def checksum(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain values, in hexadecimal; `none` if JSON cannot hold them."""
    try:
        text = json.dumps(dict(document), sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return "none"  # leap_rl did not write it
    return hashlib.sha256(text.encode()).hexdigest()


def encode_state(number: int, files: Mapping[str, bytes], state: Mapping[str, Any]) -> bytes:
    """Return the content of checkpoint ``number``'s state.json, with its files' checksums."""
    manifest = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    document = {"schema": SCHEMA, "number": number, "sha256": manifest, "rows": [], **state}
    document[CHECKSUM] = checksum(document)
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()


def decode_state(content: bytes, number: int) -> dict[str, Any]:
    """Return checkpoint ``number``'s state from the content of its state.json.

    Raises:
        ValueError: It is damaged, or another checkpoint's.
    """
    try:
        state = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"cannot be read: {error}") from None
    if not isinstance(state, dict) or state.get("schema") != SCHEMA:
        raise ValueError("is not a checkpoint of this version of leap_rl")
    if state.pop(CHECKSUM, None) != checksum(state):
        raise ValueError("is damaged (its checksum is not the one recorded)")
    if state.get("number") != number or not _is_whole(state):
        raise ValueError(f"is not checkpoint {number} of a run")
    for name in state["sha256"]:
        if Path(name).name != name or name in ("", ".."):
            raise ValueError(f"names {name!r}, which is no file of a checkpoint")
    return state


def _is_whole(state: Mapping[str, Any]) -> bool:
    rows, slots = state.get("rows"), state.get("slots", [])
    return (
        isinstance(state.get("sha256"), dict)
        and isinstance(rows, list)
        and all(isinstance(row, dict) and _is_row(row) for row in rows)
        and isinstance(slots, list)
        and all(isinstance(slot, dict) and type(slot.get("attempt")) is int for slot in slots)
    )


def _is_row(row: Mapping[str, Any]) -> bool:
    axis, values = row.get("axis"), row.get("values")
    return (
        isinstance(axis, str)
        and isinstance(values, dict)
        and axis in values
        and all(type(value) in (int, float) for value in values.values())
    )
