"""Make docs/configuration.md from the configs, their docstrings and their parsers.

The page is kept in git, so that it can be read wherever the code is; a test compares it with what
this makes, and `make docs` writes it again.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import docstring_parser
import yaml

from leap_rl.bench.config import AgentBench
from leap_rl.cli import COMMANDS, evaluate, main, study
from leap_rl.cli.bench import BENCHES
from leap_rl.cli.plan import PlanConfig
from leap_rl.cli.play import PlayConfig
from leap_rl.envs.atari.settings import PRESETS
from leap_rl.learners.config import AgentConfig
from leap_rl.meta.config import MetaConfig
from leap_rl.runs.config import COMMANDS as RUNS
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.header import OPERATIONAL
from leap_rl.runs.validation import ValidationConfig
from leap_rl.studies.config import StudyConfig
from leap_rl.tasks.config import TaskConfig
from leap_rl.tracking.config import TrackingConfig
from leap_rl.training.config import RuntimeConfig

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"

CONFIGS: dict[str, type] = {
    "study": StudyConfig,
    **RUNS,
    "plan": PlanConfig,
    "play": PlayConfig,
}
"""Configs of the commands that have one; `bench` has one for each measurement."""

GROUPS: dict[str, type] = {
    "meta": MetaConfig,
    "task": TaskConfig,
    "agent": AgentConfig,
    "validation": ValidationConfig,
    "runtime": RuntimeConfig,
    "tracking": TrackingConfig,
}
"""Groups of options that commands share, by prefix."""

DESCRIPTIONS = {"evaluate": evaluate._DESCRIPTION, "study": study._DESCRIPTION}
"""What a command's help says first, where it is more than its config's docstring."""

OTHERS = tuple(name for name in COMMANDS if name not in (*CONFIGS, "bench"))
"""Commands without a config: the page has their help."""

WORDS: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "`true` or `false`",
    str: "a text",
    NoneType: "`null`",
}
SEVERAL: dict[object, str] = {int: "whole numbers", str: "texts"}

HEAD = """\
<!-- Made by tools/configuration_page.py from the configs and their docstrings: change those. -->

# Configuration

An option has one name, with dots, on the command line and in YAML. `--config` names a file, and
whatever stands to the right wins:

```bash
leap-rl train --config demo --meta.meta_steps 2 --task.games '["pong", "qbert"]'
leap-rl train --config demo --meta.meta_steps 2 --print_config
```

The second prints the whole config that the words before it ask for, as a file that `--config`
takes, and computes nothing. Values are spelled as in YAML: `null` for none (the explanations say
None), `true`, `1e-3`, `.inf` for infinity, `'["a", "b"]'` for a list. An unknown option or a value
out of range is one line that names it, and status 2.

