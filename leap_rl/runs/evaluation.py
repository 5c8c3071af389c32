"""Makes evaluations: finds what is compared, and what its runs say of tasks and agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, count
from shlex import quote
from statistics import fmean
from typing import Any

from torch import Tensor

from leap_rl.core.parsing import flatten, parse_options
from leap_rl.learners.registry import LEARNERS
from leap_rl.networks.parameters import Layout
from leap_rl.runs.config import EvaluateConfig
from leap_rl.runs.creation import make_run, resolve
from leap_rl.runs.display import tell
from leap_rl.runs.header import LoadedRun
from leap_rl.runs.initializations import (
    FoundGroup,
    FoundInitialization,
    find_group,
    own_start,
    read_theta0,
)
from leap_rl.runs.kinds import EVALUATING, make_tasks
from leap_rl.tasks.suites import suite_of

_FREE = ("task.games", "task.mix_games", "task.agent_steps", "task.on_divergence")
"""What runs whose initializations are compared may differ in."""


def configure(
    inits: Sequence[str], options: Mapping[str, Any], *, trusts_imports: bool = False
) -> tuple[EvaluateConfig, list[FoundGroup]]:
    """Return an evaluation's config, and the groups of runs that it compares.

    Args:
        inits: NAME=RUN,RUN,... or what else `leap-rl evaluate --init` takes; at least one. The
            first one's first run sets the defaults of tasks and agents.
        options: The other options, by dotted name.
        trusts_imports: Whether the options may name modules that the evaluation imports.

    Raises:
        ValueError: Something in them cannot be.
        RunFolderError: A run's folder is damaged.
    """
    groups = [find_group(init) for init in inits]
    config = parse_options(
        EvaluateConfig,
        {**options, "init": [group.option for group in groups]},
        defaults=defaults_of(groups, options),
        trusts_imports=trusts_imports,
    )
    suite = config.task.suite
    if suite.evaluation_games is None and options.get("task.games") is None:
        raise ValueError(
            f"games: say which to learn, as --games {quote(config.task.resolved_games[0])}; "
            f"task.kind = {suite.kind} holds none out"
        )
    return resolve(config), groups


def defaults_of(groups: Sequence[FoundGroup], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested options that an evaluation takes over from the first of its runs.

    Raises:
        ValueError: The options leave open what that run cannot say.
    """
    first = groups[0].runs[0]
    theirs = {} if first.options is None else first.options["task"]
    suite = suite_of(options.get("task.kind") or theirs.get("kind", "atari"))
    games = {} if suite.evaluation_games is None else {"games": suite.evaluation_games}
    defaults: dict[str, Any] = {"task": games}
    if first.options is not None:
        agent = first.options.get("agent", {})
        algorithm = options.get("agent.algorithm") or agent.get("algorithm", "auto")
        learner = LEARNERS.get(suite.learned_by if algorithm == "auto" else algorithm)
        ignored = () if learner is None else learner.ignored()
        defaults["task"] = {**theirs, **games, "mix_games": False}
        defaults["agent"] = {name: agent[name] for name in agent if name not in ignored}
        if first.options["meta"]["method"] == "pretraining":
            del defaults["task"]["agent_steps"]  # which were a round's
            if options.get("task.agent_steps") is None:
                raise ValueError(
                    "agent_steps: say how many each agent learns for, as --agent_steps 1000000; "
                    f"{first.name} was pretrained, whose tasks have no budget"
                )
    return defaults


def warnings_of(groups: Sequence[FoundGroup]) -> list[str]:
    """Return where runs were chosen by chance, or set tasks or agents differently, a line each."""
    found = [run for group in groups for run in group.runs]
    settings = [
        (one.name, flatten({name: one.options.get(name, {}) for name in ("task", "agent")}))
        for one in found
        if one.options is not None
    ]
    warnings = []
    for other, theirs in settings[1:]:
        first, options = settings[0]
        differing = [
            f"{name} = {theirs.get(name)} (here {value})"
            for name, value in options.items()
            if name not in _FREE and theirs.get(name) != value
        ]
        if differing:
            warnings.append(
                f"{other} was meta-trained with {', '.join(differing)}; all agents learn as "
                f"{first}'s did"
            )
    return warnings + [
        f"{one.given}: {one.name} was chosen from one agent a game, which is largely chance; "
        "--validation.agents makes a run choose from more"
        for one in found
        if one.chosen_from == 1
    ]


def create_evaluation(config: EvaluateConfig, groups: Sequence[FoundGroup]) -> LoadedRun:
    """Make an evaluation's folder, which holds copies of what it compares.

    Runs that were chosen by chance, or had other tasks or agents, are told on stderr.

    Raises:
        ValueError: The folder holds a run already or cannot be written, or an initialization does
            not fit.
    """
    for warning in warnings_of(groups):
        tell(warning)
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
        given[name] = [(one.name, read[run][0]) for run, one in enumerate(group.runs)]
        digests.append([digest for _, digest in read])
        if len({*digests[-1]}) < len(read):
            raise ValueError(
                f"init = {group.given}: two of its runs have the same initialization; a run that "
                "counts twice makes the others look surer than they are"
            )
    init_sha256 = ",".join("+".join(of_group) for of_group in digests) or None
    factory = EVALUATING.plan(config)
    return make_run(
        config,
        lambda folder: factory.write_first_checkpoint(
            folder, given, own_starts, training=_training(named)
        ),
        init_sha256=init_sha256,
        sources=[one.file or one.path for group in named.values() for one in group.runs],
    )


def _training(named: Mapping[str, FoundGroup]) -> dict[str, Any]:
    """Return what the runs of each group learned, where that is known of all of them."""
    found = {}
    for name, group in named.items():
        runs = [run.trained for run in group.runs if run.trained is not None]
        if len(runs) == len(group.runs):
            found[name] = {
                "agent_steps": fmean(run.agent_steps for run in runs),
                "games": list(dict.fromkeys(game for run in runs for game in run.games)),
            }
    return found


def _read(one: FoundInitialization, layout: Layout) -> tuple[Tensor, str]:
    try:
        return read_theta0(one, layout)
    except ValueError as error:
        raise ValueError(f"init = {one.given}: {error}") from None


def _names(groups: Sequence[FoundGroup]) -> dict[str, FoundGroup]:
    """Groups by their names; those that were not given are made so that none comes twice."""
    named: dict[str, FoundGroup] = {}
    for group in groups:
        if group.named and group.name in named:
            raise ValueError(
                f"init = {group.given}: {group.name} comes twice; list all its runs once"
            )
        named[_unique(group.name, named)] = group
    return named


def _unique(name: str, taken: Mapping[str, object]) -> str:
    name = name.replace("/", "-")  # it becomes a part of metrics' names
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(one for one in names if one not in taken and one != "random")
