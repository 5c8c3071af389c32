"""Zip archives of strangers: what they unpack to, and how many entries they have."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from leap_rl.core import zip_files
from leap_rl.core.zip_files import opened_zip, read_entry, unpacked_size

PACKED = [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
NAMED = 1000
"""Bytes of an entry, as a bomb names them."""
MEGABYTE = 2**20


def bomb(method: int, megabytes: int = 600) -> bytes:
    """An archive whose entry unpacks to more than it says."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive, archive.open("policy.pth", "w") as entry:
        for _ in range(megabytes):
            entry.write(bytes(MEGABYTE))
    content = bytearray(file.getvalue())
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = struct.pack("<I", NAMED)
    return bytes(content)


@pytest.mark.parametrize("method", [*PACKED, zipfile.ZIP_DEFLATED])
def test_a_bomb_that_says_that_it_is_none_takes_no_memory(method: int, tmp_path: Path) -> None:
    (tmp_path / "bomb.zip").write_bytes(bomb(method))
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from leap_rl.sharing.foreign import _member\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before, path = peak(), sys.argv[1]\n"
        "try:\n"
        "    _member(path, Path(path).read_bytes())\n"
        "except ValueError as error:\n"
        "    print(error)\n"
        "print(peak() - before)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "bomb.zip")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    said, grown = done.stdout.splitlines()
    assert "bomb.zip: is no archive of stable-baselines3: " in said
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(grown) * unit < 100 * MEGABYTE


@pytest.mark.parametrize("method", PACKED)
def test_what_unpacks_without_limits_is_not_opened(method: int) -> None:
    with pytest.raises(zipfile.BadZipFile, match=r"policy\.pth is packed in another way"):
        opened_zip(bomb(method, 1)).__enter__()


def test_an_archive_has_so_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"{number}", b"abc" * (number + 1))
    with opened_zip(file.getvalue()) as archive:
        assert unpacked_size(archive) == 18
        assert read_entry(archive, "1") == b"abcabc"
    monkeypatch.setattr(zip_files, "MOST", 2)
    with pytest.raises(zipfile.BadZipFile, match="has 3 entries, and may have 2"):
        opened_zip(file.getvalue()).__enter__()


def test_an_entry_whose_bytes_are_others_is_damage() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"abcabcabc")
    content = file.getvalue().replace(b"abcabcabc", b"abcabcabd")
    with opened_zip(content) as archive, pytest.raises(zipfile.BadZipFile, match="Bad CRC-32"):
        read_entry(archive, "a")
