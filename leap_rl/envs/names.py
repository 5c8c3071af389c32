"""Names that carry arguments: `NAME@key=value,key=value`, such as `freeway@mode=4,difficulty=1`."""

from __future__ import annotations

from collections.abc import Mapping


def split_name(name: str) -> tuple[str, dict[str, str]]:
    """Split a name from its arguments, by key and in the order given, without blanks.

    Raises:
        ValueError: it is not spelled so, or a key comes twice.
    """
    base, at, rest = name.partition("@")
    arguments: dict[str, str] = {}
    for part in rest.split(",") if at else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (base and key and equals and value):
            raise ValueError(f"{name!r}: must be spelled NAME or NAME@key=value,key=value")
        if key in arguments:
            raise ValueError(f"{name!r}: {key} comes twice; give it once")
        arguments[key] = value
    return base, arguments


def join_name(base: str, arguments: Mapping[str, object]) -> str:
    """Undo `split_name`; without arguments there is no `@`."""
    pairs = ",".join(f"{key}={value}" for key, value in arguments.items())
    return f"{base}@{pairs}" if pairs else base
