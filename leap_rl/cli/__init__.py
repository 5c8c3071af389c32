"""The command line. One file a command; this one finds it and turns errors into one line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

from leap_rl.core.determinism import prepare_environment
from leap_rl.core.errors import EXIT_FAILED as EXIT_FAILED
from leap_rl.core.errors import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from leap_rl.core.errors import EXIT_STOPPED as EXIT_STOPPED
from leap_rl.core.errors import EXIT_TERMINATED as EXIT_TERMINATED
from leap_rl.core.errors import EXIT_USAGE as EXIT_USAGE
from leap_rl.core.errors import explained
from leap_rl.core.lines import escape_logged, say
from leap_rl.runs.invocation import Invocation

if TYPE_CHECKING:
    from leap_rl.runs.header import LoadedRun

COMMANDS: Final = {
    "study": "find which start helps on your environments, how much, and when it pays",
    "train": "meta-train an initialization over many games",
    "resume": "resume a run that was stopped",
    "fork": "make a new run that starts from a checkpoint of another, with other options",
    "learn": "learn games without meta-learning, from a random or a given initialization",
    "evaluate": "compare initializations by what agents learn from them on held-out games",
    "report": "write a page on runs and evaluations: verdict, figures, tables",
    "verify": "read every file of a run and say what is wrong",
    "watch": "show the state of a run in another terminal",
    "play": "record a video of a trained agent, with its score",
    "bench": "measure how fast agents learn on this machine, and where the time goes",
    "plan": "predict how long a run takes, from its config and a measured throughput",
    "export": "write an initialization with its options and a model card, to share or load",
    "push": "upload an initialization to Hugging Face's hub",
    "pretrained": "list the initializations that come with leap_rl",
    "games": "list games, with their actions, modes and pools",
    "doctor": "check this machine: versions, cores, ROMs, Ray, disk",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0, or 2 for bad input, 1 for a run that failed, 130 for one that was interrupted, 143 for
        one that was told to terminate, 75 for one whose time was over; what is wrong goes to
        stderr in one line.
    """
    started_s = time.monotonic()
    escape_logged()
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv), started_s)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as in `leap-rl games | head`
        sys.stderr.close()
        return EXIT_FAILED
    except (ValueError, OSError, RuntimeError) as error:
        status, line = explained(error)
        say(f"leap-rl: {line}", file=sys.stderr)
    return status


def _run(arguments: Sequence[str], started_s: float) -> int:
    """Run a command; its errors are raised."""
    # Imported here, as it takes a third of a second, in which somebody may press Ctrl-C.
    from leap_rl.core.parsing import TRUST_IMPORTS

    call = Invocation(started_s=started_s, trusts_imports=TRUST_IMPORTS in arguments)
    command, *rest = [word for word in arguments if word != TRUST_IMPORTS] or ["--help"]
    if command in ("-h", "--help"):
        say(_usage())
        return 0
    if command == "--version":
        from leap_rl.core.version import __version__

        say(f"leap-rl {__version__}")
        return 0
    if command not in COMMANDS:
        close = get_close_matches(command, COMMANDS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ValueError(f"{command}: no such command; {hint}one of {', '.join(COMMANDS)}")
    prepare_environment()  # before anything imports torch
    status: int = import_module(f"leap_rl.cli.{command}").main(rest, call)
    return status


class _Parser(argparse.ArgumentParser):
    """Its errors are one line, as those of commands with a config are."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; {self.prog} --help has all options")


def command_parser(command: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of a command without a config; line breaks in its description stay.

    Its `parse_args` raises ValueError.
    """
    raw = "\n" in description
    return _Parser(
        prog=f"leap-rl {command}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter if raw else argparse.HelpFormatter,
        allow_abbrev=False,
    )


def options_over(
    config: type[Any], argv: Sequence[str], *, stored: Mapping[str, Any], program: str
) -> Mapping[str, Any]:
    """Return the options of a command line by dotted name, to be put over stored ones.

    `--help` and `--print_config` show both together and leave, as they do in `parse`.
    """
    from leap_rl.core.parsing import config_parser, options_given, parse

    if is_shown(argv):
        parser = config_parser(config, program=program)
        parse(parser, config, argv, defaults=stored, trusts_imports=True)
    return options_given(config, argv)


def is_shown(argv: Sequence[str]) -> bool:
    """Whether the command line asks for options to be shown, and nothing else."""
    return any(word.partition("=")[0] in ("-h", "--help", "--print_config") for word in argv)


def refuse_lists_given_twice(argv: Sequence[str], lists: Sequence[str]) -> None:
    """Raise ValueError for an option that takes a list and comes twice: the last would count."""
    names = [word.partition("=")[0] for word in argv]
    for name in lists:
        if names.count(name) > 1:
            raise ValueError(f'{name}: is given twice; give one list, as {name} \'["A", "B"]\'')


def carry_out_and_announce(
    run: LoadedRun, call: Invocation, *, resumes: bool = False, opens: bool = False
) -> int:
    """Carry out a run, as `carry_out` does, and print what it came to; return the exit status.

    With ``opens`` the report of an evaluation is shown in the browser.
    """
    from leap_rl.runs.execution import carry_out
    from leap_rl.runs.kinds import kind_of

    outcome = carry_out(run, call, resumes=resumes)
    if outcome.status == 0:
        kind_of(run.config).announce(run.folder, run.config, summary=outcome.summary, opens=opens)
    return outcome.status


def _usage() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return f"""\
usage: leap-rl COMMAND [OPTIONS]

From a family of environments, learn the weights that new agents should start from.

commands:
{commands}

  leap-rl COMMAND --help    every option of a command, with its default
  leap-rl COMMAND ... --trust_imports    import modules that options name (my_games:Maze-v0)
  leap-rl --version

start here:
  leap-rl doctor
  leap-rl study --games CartPole-v1 leap_rl/CartPole-v1@gravity=5.0 --arms leap --quick \\
    --held_out leap_rl/CartPole-v1@gravity=20.0
  leap-rl train --config demo --run_dir runs/mine"""
