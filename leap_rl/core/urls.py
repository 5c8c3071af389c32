"""Addresses of files and folders: which may be opened, and what of them may be shown.

A query is as secret as a password, since a presigned URL gives access to the file. Only an object
store's settings (`?region=eu-west-1`) are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

SCHEMES: Final = ("file", "http", "https", "s3", "gs", "hf")
"""Of the addresses that leap_rl opens; `memory` is for tests. fsspec would take more, and there are
programs among them: reference:// fills in templates, and asks the addresses that they make."""

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,39})://(?P<rest>[^\s'\"`<>]*)")
"""Without the limit of a scheme's length a megabyte of letters takes hours."""
_USER = re.compile(r"(?:[^/?#@:]*:(?!:|\d*(?:[/?#]|$))[^@]*|[^/?#@]*)@")
"""User and password before the host, even if the password has a slash, which URLs forbid."""

MOST: Final = 100
"""Addresses in a word, as of a group of initializations: each is looked through to its end."""

_ADDRESSES: Final = frozenset({"run_dir", "meta.init", "task.data"})
"""Options that are one address; in others a URL may be a part, as in a group of initializations."""

_PLAIN_SETTINGS: Final = frozenset(
    {
        *("region", "scheme", "endpoint_override", "allow_delayed_open", "retry_limit_seconds"),
        *("allow_bucket_creation", "allow_bucket_deletion"),
        "check_directory_existence_before_creation",
    }
)
"""Settings in pyarrow's URLs of object stores."""


def is_url(given: str) -> bool:
    """Whether a place is a URL, not a path."""
    return "://" in given


def check_address(given: str) -> str:
    """Return an address's scheme; `file` for a path.

    Everything that is opened because a config, a command line, a run's folder or a card names it
    is checked by this first.

    Raises:
        ValueError: Another scheme than `SCHEMES`, addresses within one another
            (`zip://a::https://b`), a NUL, a password, or a setting that sends a token elsewhere.
    """
    if "\0" in given:
        raise ValueError(f"{redacted(given)!r}: must hold no NUL")
    plain = re.sub(r"\[[0-9A-Fa-f:.]+\]", "", given)  # an IPv6 host
    scheme, mark, rest = plain.partition("://")
    if "::" in plain or (mark and scheme not in (*SCHEMES, "memory")):
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise ValueError(
            f"{redacted(given)}: must be a path or one address that begins with {known}; leap_rl "
            "opens no others, and none within another (::)"
        )
    if not mark:
        return "file"
    refuse_password(given)
    settings = dict(parse_qsl(rest.partition("?")[2], keep_blank_values=True))
    if scheme == "gs" and (named := sorted({"endpoint_override", "scheme"} & settings.keys())):
        raise ValueError(
            f"{redacted(given)}: {named[0]} would send your token of Google to another server; set "
            "CLOUD_STORAGE_EMULATOR_ENDPOINT in the environment for one of yours"
        )
    return scheme


def local_path(given: str) -> str:
    """Return the path in an address whose scheme is `file`; ValueError for another machine's."""
    if not is_url(given):
        return given
    where = urlsplit(given)
    if where.netloc not in ("", "localhost") or not where.path:
        raise ValueError(
            f"{redacted(given)}: must name something on this machine, as file:///srv/runs/mine"
        )
    return where.path


def file_in(url: str, name: str) -> str:
    """Return the URL of a file in a folder; the folder's settings stay at the end."""
    folder, mark, settings = url.partition("?")
    return f"{folder.rstrip('/')}/{name}{mark}{settings}"


def refuse_password(given: str) -> None:
    """Raise a ValueError for a URL with a user name or password, in it or in a URL within it."""
    for text in (given, unquote(given)):
        if text.count("://") > MOST:
            raise ValueError(f"{redacted(given)}: must hold at most {MOST} addresses")
        for start in re.finditer("://", text):
            if _USER.match(text, start.end()):
                raise ValueError(
                    f"{redacted(given)}: must hold no password or user name; give it to the "
                    "environment instead"
                )


def check_addresses(options: Mapping[str, object]) -> None:
    """Raise a ValueError for an option, by dotted name, that is or lists an address not to open."""
    for name, value in options.items():
        for one in value if isinstance(value, Iterable) and not isinstance(value, str) else [value]:
            if isinstance(one, str) and (is_url(one) or name in _ADDRESSES):
                try:
                    (check_address if name in _ADDRESSES else refuse_password)(one)
                except ValueError as error:
                    raise ValueError(f"{name} = {error}") from None


def redacted(text: str) -> str:
    """Return a text with `...` for what may be secret in its URLs."""
    return _URL.sub(_without_secrets, text)


def _without_secrets(match: re.Match[str]) -> str:
    scheme, rest = match["scheme"], match["rest"]
    if rest.count("://") > MOST:
        return f"{scheme}://..."
    if user := _USER.match(rest):
        rest = f"...@{rest[user.end() :]}"
    if "://" in rest.partition("?")[0]:  # one within another, as zip://a.zip::https://b
        rest = redacted(rest)
    if scheme in ("s3", "gs", "memory", "file"):
        head, mark, query = rest.partition("?")
        keys = {key for key, _ in parse_qsl(query, keep_blank_values=True)}
        secret = mark and (not keys <= _PLAIN_SETTINGS or "@" in unquote(query))
        return f"{scheme}://{head}{'?...' if secret else mark + query}"
    return f"{scheme}://{re.sub(r'[?#].*', '?...', rest)}"
