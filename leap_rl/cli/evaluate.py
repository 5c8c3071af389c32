"""``leap-rl evaluate``: what agents learn from initializations, against random encoders."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from jsonargparse import ArgumentParser
from torch import Tensor

from leap_rl.app.creation import asked_folder, fill_folder, new_folder, resolve
from leap_rl.app.errors import UsageError
from leap_rl.app.execution import run
from leap_rl.app.initializations import (
    FoundGroup,
    FoundInitialization,
    find_group,
    own_start,
    read_theta0,
)
from leap_rl.app.invocation import Invocation
from leap_rl.app.policies import make_evaluation, make_tasks
from leap_rl.app.record import Record, versions_here
from leap_rl.app.results import announce_evaluation
from leap_rl.config import EvaluateConfig, fingerprint, flatten
from leap_rl.config.parsing import config_parser, parse
from leap_rl.networks.parameters import Layout
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.wandb_folder import note_sources

SHORT = {
    "--games": ["--task.games"],
    "--agent_steps": ["--task.agent_steps"],
    "--out": ["--run_dir"],
    "--no_random": ["--random", "false"],
}
"""Short forms of options."""

_FREE = ("task.games", "task.agent_steps", "task.on_divergence")
"""What runs whose initializations are compared may differ in."""

_DESCRIPTION = """\
Learn games from initializations and from random encoders, several agents each, and compare.

  leap-rl evaluate --init leap=runs/a,runs/b,runs/c --games held_out --agent_steps 1000000

  --init NAME=RUN,RUN,...
                      what is compared; may be given several times. The runs of one method, which
                      differ in their seeds, are judged together; a single RUN needs no name, and
                      what is found holds for that one run. RUN, RUN@12 (its version 12), RUN@best
                      (the best validated), a checkpoint's folder, one that leap-rl export wrote,
                      pretrained:NAME (leap-rl pretrained lists them), or a file.
                      Tasks and agents are set as the first one's run had them.
  --seeds             agents of each run in each game
  --own_start true    compare with the runs' own random starts too, beside fresh ones
  --games             short for --task.games: a name, a pool, or '["pong", "qbert"]'; held_out if
                      nothing is said
  --agent_steps       short for --task.agent_steps
  --out               short for --run_dir
  --open              show the report in the browser when it is done
  --no_random         leave out the baseline of random encoders (--random false)

Agents of the same game and seed share everything but where their encoders start: heads, emulators,
the draws of their actions. All run at once over the trainers; an evaluation that is stopped goes on
by leap-rl resume, to the same curves. When it is done a report says what came out: a page in its
folder, which leap-rl report makes again at any time."""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    opens = "--open" in argv
    words = [word for word in argv if word != "--open"]
    config, groups = read_arguments(words, trusts_imports=call.trusts_imports)
    folder = create_evaluation(config, groups)
    status = run(config, folder, call)
    if status == 0:
        announce_evaluation(folder, opens=opens)
    return status


def read_arguments(
    argv: Sequence[str], *, trusts_imports: bool = False
) -> tuple[EvaluateConfig, list[FoundGroup]]:
    """Return the config that the arguments ask for, and the groups of runs that they name.

    Raises:
        UsageError: Something in them cannot be.
    """
    inits, options = take_inits(argv)
    parser = _parser()
    shows = ("--help", "-h", "--print_config", "--config")
    if not inits and not any(word.partition("=")[0] in shows for word in options):
        raise UsageError("init: name a run or an initialization, as --init runs/mine")
    if not inits:  # they may stand in a config
        given = parse(parser, EvaluateConfig, options, trusts_imports=trusts_imports)
        inits = given.init
    groups = [find_group(init) for init in inits]
    found = [run for group in groups for run in group.runs]
    _warn_of_differences(found)
    for one in found:
        if one.chosen_from == 1:
            print(
                f"leap-rl: {one.given}: {one.name} was chosen from one agent a game, which is "
                "largely chance; --validation.agents makes a run choose from more",
                file=sys.stderr,
            )
    defaults: dict[str, Any] = {"task": {"games": "held_out"}}
    if found and found[0].options is not None:
        stored = found[0].options
        defaults = {
            "task": {**stored["task"], "games": defaults["task"]["games"]},
            **({"agent": stored["agent"]} if "agent" in stored else {}),
        }
        if stored["meta"]["method"] == "finetune":
            del defaults["task"]["agent_steps"]  # which were a round's
            if not any(word.partition("=")[0] == "--task.agent_steps" for word in options):
                raise UsageError(
                    "agent_steps: say how many each agent learns for, as --agent_steps 1000000; "
                    f"{found[0].name} was finetuned, whose tasks have no budget"
                )
    words = [*options, f"--init=[{', '.join(repr(group.spelled) for group in groups)}]"]
    config = parse(
        _parser(), EvaluateConfig, words, defaults=defaults, trusts_imports=trusts_imports
    )
    return resolve(config), groups


def _parser() -> ArgumentParser:
    parser = config_parser(EvaluateConfig, program="leap-rl evaluate")
    parser.description = _DESCRIPTION
    return parser


def take_inits(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what --init names, and the other arguments with the short ones spelled out."""
    inits, options = [], []
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name in ("--init", "--init+"):  # jsonargparse offers the second for lists
            value = value if equals else next(words, "")
            if not value:
                raise UsageError("init: name a run or an initialization, as --init runs/mine")
            inits.append(value)
        else:
            option, *values = SHORT.get(name, [name])
            options += [option + equals + value, *values]
    return inits, options


