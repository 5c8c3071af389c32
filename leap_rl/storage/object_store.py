"""An object store as a folder of files: S3, Google Cloud Storage, or this process's memory.

Writes are atomic and at once visible to every reader, as both stores promise. There are no renames
and no locks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from leap_rl.core.regular_file import LARGEST, read_given
from leap_rl.core.urls import check_address, local_path, redacted

SCHEMES: Final = ("s3", "gs", "memory")
"""Besides file://, which is a path."""

REFUSED: Final = ("PreconditionFailed", "NoSuchKey", "ConditionalRequestConflict", "412", "409")
"""S3's error codes for an object that changed, is gone, or is being written by another client."""

ATTEMPT_S: Final = 5.0
"""Timeout of each of botocore's two attempts to connect, and to get an answer."""

RETRY_S: Final = 10.0
"""How long Google's client retries a failed request; S3's takes some six seconds."""

PART: Final = 2**22
"""Bytes of a download that are asked for at once."""


class StoreError(OSError):
    """An object store could not be reached, or refused a request; one line."""


class ChangedError(Exception):
    """The object is not the one that the writer expected; nothing was written."""


class Version(NamedTuple):
    """Changes with an object's content."""

    size: int
    changed_ns: int | None
    """Unix time; none if the store does not report it."""


class ObjectStore:
    """The objects below a URL, by their names relative to it.

    Credentials come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`,
    `GOOGLE_APPLICATION_CREDENTIALS`), the files of each store's programs, or the machine's role.
    All methods raise a StoreError if the store cannot be reached or refuses. ValueError: the URL is
    not such as `s3://bucket/runs/mine`, or contains a password.
    """

    def __init__(self, url: str) -> None:
        self._files, self._root = _open(url)
        self.url = url.rstrip("/")
        self._in_memory = url.startswith("memory://")
        self._s3: _ConditionalS3 | None = None
        if url.startswith("s3://") and find_spec("botocore") is not None:
            self._s3 = _ConditionalS3(dict(parse_qsl(url.partition("?")[2])))

    def versions(self, folder: str = "") -> dict[str, Version]:
        """Return the versions of all plain names, or of those below a folder."""
        from pyarrow import fs

        where = self._path(folder) if folder else self._root
        everything = fs.FileSelector(where, recursive=True, allow_not_found=True)
        with self._telling("listed"):
            found = self._files.get_file_info(everything)
        objects = [one for one in found if one.type == fs.FileType.File]
        named = {one.path[len(self._root) :].lstrip("/"): one for one in objects}
        return {
            name: Version(one.size, one.mtime_ns) for name, one in named.items() if is_plain(name)
        }

    def read(self, name: str) -> bytes | None:
        """Return an object's content; None if it does not exist."""
        with self._telling(f"read ({name})"):
            try:
                with self._files.open_input_stream(self._path(name)) as stream:
                    return _limited(stream, f"{self.url}: {name}")
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        with (
            self._telling(f"written to ({name})"),
            self._files.open_output_stream(self._path(name)) as stream,
        ):
            stream.write(content)

    @property
    def compares(self) -> bool:
        return self._in_memory or self._s3 is not None

    def tag(self, name: str) -> str | None:
        """Return an object's tag for `replace`; None if there is no object or no comparison."""
        if not self.compares:
            return None
        if self._s3 is None:
            content = self.read(name)
            return None if content is None else hashlib.sha256(content).hexdigest()
        with self._telling(f"read ({name})"):
            return self._s3.tag(self._path(name))

    def replace(self, name: str, content: bytes, expected: str | None) -> str | None:
        """Write an object and return its new tag; ChangedError, and no write, if it had another."""
        if not self.compares:
            self.write(name, content)
            return None
        if self._s3 is not None:
            with self._telling(f"written to ({name})"):
                return self._s3.write(self._path(name), content, expected)
        if self.tag(name) != expected:
            raise ChangedError(name)
        self.write(name, content)
        return self.tag(name)

    def remove(self, name: str) -> None:
        with self._telling(f"written to ({name})"), suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if self._root else name

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = " ".join(str(error).split())
            raise StoreError(f"{self.url}: cannot be {what}: {reason}") from None


