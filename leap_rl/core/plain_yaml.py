"""YAML as configs hold it, from whoever wrote them: scalars, lists and mappings, written out.

No tag makes anything be run or imported. Nothing is referred to by an anchor (`&name`, `*name`), of
which some lines can stand for more values than memory holds, and nesting is shallow, since PyYAML
and its C library recurse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML with its C library, where there is one: ten times as fast. jsonargparse takes the same."""

LARGEST = 2**20
"""Characters; a config has some thousand."""

DEEPEST = 32
"""Levels of lists and mappings; a config has four."""


class NotPlainError(yaml.YAMLError):
    """The text is YAML, or might be, and more than a config needs."""


class _Dumper(yaml.SafeDumper):
    """Writes a value out wherever it occurs."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


@dataclass
class _Keys:
    """The keys of a mapping whose keys and values come in turn."""

    seen: set[str] = field(default_factory=set)
    is_key: bool = True

    def twice(self, node: yaml.NodeEvent) -> str | None:
        """Take the next key or value; returns a key that is there already."""
        is_key, self.is_key = self.is_key, not self.is_key
        if not is_key or not isinstance(node, yaml.ScalarEvent):
            return None
        if node.value in self.seen:
            return str(node.value)
        self.seen.add(node.value)
        return None


def check(text: str) -> None:
    """Refuse what is not to be loaded.

    Raises:
        NotPlainError: It is too long, too deep, uses an anchor, or has a key twice.
        yaml.YAMLError: It is no YAML.
    """
    if len(text) > LARGEST:
        raise NotPlainError(f"it has {len(text)} characters; no config needs more than {LARGEST}")
    # Of each open mapping its keys so far; none of a list.
    nested: list[_Keys | None] = []
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise NotPlainError(f"{_line(event)}*{event.anchor} refers to an anchor; write it out")
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


def _line(event: yaml.Event) -> str:
    return "" if event.start_mark is None else f"line {event.start_mark.line + 1}: "


def load(text: str) -> Any:
    """Return the values in a text.

    Raises:
        yaml.YAMLError: It is no plain YAML.
    """
    check(text)
    return yaml.load(text, Loader=_LOADER)


def dump(document: Mapping[str, Any]) -> str:
    """Return the text of a mapping of plain values, in its order."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