A run's folder has its options in `config.yaml`, with every `auto` that says what is computed
resolved. Those marked *operational* change no bit of what is computed, and `leap-rl resume` takes
other values for them, but for the folder itself; all others define the run, and `leap-rl fork`
makes a new one with other values ([reliability.md](reliability.md#resuming)). Options of what a run
does not have, such as `task.omniglot` in one of games, are refused.

`leap-rl train --help`, and so on, has the same explanations. `--trust_imports` is no option but a
word of the command line alone, as no file may say it: [environments.md](environments.md#games).

## Commands
"""

PRESETS_HEAD = """\
The presets of `task.atari.preset`, which `null` in the options above takes its values from:
"""

BENCH_HEAD = """\
Measurements, each by its name, such as `leap-rl bench throughput`;
[performance.md](performance.md) has what came out. With `--json` they print one JSON object instead
of a table.
"""


@dataclass(frozen=True)
class Option:
    """An option of a config."""

    name: str
    """Its dotted name."""
    values: str
    default: object
    text: str

    @property
    def operational(self) -> bool:
        """Whether it changes no bit of a run."""
        return self.name in OPERATIONAL or self.name.partition(".")[0] in OPERATIONAL


def page() -> str:
    """Return the page, as Markdown."""
    parts = [HEAD, *commands(), *chain.from_iterable(group(*one) for one in GROUPS.items())]
    for name, config in CONFIGS.items():
        parts += command(name, config)
    parts += ["## bench\n", BENCH_HEAD]
    for name, config in BENCHES.items():
        parts += measurement(name, config)
    for name in OTHERS:
        parts += [f"## {name}\n", f"```\n{help_of(name).strip()}\n```\n"]
    return "\n".join(parts)


def commands() -> Iterator[str]:
    """Yield a table of the commands and what each takes."""
    rows = ["| Command | What it does | Shared options |", "|---|---|---|"]
    for name, text in COMMANDS.items():
        shared = [] if name == "play" else groups_of(CONFIGS.get(name))
        links = ", ".join(f"[{one}](#{one})" for one in shared)
        rows.append(f"| [{name}](#{name}) | {text} | {links} |")
    yield "\n".join(rows) + "\n"


def groups_of(config: type | None) -> list[str]:
    """Return which of the shared groups a config has."""
    names = set() if config is None else {one.name for one in fields(config)}
    return [name for name in GROUPS if name in names]


def group(name: str, config: type) -> Iterator[str]:
    """Yield the section of a group of options that commands share."""
    yield f"## {name}\n"
    yield prose(config.__doc__)
    for option in options(config, f"{name}."):
        yield shown(option)
        if option.name == "task.atari.life_loss_ends":
            yield PRESETS_HEAD
            yield presets()


def command(name: str, config: type) -> Iterator[str]:
    """Yield the section of a command: what it has besides the groups."""
    yield f"## {name}\n"
    if name in DESCRIPTIONS:
        yield f"```\n{DESCRIPTIONS[name]}\n```\n"
    else:
        yield prose(config.__doc__)
    if config is PlayConfig:
        some = [f"`{one.name}`" for one in options(config, "") if one.name.startswith("agent.")]
        yield f"It takes {', '.join(some)} and the options of [task.atari](#task) as well.\n"
    inherited = {one.name for one in fields(TrainConfig)} if config is not TrainConfig else set()
    runs = name in RUNS
    for option in options(config, ""):
        top = option.name.partition(".")[0]
        if top in GROUPS or (not runs and top in inherited and issubclass(config, TrainConfig)):
            continue
        yield shown(option, heading=f"{name}: {option.name}")


def measurement(name: str, config: type) -> Iterator[str]:
    """Yield the section of a measurement."""
    yield f"### bench {name}\n"
    yield prose(config.__doc__)
    if issubclass(config, AgentBench):
        yield "It takes the options of [agent](#agent), and of [task.atari](#task) as `atari`.\n"
    elif "agent" in {one.name for one in fields(config)}:
        yield "It takes the options of [agent](#agent) as well.\n"
    lines = [
        f"* `{one.name}`: {one.values}, {default(one)}. {one.text}"
        for one in options(config, "")
        if "." not in one.name
    ]
    yield "\n".join(lines) + "\n"


def options(config: type, prefix: str) -> Iterator[Option]:
    """Yield the options of a config and of the configs in it, in their order."""
    hints = get_type_hints(config)
    texts: dict[str, str] = {}
    for owner in reversed(config.__mro__):
        if is_dataclass(owner):
            found = docstring_parser.parse_from_object(owner).params
            texts |= {one.arg_name: one.description or "" for one in found}
    for one in fields(config):
        if not one.init:
            continue  # derived
        if is_dataclass(hints[one.name]):
            yield from options(hints[one.name], f"{prefix}{one.name}.")
            continue
        text = " ".join(texts[one.name].split())
        yield Option(prefix + one.name, values(hints[one.name]), value_of(one), text)


def value_of(one: Field[Any]) -> object:
    """Return a field's default; MISSING where it has none."""
    return one.default if one.default_factory is MISSING else one.default_factory()


def values(kind: object) -> str:
    """Return in words what values an option takes."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return joined([f"`{one}`" for one in inner])
    if origin in (Union, UnionType):
        return joined([values(one) for one in inner])
    if origin is dict:
        return "a mapping"
    if origin in (list, tuple):
        return f"a list of {SEVERAL[inner[0]]}"
    return WORDS[kind]


def joined(words: list[str]) -> str:
    """Return words as a choice."""
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def default(option: Option) -> str:
    """Return the default as YAML spells it."""
    if option.default is MISSING:
        return "must be given"
    spelled = yaml.safe_dump(
        list(option.default) if isinstance(option.default, tuple) else option.default,
        default_flow_style=True,
    )
    return f"default `{spelled.removesuffix('...' + chr(10)).strip()}`"


def shown(option: Option, *, heading: str = "") -> str:
    """Return an option's own section."""
    title = heading or option.name
    mark = ", *operational*" if option.operational else ""
    kind = option.values[0].upper() + option.values[1:]
    return f"### {title}\n\n{kind}; {default(option)}{mark}.\n\n{option.text}\n"


def prose(docstring: str | None) -> str:
    """Return a docstring's text as paragraphs."""
    paragraphs = re.split(r"\n\s*\n", docstring or "")
    return "\n\n".join(" ".join(one.split()) for one in paragraphs if one.strip()) + "\n"


def presets() -> str:
    """Return a table of the emulator's settings by preset."""
    names = [one.name for one in fields(next(iter(PRESETS.values())))]
    rows = [f"| | {' | '.join(PRESETS)} |", "|---|" + "---|" * len(PRESETS)]
    for name in names:
        row = [yaml.safe_dump(getattr(one, name)).split()[0] for one in PRESETS.values()]
        rows.append(f"| `{name}` | {' | '.join(row)} |")
    return "\n".join(rows) + "\n"


def help_of(name: str) -> str:
    """Return what a command prints for `--help`, on a terminal of 100 columns."""
    output = io.StringIO()
    before = dict(os.environ)
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}
    try:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            main([name, "--help"])
    finally:
        os.environ.clear()
        os.environ.update(before)
    return output.getvalue()


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
