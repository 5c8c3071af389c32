"""Arrays and a header in a safetensors file with a checksum.

safetensors itself checks sizes, not contents. The checksum covers the header, and the name, type,
shape and bytes of every array.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

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
    """Return the arrays and the header of a file's content.

    Raises:
        ChecksumError: It is torn or damaged, or `encode_arrays` did not write it.
    """
    data = bytes(data)
    try:
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_METADATA])
        text, digest = metadata["header"], metadata["blake2b"]
        arrays = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ChecksumError(f"it cannot be read: {type(error).__name__}: {reason}") from None
    if not isinstance(text, str) or _digest(arrays, text) != digest:
        raise ChecksumError("it does not hold what was written (its digest is another one)")
    return arrays, json.loads(text)


def _digest(arrays: Arrays, text: str) -> str:
    # As safe as SHA-256, and several times as fast on processors without SHA instructions.
    digest = hashlib.blake2b(text.encode(), digest_size=32)
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
