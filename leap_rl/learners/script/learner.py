"""A script's own loop as a learner. Importing this imports no torch."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, ClassVar, Final

from leap_rl.core.lines import in_a_line
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.game_learner import GameLearner

if TYPE_CHECKING:
    from leap_rl.learners.task import Task, TaskSpec

ARGUMENTS: Final = ("make_env", "encoder", "budget", "seed", "report")
"""What the function is called with, in this order; `agent.options` come by name."""


@dataclass(frozen=True, kw_only=True)
class Script(GameLearner):
    """A function `learn(make_env, encoder, budget, seed, report, **options)` of a user's module.

    It is one whole learning, from the encoder as it is to the end of the budget, and knows no
    snapshots: a task whose trainer died is learned again from its start.
    """

    name = "module:function"
    options: ClassVar[tuple[str, ...]] = (
        *("encoder", "encoder_arguments", "encoder_sha256", "initial_weights", "options"),
    )
    restorable = False
    carries_over = False
    plays_own_vectors = False
    repeats_batches = False

    def resolved_agent(self) -> AgentConfig:
        self.function()
        return super().resolved_agent()

    def check_machine(self) -> None:
        super().check_machine()
        self.function()

    def __call__(self, spec: TaskSpec) -> Task:
        from leap_rl.learners.script.task import ScriptTask

        return ScriptTask(self, spec, self.function())

    def function(self) -> FunctionType:
        """Return the function.

        Raises:
            ValueError: Its module is not found here, or it does not take what it is called with.
        """
        algorithm = self.agent.algorithm
        module, _, name = algorithm.partition(":")
        try:
            function: FunctionType = getattr(import_module(module), name)
        except (Exception, SystemExit) as error:  # a script may read its command line
            raise ValueError(
                f"agent.algorithm = {algorithm}: cannot be imported here ({in_a_line(error)}); "
                "install its module, or put its folder on PYTHONPATH, the same on every machine"
            ) from None
        try:
            inspect.signature(function).bind(*ARGUMENTS, **self.agent.options)
        except TypeError as error:
            raise ValueError(
                f"agent.algorithm = {algorithm}: is called with {', '.join(ARGUMENTS)}, and with "
                f"agent.options = {self.agent.options} by name: {error}"
            ) from None
        return function
