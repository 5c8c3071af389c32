"""What to try next with a run's initialization, in words and as a command."""

from __future__ import annotations

from shlex import quote

from leap_rl.core.parsing import TRUST_IMPORTS
from leap_rl.learners.config import AgentConfig, ClassifierConfig
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.images.config import OmniglotConfig

ATARI_AGENT_STEPS = 96_000
"""Of an agent in a first comparison: some minutes."""


def next_step(task: TaskConfig, agent: AgentConfig, run: str) -> tuple[str, str] | None:
    """Return how to compare a run's initialization with random ones; none for what has no games."""
    suite = task.suite
    if suite.unit == "examples":
        return (
            "learn alphabets that it never saw from this initialization",
            f"learn --init {run} --task.kind {task.kind} --task.games held_out "
            f"--task.data {task.data}{_image_options(task, agent)}",
        )
    if suite.compared_by is not None:
        return None
    imports = [suite.imports(task), *agent.imports.values()]
    trust = f" {TRUST_IMPORTS}" if any(imports) else ""
    game, what = quote(task.resolved_games[0]), "a game"
    agent_steps, each = task.agent_steps, task.agent_steps_per_update
    if suite.frames_per_agent_step(task):
        what = "a game it never saw"
        game = "breakout@mode=12" if "breakout" in task.resolved_games else "breakout"
        agent_steps = each * max(1, round(ATARI_AGENT_STEPS / each))
    return (
        f"see whether agents learn {what} faster from this initialization",
        f"evaluate --init {run} --games {game} --seeds 3 --agent_steps {agent_steps} --open{trust}",
    )


def _image_options(task: TaskConfig, agent: AgentConfig) -> str:
    """Return the options in which a run's tasks differ from the defaults, as words."""
    data, learner = OmniglotConfig(), ClassifierConfig()
    given = {
        "task.omniglot.split": (task.omniglot.split, data.split),
        "agent.classifier.share": (agent.classifier.share, learner.share),
        "task.omniglot.held_out": (task.omniglot.held_out, data.held_out),
    }
    return "".join(f" --{name} {value}" for name, (value, other) in given.items() if value != other)
