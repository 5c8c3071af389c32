"""YAML of untrusted configs: scalars, lists and mappings only.

No tag runs or imports anything. Anchors (`&name`, `*name`) are refused, since a few lines of them
can expand to more values than memory holds, and so is deep nesting, since PyYAML and its C library
recurse; so are control characters, and whole numbers that are longer than those of 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from leap_rl.core.regular_file import read_given

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's C loader if there is one: ten times as fast. jsonargparse uses the same."""

LARGEST = 2**20
"""Characters; a config has some thousand."""
DEEPEST = 32
"""Levels of lists and mappings; a config has four."""
LONGEST: Final = 20
"""Digits of a whole number: those of 64 bits."""

_WHOLE = re.compile(r"[-+]?(0b[01_]+|0x[\da-fA-F_]+|\d[\d_:]*)")
"""A whole number, as YAML spells it."""
_CONTROL = re.compile(r"[^\t\n\r\x85\x20-\x7e\xa0-\U0010ffff]")


class NotPlainError(yaml.YAMLError):
    """The text uses features of YAML that no config needs."""


class _Dumper(yaml.SafeDumper):
    """Writes repeated values in full, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


@dataclass
class _Keys:
    """The keys of a mapping, whose events are keys and values in turn."""

    seen: set[str] = field(default_factory=set)
    is_key: bool = True

    def twice(self, node: yaml.NodeEvent) -> str | None:
        """Take the next key or value; returns the key if the mapping has it already."""
        is_key, self.is_key = self.is_key, not self.is_key
        if not is_key or not isinstance(node, yaml.ScalarEvent):
            return None
        if node.value in self.seen:
            return str(node.value)
        self.seen.add(node.value)
        return None


def check(text: str, *, longest: int = LONGEST) -> None:
    """Raise a YAMLError for no YAML, or one that holds what the module's docstring refuses.

    `longest`: characters of a whole number.
    """
    if len(text) > LARGEST:
        raise NotPlainError(f"it has {len(text)} characters; no config needs more than {LARGEST}")
    # The keys so far of each open mapping; None for a list.
    nested: list[_Keys | None] = []
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise NotPlainError(f"{_line(event)}*{event.anchor} refers to an anchor; write it out")
        if isinstance(event, yaml.ScalarEvent):
            _check_scalar(event, longest)
        if isinstance(event, yaml.CollectionEndEvent):
            nested.pop()
        elif isinstance(event, yaml.NodeEvent) and nested and nested[-1] is not None:
            key = nested[-1].twice(event)
            if key is not None:
                raise NotPlainError(
                    f"{_line(event)}{key} is there already; YAML would drop the first"
                )
        if isinstance(event, yaml.CollectionStartEvent):
            nested.append(_Keys() if isinstance(event, yaml.MappingStartEvent) else None)
        if len(nested) > DEEPEST:
            raise NotPlainError(f"lists and mappings are nested more than {DEEPEST} deep")


def _check_scalar(event: yaml.ScalarEvent, longest: int) -> None:
    """Refuse what would be an error of its own wherever it is used: in a name, as a float."""
    if control := _CONTROL.search(event.value):
        raise NotPlainError(f"{_line(event)}a text holds the control character {control[0]!r}")
    if event.implicit[0] and len(event.value) > longest and _WHOLE.fullmatch(event.value):
        raise NotPlainError(f"{_line(event)}a number has {len(event.value)} digits")


def _line(event: yaml.Event) -> str:
    return "" if event.start_mark is None else f"line {event.start_mark.line + 1}: "


def load(text: str) -> Any:
    """Return the values in a text; a yaml.YAMLError if it is no plain YAML."""
    check(text)
    return yaml.load(text, Loader=_LOADER)


def lines(text: str) -> dict[str, int]:
    """Return the line, from 1, of each key of a plain mapping, and of mappings in it, dotted."""
    found: dict[str, int] = {}

    def note(node: yaml.Node | None, prefix: str) -> None:
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            found[f"{prefix}{key.value}"] = key.start_mark.line + 1
            note(value, f"{prefix}{key.value}.")

    note(yaml.compose(text, Loader=_LOADER), "")
    return found


def dump(document: Mapping[str, Any]) -> str:
    """Return the text of a mapping of plain values, in its order."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def text_of(path: Path) -> str:
    """Return the text in a file that a user names; OSError, UnicodeDecodeError if it is none."""
    return read_given(path, 4 * LARGEST).decode()


def options_in(path: Path) -> Mapping[str, Any]:
    """Return the options in a config's file; ValueError names the file and the line."""
    options: Any = None
    try:
        options = load(text_of(path))
        problem = None if isinstance(options, Mapping) else "must hold a mapping of options"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        problem = "is no text"
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        problem = f"{line}is no YAML: {error.problem}"
    except yaml.YAMLError as error:
        problem = str(error)
    if problem is not None:
        raise ValueError(f"config = {path}: {problem}")
    loaded: Mapping[str, Any] = options
    return loaded
