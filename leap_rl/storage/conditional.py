"""Writes to S3 that count only if the object is still the one that the writer knows.

A write that is under way when another driver takes the run over may land after that driver's own:
only the store can refuse it. S3 compares the object's ETag (`If-Match`, `If-None-Match`), but
pyarrow does not send it, nor Google's generation conditions. So this takes botocore, which leap_rl
does not require.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl

REFUSED: Final = ("PreconditionFailed", "NoSuchKey", "ConditionalRequestConflict", "412", "409")
"""Codes of S3: the object changed, is gone, or is being written by another."""

ATTEMPT_S: Final = 5.0
"""For so long one attempt may take to connect or to answer; there are two."""


class ChangedError(Exception):
    """The object is another one than the writer knows; nothing was written."""


class ConditionalS3:
    """Compares and writes objects; errors of the store are OSErrors.

    Args:
        query: Of the store's URL: pyarrow's settings.
    """

    def __init__(self, query: str) -> None:
        self._settings = dict(parse_qsl(query))

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
        """Return what changes with an object's content; none where there is no object."""
        answer = self._ask("head_object", path)
        return None if answer is None else str(answer["ETag"])

    def write(self, path: str, content: bytes, expected: str | None) -> str:
        """Write an object if its tag is the expected one, and return its new tag.

        Raises:
            ChangedError: It has another tag.
        """
        condition = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected}
        answer = self._ask("put_object", path, Body=content, **condition)
        if answer is None:
            raise ChangedError(path)
        return str(answer["ETag"])

    def _ask(self, what: str, path: str, **options: Any) -> Any:
        """Return the answer; none where the object is not what it should be, or not there."""
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
