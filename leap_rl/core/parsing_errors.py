"""What jsonargparse says of wrong options, in our words: a line, and the option that was meant."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

from jsonargparse import ArgumentParser

_WORDS = {"None": "null", "True": "true", "False": "false"}
"""Values as YAML spells them."""

_TYPES = {
    "<class 'int'>": "a whole number",
    "<class 'float'>": "a number",
    "<class 'bool'>": "true or false",
    "<class 'str'>": "a text",
    "<class 'list'>": "a list",
    "<class 'tuple'>": "a list",
    "<class 'dict'>": "a mapping",
    "<class 'NoneType'>": "null",
}

_OTHERS_WORDS: Final = {
    "learning_rate": "lr",
    "outer_lr": "meta_lr",
    "ent_coef": "entropy_coefficient",
    "vf_coef": "value_coefficient",
    "n_envs": "num_envs",
    "n_steps": "unroll_length",
    "total_timesteps": "agent_steps",
    "env": "games",
    "envs": "games",
    "env_id": "games",
}
"""What other libraries call an option, and its name here."""


def one_line(message: str, parser: ArgumentParser) -> str:
    """Return what is wrong with an option, in a line that names it and what it may be."""
    if match := re.match(r'Parser key "(.+?)":\s+Expected an? (.+?)\. Got value: (.*)', message):
        return f"{match[1]} = {in_yaml(match[3])}: must be {_type_name(match[2])}"
    if match := re.match(
        r'Parser key "(.+?)":\s+Does not validate.+?Errors:(.+)Given value: (.*)',
        message,
        re.DOTALL,
    ):
        found = re.findall(r"- Expected an? (.+?)(\. Got value.*)?$", match[2], re.MULTILINE)
        # Of a list that was given, what is found wrong is one of its values.
        listed = match[3].startswith("[")
        kinds = [
            f"a list (each {_type_name(kind)})" if listed and value else _type_name(kind)
            for kind, value in found
        ]
        return f"{match[1]} = {in_yaml(match[3])}: must be {' or '.join(kinds)}"
    if match := re.match(r"Parser key \"(.+?)\":\s+Unable to load config '(.*?)'", message):
        return f"{match[1]} = {match[2]}: must be a mapping of options"
    if match := re.match(r"Key must be a string, got: (.*)\.", message):
        return f"{in_yaml(match[1])}: no such option; the names of options are texts"
    if match := re.match(r"Importing '(.+?)' is not allowed", message):
        return f"class_path = {match[1]}: a config names options, never classes"
    for pattern in (
        r"Group '(?P<group>.+?)' does not accept option '(?P<name>.+?)'",
        r"Option '(?P<name>.+?)' is not accepted",
        r"No action for key \"(?P<name>.+?)\" to set its default",
        r"unrecognized arguments: -*(?P<name>[^\s=]+)",
    ):
        if match := re.match(pattern, message):
            parts = match.groupdict()
            name = ".".join(part for part in (parts.get("group"), parts["name"]) if part)
            return f"{name}: no such option{_suggestion(name, parser)} (--help lists all)"
    return " ".join(message.split())


def in_yaml(value: object) -> str:
    """Return a value as YAML spells it."""
    return _WORDS.get(str(value), str(value))


def _type_name(kind: str) -> str:
    if match := re.fullmatch(r"typing\.Literal\[(.+)\]", kind.strip()):
        choices = [choice.strip().strip("'") for choice in match[1].split(",")]
        return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    return _TYPES.get(kind.strip(), kind.strip())


def _suggestion(name: str, parser: ArgumentParser) -> str:
    known = [action.dest for action in parser._actions]
    group, _, word = name.rpartition(".")
    word = _OTHERS_WORDS.get(word, word)
    meant = [one for one in known if one.rpartition(".")[2] == word]
    close = get_close_matches(f"{group}.{word}", meant, n=1, cutoff=0.0)
    close = close or get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
