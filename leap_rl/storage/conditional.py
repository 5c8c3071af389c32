"""Writes to an object store that count only if the object is still what the writer knows.

A write that is under way when another driver takes the run over may land after that driver's own:
nothing that the writer looks at before can keep it from that, but the store can. S3 compares the
object's ETag (`If-Match`, `If-None-Match`). pyarrow does not send that, so it takes botocore, which
leap_rl does not require. Without it nothing is compared, nor on Google Cloud Storage, whose
generation conditions pyarrow does not send either: there a late write lands. The tests of run
folders show what that costs.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

REFUSED: Final = ("PreconditionFailed", "NoSuchKey", "ConditionalRequestConflict", "412", "409")
"""Codes of S3: the object changed, is gone, or is being written by another."""

ATTEMPT_S: Final = 5.0
"""For so long one attempt may take to connect or to answer; there are two."""


class ChangedError(Exception):
    """The object is another one than the writer knows; nothing was written."""


class Conditional(Protocol):
    """Compares and writes; errors of the store are OSErrors."""

    def tag(self, path: str) -> str | None:
        """Return what changes with an object's content; none where there is no object."""

    def write(self, path: str, content: bytes, expected: str | None) -> str:
        """Write an object if its tag is the expected one, and return its new tag.

        Raises:
            ChangedError: It is another.
        """


def conditional_writes(scheme: str, query: str, files: Any) -> Conditional | None:
    """Return what compares and writes in a store, or none where that cannot be had.

    Args:
        scheme: Of its URLs.
        query: Of its URL: pyarrow's settings.
        files: Its file system.
    """
    if scheme == "memory":
        return _InMemory(files)
    if scheme == "s3" and find_spec("botocore") is not None:
        return _InS3(dict(parse_qsl(query)))
    return None


class _InMemory:
    """That of this process, which has one thread at a time between two of Python's instructions."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def tag(self, path: str) -> str | None:
        try:
            with self._files.open_input_stream(path) as stream:
                return hashlib.sha256(stream.read()).hexdigest()
        except FileNotFoundError:
            return None

    def write(self, path: str, content: bytes, expected: str | None) -> str:
        if self.tag(path) != expected:
            raise ChangedError(path)
        with self._files.open_output_stream(path) as stream:
            stream.write(content)
        return hashlib.sha256(content).hexdigest()


class _InS3:
    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self._made: Any = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            from botocore.config import Config
            from botocore.session import get_session

            session = get_session()
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
            self._made = session.create_client(
                "s3", endpoint_url=at, region_name=region, config=config
            )
        return self._made

    def tag(self, path: str) -> str | None:
        bucket, _, key = path.partition("/")
        answer = self._ask("head_object", Bucket=bucket, Key=key)
        return None if answer is None else str(answer["ETag"])

    def write(self, path: str, content: bytes, expected: str | None) -> str:
        bucket, _, key = path.partition("/")
        condition = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected}
        answer = self._ask("put_object", Bucket=bucket, Key=key, Body=content, **condition)
        if answer is None:
            raise ChangedError(path)
        return str(answer["ETag"])

    def _ask(self, what: str, **options: Any) -> Any:
        """Return the answer; none where the object is not what it should be, or not there."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, what)(**options)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in (*REFUSED, "404"):
                return None
            raise OSError(str(error)) from None
        except BotoCoreError as error:
            raise OSError(str(error)) from None
