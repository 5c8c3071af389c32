"""The arms of a study: each is nothing but options of `leap-rl train`.

All arms learn from the same number of agent steps in total, that of the study's own options: an
arm has as many meta-steps as these pay for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from leap_rl.core.parsing import flatten, parse_options
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import declared, learner_class
from leap_rl.runs.config import TrainConfig

CALIBRATION: Final = "calibration"
"""The arm of a calibration's cells."""

RANDOM: Final = "random"
"""The arm that nothing is trained for: agents from random starts, which others are set against."""

MEMBERS: Final = "members"
"""Stands for the number of members that are learned from."""


MIX: Final = "mix"
"""An arm's option besides those of leap-rl train: the share of what was learned in its starts, as
of `--init RUN@mix=0.5`."""

EACH_MEMBER: Final = "each_member"
"""Another: whether each member has a run of its own, and new agents choose among their starts."""

FIRST_MEMBERS: Final = "first_members"
"""Another: how many of the study's members the arm learns from, the first ones. All is the
default."""


@dataclass(frozen=True)
class Arm:
    """An arm of the registry."""

    says: str
    """A description, which the page shows."""
    options: Mapping[str, Any]
    """Of `leap-rl train`, by dotted name, over those of the study; `MIX` and its like."""


ARMS: Final[Mapping[str, Arm]] = MappingProxyType(
    {
        "leap": Arm("Leap, as the study's options set it", {"meta.method": "leap"}),
        "leap_eq8": Arm(
            "Leap by equation 8 as printed, with Adam outside",
            {"meta.method": "leap", "meta.metric": "euclidean", "meta.task_unit": "none"},
        ),
        "leap_agent": Arm(
            "Leap over the whole agent, heads too",
            {"meta.method": "leap", "agent.share": "agent"},
        ),
        "leap_mixed": Arm(
            "new agents start from half of leap's start and half of a random one (shrink and "
            "perturb, Ash and Adams 2020)",
            {"meta.method": "leap", MIX: 0.5},
        ),
        "reptile": Arm(
            "Reptile: to the mean of where agents from the initialization end",
            {"meta.method": "reptile"},
        ),
        "fomaml": Arm(
            "First-order MAML: the gradient where an agent ends", {"meta.method": "fomaml"}
        ),
        "pretraining": Arm(
            "one agent a member, with heads of its own, that goes on; encoders are averaged",
            {"meta.method": "pretraining"},
        ),
        "pretraining_resets": Arm(
            "as pretraining, but heads and optimizers begin again at each round",
            {
                "meta.method": "reptile",
                "meta.optimizer": "sgd",
                "meta.meta_lr": 1.0,
                "meta.batch_size": MEMBERS,
            },
        ),
        "domain_randomised": Arm(
            "one agent whose environments are dealt over all members; its whole network (of a loop "
            "its encoder) starts the new agents",
            {
                "task.mix_games": True,
                "agent.share": "agent",
                "meta.method": "pretraining",
                "meta.batch_size": 1,
            },
        ),
        "nearest": Arm(
            "one whole agent for each member alone; a new agent tries them all, and goes on from "
            "the one that does best at first",
            {
                EACH_MEMBER: True,
                "agent.share": "agent",
                "meta.method": "pretraining",
                "meta.batch_size": 1,
            },
        ),
    }
)


