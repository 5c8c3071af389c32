"""JSON from files that may be damaged, or that others wrote."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

from leap_rl.core.regular_file import LARGEST_TEXT

DEEPEST: Final = 32
"""Lists and objects within one another."""

LONGEST: Final = 20
"""Digits of a whole number: those of 64 bits."""


def load(content: bytes | str, largest: int = LARGEST_TEXT) -> Any:
    """Return the values in a text; numbers are finite.

    Raises:
        ValueError: It is no JSON, is larger than `largest` bytes, is nested more than `DEEPEST`
            deep, or has a number that is too large or none; one line.
    """
    if len(content) > largest:
        raise ValueError(f"has more than {largest:,} bytes")
    try:
        values = json.loads(
            content, parse_int=_integer, parse_float=_number, parse_constant=_refuse
        )
    except RecursionError:
        raise ValueError(f"is nested more than {DEEPEST} deep") from None
    _check_depth(values)
    return values


def _integer(text: str) -> int:
    if len(text) > LONGEST:
        raise ValueError(f"has a number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"has the number {text[:40]}, which is too large")
    return number


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"has the number {text}")


def _check_depth(values: Any) -> None:
    here = [values]
    for _ in range(DEEPEST + 1):
        here = [
            within
            for value in here
            if isinstance(value, dict | list)
            for within in (value.values() if isinstance(value, dict) else value)
        ]
        if not here:
            return
    raise ValueError(f"is nested more than {DEEPEST} deep")