class _ConditionalS3:
    """Conditional writes to S3: only if the object's ETag is the expected one.

    A write that is in flight when another driver takes the run over may land after that driver's
    own; only the store can refuse it. pyarrow sends neither S3's conditions (`If-Match`,
    `If-None-Match`) nor Google's, so this uses botocore, which leap_rl does not require. Raises
    OSErrors.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    @cached_property
    def _client(self) -> Any:
        from botocore.config import Config
        from botocore.session import get_session

        at = self._settings.get("endpoint_override")
        if at is not None and "://" not in at:
            at = f"{self._settings.get('scheme', 'https')}://{at}"
        config = Config(
            connect_timeout=ATTEMPT_S,
            read_timeout=ATTEMPT_S,
            retries={"total_max_attempts": 2},
            s3={"addressing_style": "auto" if at is None else "path"},
        )
        region = self._settings.get("region")
        return get_session().create_client("s3", endpoint_url=at, region_name=region, config=config)

    def tag(self, path: str) -> str | None:
        answer = self._ask("head_object", path)
        return None if answer is None else str(answer["ETag"])

    def write(self, path: str, content: bytes, expected: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected}
        answer = self._ask("put_object", path, Body=content, **condition)
        if answer is None:
            raise ChangedError(path)
        return str(answer["ETag"])

    def _ask(self, what: str, path: str, **options: Any) -> Any:
        """Return the answer; None if the condition fails or the object does not exist."""
        from botocore.exceptions import BotoCoreError, ClientError

        bucket, _, key = path.partition("/")
        try:
            return getattr(self._client, what)(Bucket=bucket, Key=key, **options)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in (*REFUSED, "404"):
                return None
            raise OSError(str(error)) from None
        except BotoCoreError as error:
            raise OSError(str(error)) from None


def read_file(given: str) -> bytes:
    """Return the content of a file of parameters, at a path, in an object store, or on the web.

    OSError, ValueError, ImportError: it cannot be read, is too large, or no address to open.
    """
    scheme = check_address(given)
    if scheme == "file":
        return read_given(local_path(given), LARGEST)
    if scheme in ("http", "https"):
        return _downloaded(given, scheme)
    if scheme not in SCHEMES:
        raise ValueError(f"{redacted(given)}: must name a file")
    path, mark, settings = given.partition("?")
    folder, _, name = path.rpartition("/")
    content = ObjectStore(f"{folder}{mark}{settings}").read(name)
    if content is None:
        raise FileNotFoundError(f"{redacted(given)}: is not there")
    return content


def _downloaded(url: str, scheme: str) -> bytes:
    import fsspec

    # Not fsspec.open, which reads more into an address than where it leads.
    with fsspec.filesystem(scheme).open(url, "rb") as file:
        return _limited(file, url)


def _limited(stream: Any, url: str) -> bytes:
    content = bytearray()
    while part := stream.read(PART):
        content += part
        if len(content) > LARGEST:
            raise OSError(f"{redacted(url)}: is larger than {LARGEST:,} bytes")
    return bytes(content)


def is_plain(name: str) -> bool:
    """Whether a relative name stays in its folder and has no hidden part."""
    path = PurePosixPath(name)
    hidden = any(part.startswith(".") for part in path.parts)
    return bool(name) and not path.is_absolute() and not hidden and "\0" not in name


def _open(url: str) -> tuple[Any, str]:
    check_address(url)
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        known = ", ".join(f"{one}://" for one in (*SCHEMES, "file"))
        raise ValueError(f"{redacted(url)}: must be a path, or begin with one of {known}")
    if not rest.split("?")[0].strip("/"):
        raise ValueError(f"{url}: must name a bucket and a folder, such as {scheme}://bucket/mine")
    from pyarrow import fs

    if scheme == "memory":
        import fsspec

        memory = fs.FSSpecHandler(fsspec.filesystem("memory"))
        return fs.PyFileSystem(memory), "/" + rest.strip("/")
    # Delayed open: one S3 request for a small object instead of three. Google's client would retry
    # for over four minutes, after which another driver may have the run.
    option = "allow_delayed_open=true" if scheme == "s3" else f"retry_limit_seconds={RETRY_S:g}"
    full = url.rstrip("/") + ("&" if "?" in rest else "?") + option
    try:
        files, root = fs.FileSystem.from_uri(full)
    except (ValueError, OSError) as error:  # pyarrow's own errors are ValueErrors
        kind = ValueError if isinstance(error, ValueError) else StoreError
        raise kind(f"{redacted(url)}: {' '.join(str(error).split())}") from None
    return files, root.rstrip("/")
