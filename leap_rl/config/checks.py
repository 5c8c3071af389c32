"""Checks of options that only several groups of them together can fail."""

from __future__ import annotations

from leap_rl.meta.config import MetaConfig
from leap_rl.rl.config import AgentConfig
from leap_rl.seeding import SEED_BITS
from leap_rl.tasks.config import TaskConfig
from leap_rl.training.config import RuntimeConfig


def check(seed: int, runtime: RuntimeConfig, task: TaskConfig, agent: AgentConfig) -> None:
    """Refuse what the options of any run cannot mean together.

    Raises:
        ValueError: The seed is out of range, or two options contradict each other.
    """
    if not 0 <= seed < 2**SEED_BITS:
        raise ValueError(f"seed = {seed}: must be at least 0 and below 2**{SEED_BITS}")
    if runtime.env_processes > task.num_envs:
        raise ValueError(
            f"runtime.env_processes = {runtime.env_processes}: must be at most task.num_envs = "
            f"{task.num_envs}, the emulators that they share"
        )
    task.family.check(task, agent, runtime.env_processes)
    share = runtime.gpus_per_trainer
    if share != "auto" and (share > 0) != (agent.device == "cuda"):
        raise ValueError(
            f"runtime.gpus_per_trainer = {share}: with agent.device = {agent.device} it must be "
            + ("more than 0" if agent.device == "cuda" else "0, as no trainer uses a GPU")
            + ", or auto"
        )


def task_of_rounds(meta: MetaConfig, task: TaskConfig) -> TaskConfig:
    """Return what a game's agent does in one round of finetuning.

    Raises:
        ValueError: A round has more slots than there are games, or is to be cut off.
    """
    games = len(task.resolved_games)
    if games and meta.batch_size > games:  # which alphabets there are, the data says later
        raise ValueError(
            f"meta.batch_size = {meta.batch_size}: meta.method = finetune keeps one agent a game, "
            f"and task.games has {games}; take at most {games}"
        )
    if meta.close_after_s is not None:
        raise ValueError(
            f"meta.close_after_s = {meta.close_after_s}: meta.method = finetune cannot cut off "
            "agents that continue; leave it out"
        )
    if meta.updates_per_round is None:
        return task
    return task.family.with_updates(task, meta.updates_per_round)


def check_maml(meta: MetaConfig, task: TaskConfig) -> None:
    """Refuse tasks that cannot be differentiated through, or that may be cut off before it is done.

    Raises:
        ValueError: They are.
    """
    if not task.family.differentiable:
        raise ValueError(
            f"meta.method = maml: differentiates through a task's updates, which takes a loss "
            f"that can be evaluated at any parameters, and task.kind = {task.kind} has none; "
            "take another method, or task.kind = omniglot"
        )
    if meta.close_after_s is not None:
        raise ValueError(
            f"meta.close_after_s = {meta.close_after_s}: meta.method = maml differentiates a task "
            "at its end, and a task that is cut off has none; leave it out"
        )
