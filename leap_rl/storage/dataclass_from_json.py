"""Dataclasses from the values of an untrusted or damaged JSON file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def is_count(value: object) -> bool:
    """Return whether a value is a whole number of at least 0, which an int64 holds."""
    return type(value) is int and 0 <= value < 2**63


def _are_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "int": is_count,
    "int | None": lambda value: value is None or is_count(value),
    "float": _is_number,
    "float | None": lambda value: value is None or _is_number(value),
    "str": lambda value: isinstance(value, str),
    "str | None": lambda value: value is None or isinstance(value, str),
    "Mapping[str, float]": _are_numbers,
    "dict[str, float]": _are_numbers,
    "dict[str, int]": lambda value: isinstance(value, dict) and all(map(is_count, value.values())),
    "Mapping[str, Any]": lambda value: isinstance(value, dict),
    "tuple[int, ...]": lambda value: isinstance(value, tuple) and all(map(is_count, value)),
    "tuple[str, ...]": lambda value: (
        isinstance(value, tuple) and all(isinstance(one, str) for one in value)
    ),
    "bool": lambda value: isinstance(value, bool),
    "Row | None": lambda value: value is None or _are_numbers(value),
}
"""Checks by a field's annotation; fields of other types are not checked."""


def dataclass_from_json(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return a dataclass; TypeError if a value is missing, unknown or of another type."""
    for one in fields(kind):  # type: ignore[arg-type]
        check = _CHECKS.get(str(one.type))
        if check is not None and one.name in values and not check(values[one.name]):
            raise TypeError(f"{one.name} = {values[one.name]!r:.80}")
    return kind(**values)
