from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from leap_rl.storage.checksummed_file import ChecksumError, decode_arrays, encode_arrays

ARRAYS = {
    "empty": np.zeros(0, dtype=np.float32),
    "scalar": np.array(3.5),
    "flags": np.array([True, False]),
    "words": np.arange(6, dtype=np.uint64).reshape(2, 3),
    "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    "bytes": np.arange(9, dtype=np.uint8),
}
HEADER = {"text": "ä", "list": [1, 2.5, None], "nested": {"a": True}}


def test_what_is_written_comes_back() -> None:
    arrays, header = decode_arrays(encode_arrays(ARRAYS, HEADER))
    assert header == HEADER
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(arrays[name], array)
    assert decode_arrays(encode_arrays({}, {})) == ({}, {})


def test_equal_contents_are_equal_bytes() -> None:
    turned = dict(reversed(list(ARRAYS.items())))
    assert encode_arrays(ARRAYS, HEADER) == encode_arrays(
        turned, dict(reversed(list(HEADER.items())))
    )


def test_any_changed_byte_is_told_or_changes_nothing_and_so_is_a_torn_file() -> None:
    whole = encode_arrays(ARRAYS, HEADER)
    expected, _ = decode_arrays(whole)
    told = 0
    for place in range(len(whole)):
        for flip in (1, 0x20, 0x80):
            data = bytearray(whole)
            data[place] ^= flip
            try:
                arrays, header = decode_arrays(bytes(data))
            except ChecksumError:
                told += 1
                continue
            # A space of JSON's that became another kind of space.
            assert header == HEADER
            assert all(np.array_equal(arrays[name], expected[name]) for name in expected)
    assert told > 2.9 * len(whole)
    for length in range(len(whole)):
        with pytest.raises(ChecksumError):
            decode_arrays(whole[:length])


def lying_about_sizes() -> bytes:
    whole = encode_arrays({"x": np.zeros(4, dtype=np.float32)}, {})
    size = int.from_bytes(whole[:8], "little")
    head = json.loads(whole[8 : 8 + size])
    head["x"]["shape"], head["x"]["data_offsets"] = [2**40], [0, 2**42]
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + whole[8 + size :]


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"a": 1}),
        (2**62).to_bytes(8, "little") + b"{}",
        (8).to_bytes(8, "little") + b"[[[[[[[[",
        (2).to_bytes(8, "little") + b"{}",
        (20).to_bytes(8, "little") + b'{"__metadata__":null}',
        b"[" * 100_000,
        lying_about_sizes(),
    ],
)
def test_what_is_no_such_file_is_told(data: bytes) -> None:
    with pytest.raises(ChecksumError):
        decode_arrays(data)
