"""YAML as configs hold it, from whoever wrote them: scalars, lists and mappings, written out.

No tag makes anything be run or imported. Nothing is referred to by an anchor (`&name`, `*name`), of
which some lines can stand for more values than memory holds, and nesting is shallow, since PyYAML
and its C library recurse.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def check(text: str) -> None:
    """Refuse what is not to be loaded.

    Raises:
        NotPlainError: It is too long, too deep or uses an anchor.
        yaml.YAMLError: It is no YAML.
    """
    if len(text) > LARGEST:
        raise NotPlainError(f"it has {len(text)} characters; no config needs more than {LARGEST}")
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            where = "" if event.start_mark is None else f"line {event.start_mark.line + 1}: "
            raise NotPlainError(f"{where}*{event.anchor} refers to an anchor; write it out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise NotPlainError(f"lists and mappings are nested more than {DEEPEST} deep")


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
