"""URLs that are given for files and folders: no password in them, and no secret shown or kept.

Whoever has a presigned URL may read what it names, so a query is as secret as a password. That of
an object store's folder holds settings (`?region=eu-west-1`), which are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>[^\s'\"`<>]*)")
_USER = re.compile(r"^(?:[^/?#@:]*:(?!:|\d*(?:[/?#]|$))[^@]*|[^/?#@]*)@")
"""What stands before the host: also a password with a slash in it, which no URL may have."""

_PLAIN_SETTINGS: Final = frozenset(
    {
        *("region", "scheme", "endpoint_override", "allow_delayed_open", "retry_limit_seconds"),
        *(
            "allow_bucket_creation",
            "allow_bucket_deletion",
            "check_directory_existence_before_creation",
        ),
    }
)
"""Of pyarrow's URLs of object stores."""


def is_url(given: str) -> bool:
    """Whether a place is said as a URL, and not as a path."""
    return "://" in given


def file_in(url: str, name: str) -> str:
    """Return the URL of a file in a folder, whose settings stay at the end."""
    folder, mark, settings = url.partition("?")
    return f"{folder.rstrip('/')}/{name}{mark}{settings}"


def refuse_password(given: str) -> None:
    """Refuse a URL with a user name or a password, in it or in a URL within it.

    Raises:
        ValueError: There is one; the message does not say it.
    """
    for text in (given, unquote(given)):
        for start in re.finditer("://", text):
            if _USER.match(text[start.end() :]):
                raise ValueError(
                    f"{redacted(given)}: must hold no password or user name; give it to the "
                    "environment instead"
                )


def refuse_passwords(options: Mapping[str, object]) -> None:
    """Refuse options, by dotted name, of which one is a URL with a password, or a list with one.

    Raises:
        ValueError: One is; the message names it.
    """
    for name, value in options.items():
        for one in value if isinstance(value, Iterable) and not isinstance(value, str) else [value]:
            if isinstance(one, str) and is_url(one):
                try:
                    refuse_password(one)
                except ValueError as error:
                    raise ValueError(f"{name} = {error}") from None


def redacted(text: str) -> str:
    """Return a text with `...` in the place of what may be secret in the URLs that it holds."""
    return _URL.sub(_without_secrets, text)


def _without_secrets(match: re.Match[str]) -> str:
    scheme, rest = match["scheme"], match["rest"]
    rest = _USER.sub("...@", rest)
    if "://" in rest.partition("?")[0]:  # one within another, as zip://a.zip::https://b
        rest = redacted(rest)
    if scheme in ("s3", "gs", "memory", "file"):
        head, mark, query = rest.partition("?")
        keys = {key for key, _ in parse_qsl(query, keep_blank_values=True)}
        secret = mark and (not keys <= _PLAIN_SETTINGS or "@" in unquote(query))
        return f"{scheme}://{head}{'?...' if secret else mark + query}"
    return f"{scheme}://{re.sub(r'[?#].*', '?...', rest)}"
