"""Parsers made from the configs; their errors are one line that names the option."""

from __future__ import annotations

import json
import math
import re
from argparse import ArgumentError, RawDescriptionHelpFormatter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache, lru_cache
from inspect import getdoc
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import jsonargparse
import yaml

from leap_rl.core import plain_yaml
from leap_rl.core.parsing_errors import in_yaml, one_line
from leap_rl.core.urls import check_addresses

jsonargparse.set_parsing_settings(
    docstring_parse_attribute_docstrings=True,
    # No option names a class, so that a stranger's config can make nothing be imported.
    import_path_denylist=["*"],
)

MOST_DIGITS: Final = 4_000
"""Of a text that looks like a number: Python converts no more than 4,300."""

_load_yaml = jsonargparse.get_loader("yaml")


def _load_plain(text: str) -> Any:
    """Load as jsonargparse does, which takes 1e-3 for a number, but no more than is plain.

    It loads some texts in what it has loaded once more.
    """
    _check_plain(text)
    loaded = _load_yaml(text)
    for value in _texts(loaded):
        with suppress(yaml.scanner.ScannerError, yaml.parser.ParserError):
            _check_plain(value, MOST_DIGITS)
    return loaded


@lru_cache(maxsize=512)
def _check_plain(text: str, longest: int = plain_yaml.LONGEST) -> None:
    """Check a text, most of which come several times: each default of each parser."""
    plain_yaml.check(text, longest=longest)


def _texts(loaded: Any) -> Iterable[str]:
    if isinstance(loaded, str):
        yield loaded
    elif isinstance(loaded, Mapping):
        yield from chain.from_iterable(map(_texts, loaded.values()))
    elif isinstance(loaded, list):
        yield from chain.from_iterable(map(_texts, loaded))


jsonargparse.set_loader("yaml", _load_plain, exceptions=(yaml.YAMLError,))

C = TypeVar("C")

TRUST_IMPORTS: Final = "--trust_imports"
"""The word, of any command, without which no module is imported that a config names."""

_FILES: Final = Path(__file__).parents[1] / "configs"


def names() -> list[str]:
    """Return the names of the configs that come with leap_rl."""
    return sorted(path.stem for path in _FILES.glob("*.yaml"))


def find(config: str) -> Path:
    """Return a config's file, by its path or its name in leap_rl; ValueError if there is none."""
    path = Path(config)
    if not path.is_file() and config in names():
        path = _FILES / f"{config}.yaml"
    if not path.is_file():
        raise ValueError(
            f"config = {config}: there is no such file; leap_rl comes with {', '.join(names())}"
        )
    return path


def to_cli_args(options: Mapping[str, Any]) -> list[str]:
    """Return options by dotted name as the command line has them."""
    return [
        f"--{name}={value if isinstance(value, str | Path) else spelled(value)}"
        for name, value in options.items()
    ]


def spelled(value: Any) -> str:
    """Return a value as JSON, but for infinity, which is spelled as in YAML."""
    if isinstance(value, float) and math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    if isinstance(value, Mapping):
        inner = (f"{json.dumps(name)}: {spelled(one)}" for name, one in value.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(spelled, value))}]"
    return json.dumps(value, default=str)


def flatten(
    options: Mapping[str, Any], prefix: str = "", *, whole: Collection[str] | None = None
) -> dict[str, Any]:
    """Return nested options by dotted name.

    With `whole`, the options whose values are mappings, these stay whole, and it is a ValueError if
    an option is there twice, as in `{meta.p: 1, meta: {p: 2}}`.
    """
    flat: dict[str, Any] = {}
    for name, value in options.items():
        dotted = f"{prefix}{name}"
        nested = isinstance(value, Mapping) and dotted not in (whole or ())
        found = flatten(value, f"{dotted}.", whole=whole) if nested else {dotted: value}
        if whole is not None and (twice := sorted(flat.keys() & found.keys())):
            raise ValueError(f"{twice[0]}: is there twice, by its dotted name and in its group")
        flat |= found
    return flat


def config_parser(config: type[C], *, program: str) -> jsonargparse.ArgumentParser:
    """Return a parser of all options of a config, with `--config FILE` and `--print_config`."""
    parser = deepcopy(_parser_of(cast(Any, config)))
    parser.prog = program
    return parser