def check_arm(name: str) -> None:
    """Raise ValueError for an arm that is neither in the registry nor has options of its own."""
    if name in ARMS:
        return
    close = get_close_matches(name, ARMS, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ValueError(
        f"arms = {name}: {hint}known are {', '.join([RANDOM, *ARMS])}; one of your own has "
        f"options of leap-rl train, as {{{name}: {{meta.p: 1}}}}"
    )


def spelled_arms(arms: Mapping[str, Any] | Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return each arm's own options by dotted name, the baseline first."""
    named = arms if isinstance(arms, Mapping) else {name: {} for name in arms}
    if isinstance(arms, list) and len(named) < len(arms):
        raise ValueError(f"arms = {arms}: name each once")
    found: dict[str, dict[str, Any]] = {RANDOM: {}}
    for name, options in named.items():
        if not isinstance(name, str):  # YAML's 1, true and null are none
            raise ValueError(f"arms = {name!r}: a name has letters, digits, _ and - alone")
        if options is not None and not isinstance(options, Mapping):
            raise ValueError(
                f"arms.{name} = {options}: must be options of leap-rl train, as {{meta.p: 1}}"
            )
        try:
            found[name] = flat_options(options or {})
        except ValueError as error:
            raise ValueError(f"arms.{name}: {error}") from None
        if name == RANDOM:
            if options:
                raise ValueError(f"arms.{RANDOM}: nothing is trained for it; leave options out")
        elif not options:
            check_arm(name)
        if not name.replace("_", "").replace("-", "").isalnum() or not name.isascii():
            raise ValueError(f"arms = {name!r}: a name has letters, digits, _ and - alone")
    if len(found) == 1:
        raise ValueError(f"arms: name one besides {RANDOM}, such as leap")
    return found


def mix_of(name: str, own: Mapping[str, Any]) -> float | None:
    """Return the share of what was learned in an arm's starts; none where that is all.

    ValueError: it is no share.
    """
    mix = _option(name, own, MIX)
    if mix is not None and not (isinstance(mix, int | float) and 0 < mix <= 1):
        raise ValueError(f"arms.{name}: mix = {mix}: must be above 0 and at most 1")
    return None if mix in (None, 1) else float(mix)


def has_run_for_each_member(name: str, own: Mapping[str, Any]) -> bool:
    """Whether an arm has a run for each member; ValueError where its option is neither."""
    found = _option(name, own, EACH_MEMBER)
    if not isinstance(found, bool | None):
        raise ValueError(f"arms.{name}: {EACH_MEMBER} = {found}: must be true or false")
    return bool(found)


def members_of(name: str, own: Mapping[str, Any], members: Sequence[str]) -> tuple[str, ...]:
    """Return the members that an arm learns from, of the study's; ValueError: no such number."""
    count = _option(name, own, FIRST_MEMBERS)
    if count is None:
        return tuple(members)
    if not (type(count) is int and 1 <= count <= len(members)):
        raise ValueError(
            f"arms.{name}: {FIRST_MEMBERS} = {count}: must be 1 to {len(members)}, the number of "
            "members under games"
        )
    return tuple(members[:count])


def _option(name: str, own: Mapping[str, Any], option: str) -> Any:
    return own.get(option, ARMS[name].options.get(option) if name in ARMS else None)


def arm_config(
    name: str,
    own: Mapping[str, Any],
    *,
    base: TrainConfig,
    shared: Mapping[str, Any],
    trusts_imports: bool = False,
) -> TrainConfig:
    """Return what an arm trains, with as many agent steps in all as the study's own options have.

    With a run for each member this is any of them, but for the member.

    Args:
        name: The arm.
        own: Options of its own, by dotted name, over those of the registry's arm of that name.
        base: The study's own options.
        shared: The same, nested, with what methods resolve left open.
        trusts_imports: Whether the options may name modules that its runs import.

    Raises:
        ValueError: An option cannot be, or meta-steps of such tasks do not add up to the total.
    """
    options = {**(ARMS[name].options if name in ARMS else {}), **own}
    games = members_of(name, own, base.task.resolved_games)
    members, runs = len(games), 1
    if has_run_for_each_member(name, own):
        members, runs = 1, members
    for option in (MIX, EACH_MEMBER, FIRST_MEMBERS):
        options.pop(option, None)
    batch = options.get("meta.batch_size", base.meta.batch_size)
    if options.get("meta.method", base.meta.method) == "pretraining" and batch != MEMBERS:
        batch = min(batch, members)  # it keeps one agent a member
    options["meta.batch_size"] = members if batch == MEMBERS else batch
    learner = _whole_learner(base, options, trusts_imports=trusts_imports)
    if learner is not None:
        whole = total_agent_steps(base) // runs
        options |= {**_WHOLE_LEARNING, "task.agent_steps": whole}
        if "share" not in learner.options and "agent.share" not in own:
            options.pop("agent.share", None)  # what it can share is an encoder
    try:
        if given := [option for option in _FOUND if option in own]:
            raise ValueError(f"{given[0]}: {_FOUND[given[0]]}; leave it out")
        one = parse_options(TrainConfig, options, defaults=shared, trusts_imports=trusts_imports)
        each, total = runs * agent_steps_per_meta_step(one), total_agent_steps(base)
        meta_steps, rest = divmod(total, each)
        if rest or not meta_steps:
            many = f" in {runs} members' runs" if runs > 1 else ""
            raise ValueError(
                f"a meta-step has {each:,} agent steps{many}, which do not divide the study's "
                f"total of {total:,}; all arms get the same, so change meta.batch_size or "
                "meta.meta_steps"
            )
    except ValueError as error:
        raise ValueError(f"arms.{name}: {error}") from None
    task = replace(one.task, games=list(games))
    return replace(one, task=task, meta=replace(one.meta, meta_steps=meta_steps))


def _whole_learner(
    base: TrainConfig, options: Mapping[str, Any], *, trusts_imports: bool
) -> type[Learner] | None:
    """Return the learner of an arm that has one agent go on, if it knows whole tasks alone."""
    if options.get("meta.method") != "pretraining" or options["meta.batch_size"] != 1:
        return None
    find = learner_class if trusts_imports else declared
    learner = find(base.task, base.agent)
    return None if learner is None or learner.carries_over else learner


_WHOLE_LEARNING: Final = {
    "meta.method": "reptile",
    "meta.optimizer": "sgd",
    "meta.meta_lr": 1.0,
}
"""With one meta-step, in place of an agent that goes on from round to round: it ends where the
agent does."""

_FOUND: Final = {
    "meta.meta_steps": "is found, so that all arms learn from as many agent steps",
    "task.games": f"is the study's games; {FIRST_MEMBERS} takes the first of them",
    "run_dir": "runs lie in the study's folder",
}
"""Options that no arm sets, and why."""


def agent_steps_per_meta_step(config: TrainConfig) -> int:
    """Return the agent steps of all tasks of a meta-step."""
    return config.meta.batch_size * config.task.suite.budget(config.task)


def total_agent_steps(config: TrainConfig) -> int:
    """Return the agent steps of training data of a meta-training run."""
    return config.meta.meta_steps * agent_steps_per_meta_step(config)


def flat_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return an arm's own options by dotted name, nested ones too."""
    whole = ("agent.encoder_arguments", "agent.options", "agent.sb3")
    return flatten(options, whole=whole)
