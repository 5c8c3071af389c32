"""What a study takes where nothing is said: found by what its members look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from leap_rl.core.choices import Domain
from leap_rl.core.parsing import find, flatten
from leap_rl.core.plain_yaml import load
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import LEARNERS
from leap_rl.tasks.options import SIZES
from leap_rl.tasks.suites import OPTIONS, SUITES, suite_of

LEAST_UPDATES: Final = 16
"""Of a task by a learner with a length of unroll of its own, where sizes are not given."""
MOST_TASKS: Final = 16
"""A meta-step's tasks, at most, where meta.batch_size is not given."""

Kind: TypeAlias = Domain | Literal["catch"]

_CONFIGS: Final[Mapping[Kind, str]] = {
    "atari": "atari",
    "catch": "atari",
    "vectors": "gymnasium_classic_control",
    "continuous": "gymnasium_classic_control",
    "images": "minatar",
}
"""Configs that come with leap_rl, whose options a study takes where none are given."""

_NOT_TAKEN: Final = ("seed", "task.games", "task.kind", "meta.batch_size", "meta.meta_lr")
"""Options of these configs that are about their own games; `SIZES` are by what games are like."""

_QUICK: Final[Mapping[str, Any]] = {
    "runs": 1,
    "agents": 5,
    "random_agents": 10,
    "meta.meta_steps": 6,
}
_QUICK_SLOW: Final[Mapping[str, Any]] = {
    **_QUICK,  # agents of which there is an interval just so
    "agents": 3,
    "random_agents": 6,
    "meta.meta_steps": 4,
}
"""Of Atari's games and of learners but A2C, five to ten times as slow, and of long budgets."""
_LONG: Final = 100_000
"""Agent steps of a task."""
MOST_QUICK_SLOW_TASKS: Final = 4
"""A meta-step's tasks, at most, in a quick study of what is slow."""
_QUICK_AGENT_STEPS: Final[Mapping[Kind, int]] = {
    "atari": 100_000,  # of which agents gain something in Breakout and Assault: docs/results.md
    "catch": 16_000,
    "vectors": 32_000,
    "continuous": 32_000,
    "images": 64_000,
}


def defaults_of(given: Mapping[str, Any], *, trusts_imports: bool = False) -> dict[str, Any]:
    """Return what a study of these options takes where none is given, all by dotted name.

    Raises:
        ValueError: Its members are not named, or are of a kind that cannot be studied.
    """
    games = given.get("games", [])
    named = [games] if isinstance(games, str) else list(games)
    if not named:
        raise ValueError("games = []: name the members of the family to learn from")
    suite = given.get("task.kind") or _suite_of(named)
    refuse_without_episodes(suite)
    members = list(resolved(suite, "games", named))
    if given.get("task.games", members) != members:
        raise ValueError("task.games: a study's members are named by games and held_out")
    kind = _kind_of(suite, members, trusts_imports=trusts_imports)
    found = _taken(kind, suite)
    most = MOST_TASKS
    if given.get("quick"):
        budget = _number(given, "task.agent_steps", _QUICK_AGENT_STEPS[kind])
        found |= {**_quick(suite, given, budget), "task.agent_steps": budget}
        most = MOST_QUICK_SLOW_TASKS if _is_slow(suite, given, budget) else most
    found["meta.batch_size"] = min(len(members), most)
    found["task.games"] = members  # groups are checked before the study is
    algorithm = given.get("agent.algorithm", "auto")
    left_out: tuple[str, ...] = ()
    if algorithm not in ("auto", "a2c"):
        learner = LEARNERS.get(algorithm)
        repeats = learner is not None and learner.repeats_batches
        left_out = ("agent.",) if repeats else ("agent.", "meta.loss_difference")
        if learner is not None:
            found |= _in_own_unrolls(learner, found, given)
    return {
        name: value
        for name, value in found.items()
        if name not in given and not name.startswith(left_out)
    }


