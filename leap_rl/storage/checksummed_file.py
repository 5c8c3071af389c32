"""Files with a checksum of themselves: arrays as safetensors, and a checkpoint's state.json.

safetensors itself checks sizes, not contents. The checksum of arrays covers the header, and the
name, type, shape and bytes of every array.

    {"schema": 2, "number": 12, "sha256": {FILE: SHA-256, ...}, "rows": [...], ..., "checksum": ...}
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from leap_rl.core import plain_json
from leap_rl.storage.dataclass_from_json import is_count

_METADATA = "leap_rl"
"""The metadata's only key: safetensors writes several in any order."""

Arrays = Mapping[str, NDArray[Any]]


class ChecksumError(ValueError):
    """The file is damaged, or `encode_arrays` did not write it."""


def encode_arrays(arrays: Arrays, header: Mapping[str, Any]) -> bytes:
    """Return the content of a file with the arrays and the header, which is stored as JSON."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(header, allow_nan=False, sort_keys=True)
    return save(arrays, {_METADATA: json.dumps({"blake2b": _digest(arrays, text), "header": text})})


def decode_arrays(data: bytes | memoryview) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the header of a file's content; a ChecksumError if it is damaged."""
    data = bytes(data)
    try:
        size = int.from_bytes(data[:8], "little")
        described = plain_json.load(data[8 : 8 + size])["__metadata__"][_METADATA]
        metadata = plain_json.load(described)
        text, digest = metadata["header"], metadata["blake2b"]
        arrays, header = load(data), plain_json.load(text)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ChecksumError(f"it cannot be read: {type(error).__name__}: {reason}") from None
    if not isinstance(text, str) or _digest(arrays, text) != digest:
        raise ChecksumError("it does not hold what was written (its digest is another one)")
    if not isinstance(header, dict):
        raise ChecksumError("its header is no object")
    return arrays, header


def _digest(arrays: Arrays, text: str) -> str:
    # As safe as SHA-256, and several times as fast on processors without SHA instructions.
    digest = hashlib.blake2b(text.encode(), digest_size=32)
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


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
    """Return the state in a state.json; ValueError if it is damaged or another checkpoint's."""
    try:
        state = plain_json.load(content)
    except ValueError as error:
        raise ValueError(f"cannot be read: {error}") from None
    if not isinstance(state, dict) or state.get("schema") != SCHEMA:
        raise ValueError("is not a checkpoint of this version of leap_rl")
    if state.pop(CHECKSUM, None) != checksum(state):
        raise ValueError("is damaged (its checksum is not the one recorded)")
    if state.get("number") != number or not _is_whole(state):
        raise ValueError(f"is not checkpoint {number} of a run")
    for name in state["sha256"]:
        if not _FILE.fullmatch(name):
            raise ValueError(f"names {name!r:.80}, which is no file of a checkpoint")
    for name in state.get("sealed", {}):
        folder, _, file = name.partition("/")
        if folder not in ("curves", "agents") or not _FILE.fullmatch(file):
            raise ValueError(f"names {name!r:.80}, which is no result of a run")
    return state


_FILE = re.compile(r"(?!\.)[^/\0-\x1f\x7f]{1,255}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST = 2**63


def _is_whole(state: Mapping[str, Any]) -> bool:
    """Whether what commands read of a state is of the kinds that they take."""
    rows, slots, carried = state.get("rows"), state.get("slots", []), state.get("carried_over", {})
    return (
        _are_digests(state.get("sha256"))
        and _are_digests(state.get("sealed", {}))
        and isinstance(state.get("fingerprint", ""), str)
        and is_count(state.get("agent_steps", 0))
        and isinstance(rows, list)
        and all(isinstance(row, dict) and _is_row(row) for row in rows)
        and isinstance(slots, list)
        and all(isinstance(slot, dict) and _is_slot(slot) for slot in slots)
        and isinstance(carried, dict)
        and all(is_count(number) and number < state["number"] for number in carried.values())
    )


def _are_digests(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in value.values()
    )


def _is_slot(slot: Mapping[str, Any]) -> bool:
    return (
        isinstance(slot.get("game"), str)
        and is_count(slot.get("attempt"))
        and slot["attempt"] >= 1
        and is_count(slot.get("restarts", 0))
        and isinstance(slot.get("dropped", ""), str)
        and isinstance(slot.get("trainer", ""), str)
        and isinstance(slot.get("processor", ""), str)
        and isinstance(slot.get("cut_off", False), bool)
    )


def _is_row(row: Mapping[str, Any]) -> bool:
    axis, values = row.get("axis"), row.get("values")
    return (
        isinstance(axis, str)
        and isinstance(values, dict)
        and axis in values
        and all(type(value) in (int, float) for value in values.values())
        and all(abs(value) < _LARGEST for value in values.values() if type(value) is int)
    )
