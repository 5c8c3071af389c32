"""How commands and places are spelled for the user, and which command to try next."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote

from leap_rl.core.lines import say
from leap_rl.core.parsing import TRUST_IMPORTS
from leap_rl.learners.config import AgentConfig, ClassifierConfig
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.suite import GameSuite


def tell(text: str) -> None:
    """Print a message of this program on stderr."""
    say(f"leap-rl: {text}", file=sys.stderr)


def program() -> str:
    """Return how the user can call this program again from where he is."""
    called = Path(sys.argv[0])
    if called.name != "leap-rl":
        return "python -m leap_rl"
    return "leap-rl" if shutil.which("leap-rl") else shown(called)


def quoted(where: Path | RunFolder) -> str:
    """Return the same as `shown`, as a word of a shell's command."""
    return shlex.quote(shown(where))


def shown(where: Path | RunFolder) -> str:
    """Return a path as the user would write it from where he is, or where a run lives."""
    if isinstance(where, RunFolder) and where.url is not None:
        return where.url
    path = (where.path if isinstance(where, RunFolder) else where).absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def trusting(imports: Mapping[str, Sequence[str]]) -> str:
    """Return what a command says after its options if modules are imported, see `imports`."""
    return f" {TRUST_IMPORTS}" if any(imports.values()) else ""


def resume_command(folder: RunFolder, imports: Mapping[str, Sequence[str]]) -> str:
    """Return the command that continues a run which imports these."""
    return f"{program()} resume {quoted(folder)}{trusting(imports)}"


ATARI_AGENT_STEPS = 96_000
"""Of an agent in a first comparison: some minutes."""


def next_step(task: TaskConfig, agent: AgentConfig, run: str) -> tuple[str, str] | None:
    """Return how to compare a run's initialization with random ones; none for what has no games."""
    suite = task.suite
    if task.kind == "images":
        return (
            "learn another data set from this initialization",
            f"learn --init {run} --task.kind images --task.games '[\"NAME\"]' "
            f"--task.data {task.data}{_image_options(task, agent)}",
        )
    if suite.unit == "examples":
        return (
            "learn alphabets that it never saw from this initialization",
            f"learn --init {run} --task.kind {task.kind} --task.games held_out "
            f"--task.data {task.data}{_image_options(task, agent)}",
        )
    if suite.compared_by is not None:
        return None
    trust = trusting({"task.games": suite.imports(task), **agent.imports})
    assert isinstance(suite, GameSuite), "others have no episodes to compare by"
    unseen = suite.unseen(task)
    what = "a game" if unseen else "a GAME of yours"
    agent_steps, each = task.agent_steps, task.agent_steps_per_update
    if suite.frames_per_agent_step(task):
        agent_steps = each * max(1, round(ATARI_AGENT_STEPS / each))
    return (
        f"see whether agents learn {what} that it never saw sooner from this initialization",
        f"evaluate --init {run} --games {quote(unseen or 'GAME')} --seeds 5 "
        f"--agent_steps {agent_steps} --open{trust}",
    )


_IMAGE_OPTIONS = {
    "images": ("batch_size", "schedule", "validation", "limit"),
    "omniglot": ("split", "held_out"),
}
"""What of a run's tasks holds for the next ones too. What ends a task does not: a set that no
start has seen is learned for longer."""


def _image_options(task: TaskConfig, agent: AgentConfig) -> str:
    """Return the options in which a run's tasks differ from the defaults, as words."""
    words, default = "", TaskConfig()
    for name in _IMAGE_OPTIONS[task.kind]:
        value = getattr(getattr(task, task.kind), name)
        if value != getattr(getattr(default, task.kind), name):
            words += f" --task.{task.kind}.{name} {value}"
    if (share := agent.classifier.share) != ClassifierConfig().share:
        words += f" --agent.classifier.share {share}"
    return words