def _in_own_unrolls(
    learner: type[Learner], found: Mapping[str, Any], given: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return sizes in whole unrolls of a learner that has a length of its own, as PPO has 2,048.

    So few environments that a task has 16 updates, where their number is not given.
    """
    length = learner.own_unroll_length(_of_agent(given))
    if length is None:
        return {}
    budget = _number(given, "task.agent_steps", found["task.agent_steps"])
    envs = _own_envs(given, budget, length, most=found["task.num_envs"])
    each = envs * length
    return {
        "task.num_envs": envs,
        "task.unroll_length": length,
        "task.agent_steps": max(1, round(budget / each)) * each,
    }


def _own_envs(given: Mapping[str, Any], budget: int, length: int, *, most: int) -> int:
    """Return the environments that are given, or so few that a task has `LEAST_UPDATES`."""
    return _number(given, "task.num_envs", max(1, min(most, budget // (LEAST_UPDATES * length))))


def _of_agent(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name[6:]: value for name, value in given.items() if name.startswith("agent.")}


def quick_sizes(given: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of a quick study, over those of its file but not of the command line.

    Args:
        given: All options that are given, by dotted name.
        typed: Those of the command line.
    """
    games = given.get("games", [])
    suite = given.get("task.kind") or _suite_of([games] if isinstance(games, str) else games)
    sizes: dict[str, Any] = {"agent_steps": None}
    if agent_steps := _number(given, "task.agent_steps", 0):
        sizes |= _halved(agent_steps // 2, given)
    budget = _number({**sizes, **typed}, "task.agent_steps", 0)
    sizes |= _quick(suite, given, budget)
    return {name: value for name, value in sizes.items() if name not in typed}


def _halved(budget: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a budget in whole updates, and the environments of a learner with its own unrolls."""
    learner = LEARNERS.get(given.get("agent.algorithm", "auto"))
    own = None if learner is None else learner.own_unroll_length(_of_agent(given))
    if own is None:
        update = _number(given, "task.num_envs", 16) * _number(given, "task.unroll_length", 5)
        return {"task.agent_steps": max(1, budget // update) * update}
    envs = _own_envs(given, budget, own, most=16)
    return {"task.num_envs": envs, "task.agent_steps": max(1, budget // (envs * own)) * envs * own}


def _quick(suite: str, given: Mapping[str, Any], budget: int) -> Mapping[str, Any]:
    return _QUICK_SLOW if _is_slow(suite, given, budget) else _QUICK


def _number(given: Mapping[str, Any], name: str, default: int) -> int:
    """Return an option's whole number; the default where it has none, as `auto`, or none that is.

    What is none is refused where all options are read.
    """
    value = given.get(name)
    return value if isinstance(value, int) and value > 0 else default


def _is_slow(suite: str, given: Mapping[str, Any], budget: int) -> bool:
    """Return whether new agents of a budget take minutes each, as far as options tell."""
    other = given.get("agent.algorithm", "auto") not in ("auto", "a2c")
    return suite == "atari" or other or budget >= _LONG


def _suite_of(games: Sequence[str]) -> str:
    """Return the suite that knows all the names; environments' ids are Gymnasium's."""
    for kind in ("atari", "catch"):
        try:
            SUITES[kind].resolve_games(games)
        except ValueError:
            continue
        return kind
    return "gymnasium"


def _kind_of(suite: str, games: Sequence[str], *, trusts_imports: bool) -> Kind:
    """Return what kind of observations the games have; makes one if nothing is to be imported."""
    if suite == "atari" or suite == "catch":
        return "atari" if suite == "atari" else "catch"
    if suite != "gymnasium" or not games:
        return "vectors"
    from leap_rl.envs.games import traits_of
    from leap_rl.envs.names import parse_game

    parsed = parse_game(games[0])
    if parsed.module is not None and not trusts_imports:
        return "vectors"  # the study is refused: its modules are not trusted
    traits = traits_of(parsed.name)
    if len(traits.observation_space.shape) > 1:
        return "images"
    return "continuous" if traits.continuous else "vectors"


def _taken(kind: Kind, suite: str) -> dict[str, Any]:
    """Return the options, by dotted name, of the config that fits such games."""
    loaded = flatten(load(find(_CONFIGS[kind]).read_text()))
    taken = {name: value for name, value in loaded.items() if name not in _NOT_TAKEN}
    without_effect = set(OPTIONS) - set(suite_of(suite).options)
    for name in [name for name in taken if name.startswith("task.")]:
        if name.split(".")[1] in without_effect:
            del taken[name]
    if suite == "gymnasium" and kind != "catch":  # whose defaults are by what its games are like
        taken = {name: value for name, value in taken.items() if not name.startswith("agent.")}
        taken |= {f"task.{name}": size for name, size in SIZES[kind]._asdict().items()}
    return {**taken, "task.kind": suite, "runtime.kind": "local"}


def refuse_without_episodes(kind: str) -> None:
    """Raise ValueError for tasks that new agents cannot be compared by."""
    if instead := suite_of(kind).compared_by:
        raise ValueError(f"task.kind = {kind}: has no episodes to compare by; {instead}")


def resolved(kind: str, option: str, games: Sequence[str] | str) -> tuple[str, ...]:
    """Return the members that an option of a study names; ValueError if there are none such."""
    named = [games] if isinstance(games, str) else list(games)
    try:
        return suite_of(kind).resolve_games(named)
    except ValueError as error:
        raise ValueError(str(error).replace("task.games", option)) from None
