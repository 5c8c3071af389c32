"""The learners by `agent.algorithm`: leap_rl's, installed packages', and those that a user names.

Importing this imports no torch.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import isfunction
from typing import Any, Final

from leap_rl.core.lines import in_a_line
from leap_rl.learners.a2c.learner import A2C
from leap_rl.learners.classifier.learner import Classifier
from leap_rl.learners.config import LIBRARYS_OWN, AgentConfig, is_own_learner
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.gradient_descent.learner import GradientDescent
from leap_rl.learners.learner import Learner
from leap_rl.learners.rllib.learner import PPO
from leap_rl.learners.sb3.learner import ALGORITHMS
from leap_rl.learners.script.learner import ARGUMENTS, Script
from leap_rl.networks.custom import EncoderSpec
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.suite import GameSuite

_OURS: tuple[type[Learner], ...] = (A2C, PPO, *ALGORITHMS, Classifier, GradientDescent)

LEARNERS: dict[str, type[Learner]] = {learner.name: learner for learner in _OURS}

ENTRY_POINTS: Final = "leap_rl.learners"
"""The group of entry points by which installed packages bring learners."""


def algorithm_of(task: TaskConfig, agent: AgentConfig) -> str:
    """Return the name of who learns: `agent.algorithm`, or what fits the tasks."""
    return task.suite.learned_by if agent.algorithm == "auto" else agent.algorithm


def declared(task: TaskConfig, agent: AgentConfig) -> type[Learner] | None:
    """Return who learns; None for `package:Learner`, as reading a config imports nothing.

    ValueError: there is no such learner.
    """
    name = algorithm_of(task, agent)
    if name in LEARNERS:
        return LEARNERS[name]
    return None if is_own_learner(name) else _installed(name)


def check_budget(task: TaskConfig, agent: AgentConfig) -> None:
    """Raise ValueError for a budget of broken updates; learners with batches of their own do it."""
    learner = declared(task, agent)
    if learner is None or not learner.own_batches:
        task.check_budget()


def encoder_shared_by(
    task: TaskConfig, agent: AgentConfig
) -> tuple[EncoderSpec, tuple[int, ...]] | None:
    """Return the encoder that a run's agents share, and the observations that it takes.

    None where they share none. The options must be a run's, resolved; `agent.share` says whether
    they share all of it, and whether they share heads too.
    """
    learner, suite = declared(task, agent), task.suite
    if not isinstance(suite, GameSuite) or not (learner is None or learner.shares_encoder):
        return None
    if agent.encoder == LIBRARYS_OWN:
        return None
    return agent.encoder_spec, suite.observation_shape(task)


def learner_class(task: TaskConfig, agent: AgentConfig) -> type[Learner]:
    """Return who learns; imports the module of one's own. ValueError if there is none."""
    known = declared(task, agent)
    if known is not None:
        return known
    module, _, name = agent.algorithm.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # a script may read its command line
        raise _cannot_load(agent.algorithm, agent.algorithm, error) from error
    return Script if isfunction(found) else _checked(agent.algorithm, found)


def make_learner(*, task: TaskConfig, agent: AgentConfig, **given: Any) -> Learner:
    """Make who learns; for other arguments and errors see `Learner` and `learner_class`."""
    check_budget(task, agent)
    return learner_class(task, agent)(task=task, agent=agent, **given)


def make_game_learner(*, task: TaskConfig, agent: AgentConfig, **given: Any) -> GameLearner:
    """Make who plays, as `make_learner`; ValueError if nobody plays these tasks."""
    learner = make_learner(task=task, agent=agent, **given)
    if not isinstance(learner, GameLearner):
        raise ValueError(f"agent.algorithm = {learner.name}: plays no games")
    return learner


def package_of(algorithm: str) -> tuple[str, str] | None:
    """Return the name and version of the package that brings a learner, if one does."""
    known = algorithm in ("auto", *LEARNERS) or is_own_learner(algorithm)
    point = None if known else _entry_point(algorithm)
    if point is None or point.dist is None:
        return None
    return point.dist.name, point.dist.version


def _entry_point(name: str) -> EntryPoint | None:
    return next(iter(entry_points(group=ENTRY_POINTS, name=name)), None)


@cache
def _installed(name: str) -> type[Learner]:
    point = _entry_point(name)
    if point is None:
        others = sorted(entry_points(group=ENTRY_POINTS).names)
        raise ValueError(
            f"agent.algorithm = {name!r}: must be one of {', '.join([*LEARNERS, *others])}, or "
            "package:Learner of your own; a learner of another package is there once that is "
            f"installed (entry point {ENTRY_POINTS})"
        )
    try:
        found = point.load()
    except (Exception, SystemExit) as error:
        raise _cannot_load(name, point.value, error) from error
    if isfunction(found):
        raise ValueError(
            f"agent.algorithm = {name}: {point.value} is a function; name a loop by itself, as "
            f"agent.algorithm = {point.value}"
        )
    learner = _checked(name, found)
    if learner.name != name:
        raise ValueError(f"agent.algorithm = {name}: {point.value} has the name {learner.name!r}")
    return learner


def _checked(algorithm: str, found: object) -> type[Learner]:
    if not (isinstance(found, type) and issubclass(found, Learner)):
        raise ValueError(
            f"agent.algorithm = {algorithm}: {found!r} must be a class of "
            f"leap_rl.learners.learner.Learner, or a function of {', '.join(ARGUMENTS)}"
        )
    lacks = sorted(getattr(found, "__abstractmethods__", ()))
    lacks += [name for name in ("name", "learns", "options") if not hasattr(found, name)]
    if lacks:
        raise ValueError(f"agent.algorithm = {algorithm}: {found!r} lacks {', '.join(lacks)}")
    return found


def _cannot_load(algorithm: str, what: str, error: BaseException) -> ValueError:
    reason = in_a_line(error)
    return ValueError(f"agent.algorithm = {algorithm}: cannot load {what}: {reason}")
