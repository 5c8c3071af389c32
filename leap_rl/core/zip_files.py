"""Zip archives that others may have made: how much they unpack to, only they themselves say.

A few kilobytes of bzip2 or LZMA unpack to gigabytes in a single call of `zipfile`, whatever size
the archive names; of deflate it unpacks no more than it is asked for.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MOST: Final = 2**16
"""Entries of an archive; Omniglot's has 20 thousand. Each takes half a kilobyte once it is open."""

_ENTRY: Final = b"PK\x01\x02"
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextmanager
def opened_zip(data: bytes) -> Iterator[zipfile.ZipFile]:
    """Open an archive to be read by `read_entry`; BadZipFile if it is none that is read here."""
    if (count := data.count(_ENTRY)) > MOST:
        raise zipfile.BadZipFile(f"has {count:,} entries, and may have {MOST:,}")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for one in archive.infolist():
            if one.compress_type not in _METHODS:
                raise zipfile.BadZipFile(f"{one.filename} is packed in another way than deflate")
        yield archive


def unpacked_size(archive: zipfile.ZipFile) -> int:
    """Return the bytes of all entries, as the archive names them."""
    return sum(one.file_size for one in archive.infolist())


def read_entry(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return an entry's content, of which no more is unpacked than the archive names."""
    with archive.open(name) as entry:
        return entry.read(archive.getinfo(name).file_size)