def create_evaluation(config: EvaluateConfig, groups: Sequence[FoundGroup]) -> RunFolder:
    """Make an evaluation's folder, which holds copies of what it compares.

    Raises:
        UsageError: The folder holds a run already or cannot be written, or an initialization does
            not fit.
    """
    folder = asked_folder(config.run_dir)
    layout = make_tasks(config).shared_layout()
    named = _names(groups)
    own_starts: dict[str, str] = {}
    for name, group in list(named.items()) if config.own_start else ():
        start = own_start(group)
        same = (other for other in own_starts.values() if named[other].runs == start.runs)
        own_starts[name] = next(same, None) or _unique(start.name, named)
        named[own_starts[name]] = start
    given: dict[str, list[tuple[str, Tensor]]] = {}
    digests = []
    for name, group in named.items():
        read = [_read(one, layout) for one in group.runs]
        given[name] = [
            (one.name, theta0) for one, (theta0, _) in zip(group.runs, read, strict=True)
        ]
        digests.append([digest for _, digest in read])
        if len({*digests[-1]}) < len(read):
            raise UsageError(
                f"init = {group.given}: two of its runs have the same initialization; a run that "
                "counts twice makes the others look surer than they are"
            )
    init_sha256 = ",".join("+".join(of_group) for of_group in digests) or None
    record = Record(
        fingerprint=fingerprint(config, init_sha256),
        init_sha256=init_sha256,
        made_by=(versions_here(config, meta_step=0),),
    )
    folder = folder or new_folder(config.command)
    write_first = partial(make_evaluation(config).write_first_checkpoint, folder, given, own_starts)
    fill_folder(folder, config, record, write_first)
    note_sources(
        folder.path, [one.file or one.path for group in named.values() for one in group.runs]
    )
    return folder


def _read(one: FoundInitialization, layout: Layout) -> tuple[Tensor, str]:
    try:
        return read_theta0(one.path, layout)
    except ValueError as error:
        raise UsageError(f"init = {one.given}: {error}") from None


def _names(groups: Sequence[FoundGroup]) -> dict[str, FoundGroup]:
    """Return groups by their names; those that were not given are made so that none comes twice."""
    named: dict[str, FoundGroup] = {}
    for group in groups:
        if group.named and group.name in named:
            raise UsageError(
                f"init = {group.given}: {group.name} comes twice; list all its runs once"
            )
        named[_unique(group.name, named)] = group
    return named


def _unique(name: str, taken: Mapping[str, object]) -> str:
    name = name.replace("/", "-")  # it becomes a part of figures' keys
    names = [name, *(f"{name}-{number}" for number in range(2, len(taken) + 3))]
    return next(one for one in names if one not in taken and one != "random")


def _warn_of_differences(found: Sequence[FoundInitialization]) -> None:
    """Say where runs whose initializations are compared set tasks or agents differently."""
    of_runs = [one for one in found if one.options is not None]
    for other in of_runs[1:]:
        first = of_runs[0]
        options, theirs = _settings(first), _settings(other)
        differing = [
            f"{name} = {theirs.get(name)} (here {value})"
            for name, value in options.items()
            if name not in _FREE and theirs.get(name) != value
        ]
        if differing:
            print(
                f"leap-rl: {other.name} was meta-trained with {', '.join(differing)}; all agents "
                f"learn as {first.name}'s did",
                file=sys.stderr,
            )


def _settings(found: FoundInitialization) -> dict[str, Any]:
    assert found.options is not None
    return flatten({name: found.options.get(name, {}) for name in ("task", "agent")})
