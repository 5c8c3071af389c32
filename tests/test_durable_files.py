from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from leap_rl.durable_files import read_file, write_atomically


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_atomic_write_leaves_the_old_content_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_file(tmp_path / "file") == b"content"
    assert read_file(tmp_path / "file", 3) == b"con"
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match=f"(is no regular file|Is a directory): '{path}'"):
            read_file(path)


def test_a_file_that_cannot_be_written_leaves_no_other_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*file"):
        write_atomically(tmp_path / "file", b"new")
    assert not list(tmp_path.iterdir())
