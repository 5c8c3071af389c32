from __future__ import annotations

import errno
import json
import os
import pickle
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from leap_rl.core.regular_file import read_regular
from leap_rl.storage.checksummed_file import ChecksumError, decode_arrays, encode_arrays
from leap_rl.storage.durable_files import (
    LEFT_S,
    remove,
    remove_leftovers,
    write_atomically,
    write_folder,
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyboardInterrupt(), "^$"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device: .*/file"),
    ],
)
def test_an_atomic_write_leaves_the_old_content_or_the_new_and_no_other_file(
    error: BaseException, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise error

    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")  # a root may be reached by a link
    path = tmp_path / "root/folder/file"
    write_atomically(path, b"old", root=tmp_path / "root")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(type(error), match=message):
            write_atomically(path, b"new", root=tmp_path / "root")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]
    write_atomically(path, b"new", root=tmp_path / "root")
    assert (tmp_path / "real/folder/file").read_bytes() == b"new"


@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_regular(tmp_path / "file") == b"content"
    with pytest.raises(OSError, match="is larger than 3 bytes"):
        read_regular(tmp_path / "file", 3)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match=f"(is no regular file|Is a directory): '{path}'"):
            read_regular(path)


def test_two_writers_tear_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    whole = [bytes([number]) * 20_000 for number in range(2)]
    write_atomically(path, whole[0], synced=False)
    until_s, errors = time.monotonic() + 0.5, []

    def write(content: bytes) -> None:
        try:
            while time.monotonic() < until_s:
                write_atomically(path, content, synced=False)
        except OSError as error:  # the other one renamed what this one was writing
            errors.append(error)

    writers = [threading.Thread(target=write, args=(content,)) for content in whole]
    for writer in writers:
        writer.start()
    reads = 0
    while time.monotonic() < until_s:
        assert path.read_bytes() in whole
        reads += 1
    for writer in writers:
        writer.join()
    assert not errors
    assert reads > 10
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["link/file", "link/folder/file", "folder/../../out/file"])
def test_no_link_below_the_root_is_followed(name: str, tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    (root / "folder").mkdir(parents=True)
    (out / "folder").mkdir(parents=True)
    for path in (out / "file", out / "folder/file"):
        path.write_bytes(b"precious")
    (root / "link").symlink_to(out)
    for change in (
        lambda path: write_atomically(path, b"new", root=root),
        lambda path: write_folder(path, {"file": b"new"}, root=root),
        lambda path: remove(path, root=root),
        lambda path: remove(path.parent / "file", root=root),
    ):
        with pytest.raises(OSError, match=r"is a symbolic link|leads out of the folder"):
            change(root / name)
    assert (out / "file").read_bytes() == (out / "folder/file").read_bytes() == b"precious"
    remove(root / "link", root=root)  # itself, and nothing through it
    assert (out / "file").exists()
    assert not (root / "link").exists()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_what_cannot_be_removed_is_said_with_its_cause(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlink(name: str, *, dir_fd: int) -> None:
        raise OSError(number, os.strerror(number), name)

    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(OSError, match=r"/file'$") as raised:
        remove(tmp_path / "file", root=tmp_path)
    assert raised.value.errno == number


def test_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    old, new = ".000003.0123456789abcdef.tmp", ".file.0123456789abcdef.tmp"
    (tmp_path / "checkpoints" / old).mkdir(parents=True)
    (tmp_path / "checkpoints" / old / "state.json").write_text("half")
    for name in (new, "file", ".file.tmp"):
        (tmp_path / name).write_text("half")
    then = time.time() - LEFT_S - 1
    for path in tmp_path.rglob("*"):
        if path.name != new:
            os.utime(path, (then, then))
    remove_leftovers(tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert names == {"checkpoints", "file", ".file.tmp", new}  # somebody may be writing the last


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
