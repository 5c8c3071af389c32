"""The options of each command that makes a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from leap_rl.core.parsing import parse_options
from leap_rl.core.seeding import SEED_BITS
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import check_budget, declared
from leap_rl.meta.config import MetaConfig
from leap_rl.runs.validation import ValidationConfig
from leap_rl.tasks.config import TaskConfig
from leap_rl.tracking.config import TrackingConfig
from leap_rl.training.config import RuntimeConfig


@dataclass(frozen=True)
class _Options:
    """The options that all these commands share."""

    command: ClassVar[str]
    init_option: ClassVar[str] = "init"
    """The option that names what the encoder starts from."""

    seed: int = 0
    """The run's seed; all of its random streams derive from it."""

    run_dir: str | None = None
    """The run's folder, which must not hold a run yet: a path, or in an object store s3://bucket/mine
    or gs://bucket/mine. None makes runs/COMMAND-DATE-TIME."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**SEED_BITS:
            raise ValueError(f"seed = {self.seed}: must be at least 0 and below 2**{SEED_BITS}")
        runtime, task, device = self.runtime, self.task, self.agent.device
        if task.is_sized and runtime.own_env_processes > task.num_envs:
            raise ValueError(
                f"runtime.env_processes = {runtime.env_processes}: must be at most task.num_envs = "
                f"{task.num_envs}, the emulators that they share"
            )
        learner = declared(task, self.agent)
        check_budget(task, self.agent)
        if learner is not None:
            # A frozen dataclass is set through object.
            object.__setattr__(self, "agent", learner.without_others(self.agent))
            learner.check(task, self.agent, runtime.own_env_processes)
        share = runtime.gpus_per_trainer
        if share != "auto" and (share > 0) != (device == "cuda"):
            raise ValueError(
                f"runtime.gpus_per_trainer = {share}: with agent.device = {device} it must be "
                + ("more than 0" if device == "cuda" else "0, as no trainer uses a GPU")
                + ", or auto"
            )

    @classmethod
    def from_yaml(cls, config: str | Path, options: Mapping[str, Any] | None = None) -> Self:
        """Return the options that a file and what is given beside it say.

        Args:
            config: A file, or the name of one that comes with leap_rl, such as `demo`.
            options: By dotted name, such as `{"meta.meta_steps": 3}`; they override the file's.

        Raises:
            ValueError: There is no such file, or something in it cannot be; one line.
        """
        # Reading imports nothing; making a run asks whether it may.
        given = {"config": str(config), **(options or {})}
        return parse_options(cls, given, trusts_imports=True)

    @property
    def imports(self) -> dict[str, tuple[str, ...]]:
        """The modules that a run imports because an option names them, by that option."""
        return {"task.games": self.task.suite.imports(self.task), **self.agent.imports}


@dataclass(frozen=True)
class TrainConfig(_Options):
    """Meta-train an initialization over many games."""

    command: ClassVar[str] = "train"
    init_option: ClassVar[str] = "meta.init"

    meta: MetaConfig = field(default_factory=MetaConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        learner = declared(self.task, self.agent)
        meta = self.meta.resolved(plain_descent=learner is not None and learner.plain_descent)
        object.__setattr__(self, "meta", meta)
        if self.validation.every_meta_steps is not None:
            self.validation.of(self.task)
            _check_validation(self.validation, self.meta, self.task)
        if self.meta.carries_agents:
            # The budget is derived where rounds are given in updates; nobody sets it afterwards.
            object.__setattr__(self, "task", _task_of_rounds(self.meta, self.task))
        if learner is not None:
            self.check_method(learner)

    def check_method(self, learner: type[Learner]) -> None:
        """Raise ValueError for a method that asks for more than the learner can do."""
        name = learner.called(self.agent)
        if self.meta.carries_agents and not learner.carries_over:
            raise ValueError(
                f"meta.method = {self.meta.method}: agents of agent.algorithm = {name} cannot be "
                "carried over to another round; take another meta.method, or agent.algorithm = "
                f"{self.task.suite.learned_by}"
            )
        if not learner.repeats_batches:
            for option, value in (("method", "fomaml"), ("loss_difference", "same_batch")):
                if getattr(self.meta, option) == value:
                    raise ValueError(
                        f"meta.{option} = {value}: agent.algorithm = {name} computes no loss but "
                        f"those that it learns from; take another meta.{option}"
                    )
        if self.meta.differentiates_updates:
            _check_maml(self.meta, learner, name)

    @property
    def imports(self) -> dict[str, tuple[str, ...]]:
        """The modules that a run imports because an option names them, by that option."""
        if self.validation.every_meta_steps is None:
            return super().imports
        judging = self.validation.of(self.task)
        return {**super().imports, "validation.games": judging.suite.imports(judging)}


def _task_of_rounds(meta: MetaConfig, task: TaskConfig) -> TaskConfig:
    """Return what a game's agent does in one round of pretraining."""
    games = len(task.task_games)
    if games and meta.batch_size > games:  # which alphabets there are, the data says later
        there = "task.mix_games = true makes" if task.mix_games else "task.games has"
        raise ValueError(
            f"meta.batch_size = {meta.batch_size}: meta.method = pretraining keeps one agent a "
            f"game, and {there} {games}; take at most {games}"
        )
    if meta.close_after_s is not None:
        raise ValueError(
            f"meta.close_after_s = {meta.close_after_s}: meta.method = pretraining cannot cut off "
            "agents that continue; leave it out"
        )
    if not task.is_sized:  # once it is, this is called again
        return task
    return task.suite.with_updates(task, meta.updates_per_round or task.updates)