class _HelpFormatter(jsonargparse.DefaultHelpFormatter, RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions."""


@cache
def _parser_of(config: type[Any]) -> jsonargparse.ArgumentParser:
    """Return a parser to copy: making one takes 0.2 s, and an evaluation reads many configs."""
    parser = jsonargparse.ArgumentParser(
        usage="%(prog)s [OPTIONS]",  # some hundred, which would stand above the description
        description=getdoc(config),
        exit_on_error=False,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        action="config",
        help="YAML file of options, or the name of one that comes with leap_rl "
        f"({', '.join(names())}); what follows it overrides it",
    )
    parser.add_class_arguments(config, None, as_group=False)
    parser.set_defaults(dict(_defaults_of_groups(config)))
    return parser


def _defaults_of_groups(config: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the defaults in groups of options, which an instance of the group may have derived."""
    for group in fields(config):
        made_by: Any = group.default_factory
        if is_dataclass(made_by):
            for one in fields(made_by):
                if one.init and one.default is not MISSING:
                    yield f"{group.name}.{one.name}", one.default


@cache
def _options_of_mappings(config: type[Any]) -> Collection[str]:
    """Return the options whose value is a mapping, by dotted name."""
    defaults = _parser_of(cast(Any, config)).get_defaults()
    return {name for name, value in defaults.items() if isinstance(value, dict)}


def parse(
    parser: jsonargparse.ArgumentParser,
    config: type[C],
    argv: Sequence[str],
    *,
    defaults: Mapping[str, Any] | None = None,
    trusts_imports: bool = False,
) -> C:
    """Return the config that the command line and its files ask for.

    Args:
        parser: What `config_parser` returned.
        defaults: Nested options that take the place of the config's own defaults.
        trusts_imports: Whether it may name modules that its run imports.

    Raises:
        ValueError: Something in it cannot be; one line.
    """
    with naming_lines(argv):
        with _in_one_line(parser):
            if defaults is not None:
                whole = _options_of_mappings(cast(Any, config))
                parser.set_defaults(flatten(defaults, whole=whole))
            given = parser.parse_args(_with_files(argv, config))
            _check_types(given, parser)
            options = parser.instantiate(given)
        named = [field.name for field in fields(config)]  # type: ignore[arg-type]
        made: Any = config(**{name: options[name] for name in named if name in options})
        check_addresses(flatten(asdict(made)))
        if not trusts_imports:
            refuse_imports(getattr(made, "imports", {}))
    return cast(C, made)


def options_given(config: type[Any], argv: Sequence[str]) -> Mapping[str, Any]:
    """Return the options given, by dotted name; ValueError, in one line, if one cannot be."""
    parser = config_parser(config, program="leap-rl")
    printing = ("-h", "--help", "--print_config")
    words = [word for word in _with_files(argv, config) if word.split("=")[0] not in printing]
    with naming_lines(argv), _in_one_line(parser):
        parsed = parser.parse_args(words, defaults=False)
        _check_types(parsed, parser)
    given = parsed.as_dict()
    given.pop("config", None)  # whose options are among the others
    return flatten(given, whole=_options_of_mappings(cast(Any, config)))


def typed_options(config: type[Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options by dotted name as `options_given` does, whose errors it raises."""
    return options_given(config, to_cli_args(options))


def parse_options(
    config: type[C],
    options: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    trusts_imports: bool = False,
) -> C:
    """Return the config of options by dotted name, over nested ones; args and errors of `parse`."""
    parser, words = config_parser(config, program="leap-rl"), to_cli_args(options)
    return parse(parser, config, words, defaults=defaults, trusts_imports=trusts_imports)


@contextmanager
def naming_lines(argv: Sequence[str]) -> Iterator[None]:
    """Put the file and the line before a ValueError about an option that a file of `argv` sets."""
    try:
        yield
    except ValueError as error:
        said = str(error)
        option = re.split(" = |: ", said)[0]
        found = list(_sources(option, argv))
        # The last one that sets it, unless an earlier one could not be read.
        wrong = [place for value, place in found if said.startswith(f"{option} = {value}:")]
        place = next(iter(wrong or (place for _, place in found)), None)
        if place is None:
            raise
        raise ValueError(f"{place}: {said}") from None


def _sources(option: str, argv: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the values that an option is set to, the last first, with file and line if in one."""
    for index, word in reversed(list(enumerate(argv))):
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            continue
        value = value if equals else "".join(argv[index + 1 : index + 2])
        if f"{option}.".startswith(f"{name.removesuffix('+')}."):
            yield value, None
        elif name == "config":
            path = find(value)
            text = plain_yaml.text_of(path)
            line = plain_yaml.lines(text).get(option)
            if line is not None:
                set_to = flatten(plain_yaml.load(text)).get(option)
                yield in_yaml(set_to), f"config = {path}: line {line}"


@contextmanager
def _in_one_line(parser: jsonargparse.ArgumentParser) -> Iterator[None]:
    """Raise what a parser raises as a ValueError of one line, in the words of the options."""
    try:
        yield
    except (ArgumentError, TypeError, ValueError, KeyError) as error:
        raise ValueError(one_line(str(error), parser)) from None


def _check_types(options: jsonargparse.Namespace, parser: jsonargparse.ArgumentParser) -> None:
    """Refuse null and groups without options, which jsonargparse takes for what is not given.

    Raises:
        ValueError: A group is no mapping of options.
        TypeError: An option is null that must not be.
    """
    groups = {action.dest.rpartition(".")[0] for action in parser._actions} - {""}
    for group in sorted(groups):
        if group in options and not isinstance(options[group], jsonargparse.Namespace):
            value = in_yaml(options[group])
            raise ValueError(f"{group} = {value}: must be a mapping of options")
    parser.validate(options, skip_unset=False)


def refuse_imports(imports: Mapping[str, Sequence[str]]) -> None:
    """Raise ValueError for modules, by option, that would be imported and are not trusted."""
    for option, modules in imports.items():
        if modules:
            raise ValueError(
                f"{option}: names the module {', '.join(modules)}, which would be imported, and so "
                f"run; if you trust it, add {TRUST_IMPORTS} to the command line, or "
                "trust_imports=True in Python"
            )


def _with_files(argv: Sequence[str], config: type[Any]) -> list[str]:
    """Return the arguments with the path of each config that is named, or with its options.

    Groups that the command has no use for (`leaves_out`) are left out of them, so that a config of
    `leap-rl train` serves `leap-rl learn` too.
    """
    words = list(argv)
    _refuse_files(words, config)
    for index, word in enumerate(words):
        if index and words[index - 1] == "--config":
            words[index] = _file_of(find(word), config)
        elif word.startswith("--config="):
            words[index] = f"--config={_file_of(find(word.removeprefix('--config=')), config)}"
    return words


def _refuse_files(argv: Sequence[str], config: type[Any]) -> None:
    """Raise ValueError for groups that are no mapping, which jsonargparse takes for files' names.

    It would open whatever has that name.
    """
    groups = _groups(cast(Any, config))
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        name, equals, value = word.removeprefix("--").partition("=")
        value = value if equals else following
        if word.startswith("--") and name in groups and not value.strip().startswith("{"):
            raise ValueError(f"{name} = {value}: must be a mapping of options")


@cache
def _groups(config: type[Any]) -> Collection[str]:
    """Return the names of the groups of options, dotted."""
    actions = _parser_of(cast(Any, config))._actions
    return {action.dest.rpartition(".")[0] for action in actions} - {""}


def _file_of(path: Path, config: type[Any]) -> str:
    """Return the path of a config's file, or its options without those that are left out."""
    options, leaves_out = plain_yaml.options_in(path), getattr(config, "leaves_out", ())
    flatten(options, whole=_options_of_mappings(cast(Any, config)))  # which refuses what is twice
    for group in sorted(_groups(cast(Any, config))):
        value: Any = options
        for name in group.split("."):
            value = value.get(name, {}) if isinstance(value, Mapping) else {}
        if isinstance(value, str):
            raise ValueError(f"{group} = {value}: must be a mapping of options")
    kept = {
        name: value
        for name, value in options.items()
        if str(name).partition(".")[0] not in leaves_out
    }
    return str(path) if len(kept) == len(options) else plain_yaml.dump(kept)