def _check_maml(meta: MetaConfig, learner: type[Learner], name: str) -> None:
    """Refuse tasks that cannot be differentiated through, or may be cut off before that."""
    if not learner.differentiable:
        raise ValueError(
            f"meta.method = maml: differentiates through a task's updates, which takes a loss "
            f"that can be evaluated at any parameters, and agent.algorithm = {name} has none; take "
            "another method, or task.kind = omniglot"
        )
    if meta.close_after_s is not None:
        raise ValueError(
            f"meta.close_after_s = {meta.close_after_s}: meta.method = maml differentiates a task "
            "at its end, and a task that is cut off has none; leave it out"
        )


def _check_validation(validation: ValidationConfig, meta: MetaConfig, task: TaskConfig) -> None:
    """Refuse validation by tasks of too few updates to tell how fast anything is learned."""
    budgets = {"pretraining": "that of a round", "maml": "the few updates that it differentiates"}
    if meta.method in budgets:
        judge = "leap-rl learn --init" if task.suite.compared_by else "leap-rl evaluate"
        raise ValueError(
            f"validation.every_meta_steps = {validation.every_meta_steps}: with meta.method = "
            f"{meta.method} a task's budget is {budgets[meta.method]}, too short to judge by; "
            f"leave it out, and use {judge} afterwards"
        )


@dataclass(frozen=True)
class LearnConfig(_Options):
    """Learn games without meta-learning, from a random or a given initialization."""

    command: ClassVar[str] = "learn"
    leaves_out: ClassVar[tuple[str, ...]] = ("meta", "validation")
    """Groups of options that a config of `leap-rl train` may have, and that say nothing here."""

    init: str = "random"
    """Where the encoders start: random, RUN, RUN@12 or RUN@best, pretrained:NAME (leap-rl
    pretrained lists them), hf://USER/REPO or hf://USER/REPO@REVISION, a folder that leap-rl export
    wrote, or a file; or sb3:FILE, the policy in an archive that stable-baselines3 saved, or
    torch:FILE, a state dict, whose tensors are taken where names and shapes fit, or by @names=FILE,
    `theirs: ours` a line. After any of these @mix=0.5 starts from half of it and half of the random
    one. A run keeps the file, or the commit, that was found."""


@dataclass(frozen=True)
class EvaluateConfig(_Options):
    """Learn games from initializations and from random encoders, several agents each."""

    command: ClassVar[str] = "evaluate"
    leaves_out: ClassVar[tuple[str, ...]] = LearnConfig.leaves_out

    init: list[str] = field(default_factory=list)
    """Files of the initializations that are compared, pretrained:NAME or hf://USER/REPO: FILE, or
    NAME=FILE,FILE,... for several meta-training runs of one method, which are judged together.
    After a file @mix=0.5 mixes half of it with half of the random encoder of the agent's seed."""

    random: bool = True
    """Learn from random encoders as well: the baseline that the others are compared with."""

    own_start: bool = False
    """Learn from each run's own random start as well (its version 0), which is one more random
    start of the baseline. Costs as many agents as the runs themselves."""

    seeds: int = 10
    """Agents that learn each game from each run's initialization, and from random starts; an
    interval takes three, and five random ones. Those of the same number share everything but where
    they start."""

    random_agents: int | None = None
    """Agents that learn each game from random starts. None: as many as seeds. All comparisons share
    them, so that more of them narrow every interval."""

    save_agents: bool = False
    """Keep the trained agents, heads and encoders, in RUN/agents."""

    clips: bool = False
    """Record a video of the first agent of each initialization in each game, up to a minute, in
    RUN/clips and in wandb. Sets save_agents. Atari games alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clips:
            check_recordable(self.task, self.agent, "clips = true")
            if self.task.mix_games:
                raise ValueError("clips = true: task.mix_games = true has no single game to record")
        if self.clips:  # they are of agents that are kept
            object.__setattr__(self, "save_agents", True)
        for name in ("seeds", "random_agents"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} = {value}: must be at least 1")
        if self.random_agents is not None and not self.random:
            raise ValueError(
                f"random_agents = {self.random_agents}: random = false leaves these agents out; "
                "leave out one of the two options"
            )
        if not (self.init or self.random):
            raise ValueError("init = []: name a run or an initialization, as --init runs/mine")
        if instead := self.task.suite.compared_by:
            raise ValueError(
                f"task.kind = {self.task.kind}: has no episodes to compare by; {instead}"
            )


def check_recordable(task: TaskConfig, agent: AgentConfig, what: str) -> None:
    """Raise ValueError for games that are not recorded, or agents that no video can be made of."""
    if not task.suite.records_video:
        raise ValueError(f"{what}: task.kind = {task.kind} cannot be recorded, Atari games alone")
    learner = declared(task, agent)
    if learner is None or not learner.saves_player:
        raise ValueError(
            f"{what}: agents of agent.algorithm = {agent.algorithm} cannot be recorded, those of "
            "a2c alone"
        )


Config = TrainConfig | LearnConfig | EvaluateConfig

COMMANDS: dict[str, type[Config]] = {
    config.command: config for config in (TrainConfig, LearnConfig, EvaluateConfig)
}
"""The config of each command that makes a run."""
