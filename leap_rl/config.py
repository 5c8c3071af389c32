"""The configs of the commands, composed of what the packages own.

Fields are *defining* or *operational*. The defining ones say what is computed: the initialization
after a meta-step is a function of them alone, and the fingerprint is their SHA-256. The
operational ones say where, how long and how visibly.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from leap_rl.meta.config import MetaConfig
from leap_rl.rl.config import AgentConfig
from leap_rl.seeding import SEED_BITS
from leap_rl.tasks.config import TaskConfig
from leap_rl.tracking.config import TrackingConfig
from leap_rl.training.config import RuntimeConfig

OPERATIONAL = frozenset({"run_dir", "runtime", "tracking", "meta.meta_steps", "task.data", "clips"})
"""Options, or groups of them, that change no bit of what is computed. Data has its own digest."""


def _check(seed: int, runtime: RuntimeConfig, task: TaskConfig, agent: AgentConfig) -> None:
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


def _task_of_rounds(meta: MetaConfig, task: TaskConfig) -> TaskConfig:
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
            "agents that go on; leave it out"
        )
    if meta.updates_per_round is None:
        return task
    return task.family.with_updates(task, meta.updates_per_round)


def _check_maml(meta: MetaConfig, task: TaskConfig) -> None:
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


def _check_validation(validation: ValidationConfig, meta: MetaConfig, task: TaskConfig) -> None:
    """Refuse validation by tasks of too few updates to tell how fast anything is learned.

    Raises:
        ValueError: The method's are.
    """
    budgets = {"finetune": "that of a round", "maml": "the few updates that it differentiates"}
    if meta.method in budgets:
        judge = "leap-rl learn --init" if task.family.compared_by else "leap-rl evaluate"
        raise ValueError(
            f"validation.every_meta_steps = {validation.every_meta_steps}: with meta.method = "
            f"{meta.method} a task's budget is {budgets[meta.method]}, too short to judge by; "
            f"leave it out, and use {judge} afterwards"
        )


@dataclass(frozen=True)
class ValidationConfig:
    """Learning games from the initialization as it stands, while the run goes on."""

    every_meta_steps: int | None = None
    """Meta-steps between two validations; the first is of version 0, the baseline of the others.
    A validation costs as much as meta-training on as many games. None: never."""

    games: list[str] | str | None = None
    """Games to learn with the budget of the run's tasks. Games that are neither meta-trained on nor
    evaluated in the end keep what is measured in the end believable. None: for Atari boxing and
    seaquest."""

    agents: int = 1
    """Agents that learn each game, whose mean is taken. With one a game, which version is the best
    is largely chance, and `leap-rl evaluate` says so of RUN@best. Each one costs as much."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range.
        """
        if self.every_meta_steps is not None and self.every_meta_steps < 1:
            raise ValueError(
                f"validation.every_meta_steps = {self.every_meta_steps}: must be at least 1, or "
                "null"
            )
        if self.agents < 1:
            raise ValueError(f"validation.agents = {self.agents}: must be at least 1")
        if self.every_meta_steps is None and self.agents != 1:
            raise ValueError(
                f"validation.agents = {self.agents}: has no effect without "
                "validation.every_meta_steps; give both"
            )
        if self.every_meta_steps is None and self.games is not None:
            raise ValueError(
                f"validation.games = {self.games}: has no effect without "
                "validation.every_meta_steps; give both"
            )

    def of(self, task: TaskConfig) -> TaskConfig:
        """Return the tasks of validation, games spelled out, for a run with tasks like ``task``.

        Raises:
            ValueError: There are no such games, or none is named.
        """
        games = self.games
        if games is None and task.family.validation_games is not None:
            games = list(task.family.validation_games)
        if games is None:
            raise ValueError(
                f"validation.games = null: name the games, as task.kind = {task.kind} has no "
                "default"
            )
        try:
            return replace(task, games=games)
        except ValueError as error:
            raise ValueError(str(error).replace("task.games", "validation.games")) from None


@dataclass(frozen=True)
class TrainConfig:
    """Meta-train an initialization over many games."""

    command: ClassVar[str] = "train"

    seed: int = 0
    """The run's seed; all of its random streams derive from it."""

    run_dir: str | None = None
    """The run's folder, which must not hold a run yet: a path, or in an object store s3://bucket/mine
    or gs://bucket/mine. None makes runs/train-DATE-TIME."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    meta: MetaConfig = field(default_factory=MetaConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

    def __post_init__(self) -> None:
        """Refuse what the fields cannot mean together.

        Raises:
            ValueError: The seed is out of range, or two fields contradict each other.
        """
        _check(self.seed, self.runtime, self.task, self.agent)
        meta = self.meta.resolved(plain_descent=self.task.family.plain_descent)
        object.__setattr__(self, "meta", meta)
        if self.validation.every_meta_steps is not None:
            self.validation.of(self.task)
            _check_validation(self.validation, self.meta, self.task)
        if self.meta.keeps_tasks:
            # The budget is derived where rounds are given in updates; nobody sets it afterwards.
            object.__setattr__(self, "task", _task_of_rounds(self.meta, self.task))
        if self.meta.differentiates_updates:
            _check_maml(self.meta, self.task)


@dataclass(frozen=True)
class LearnConfig:
    """Learn games without meta-learning, from a random or a given initialization."""

    command: ClassVar[str] = "learn"

    seed: int = 0
    """The run's seed; all of its random streams derive from it."""

    run_dir: str | None = None
    """The run's folder, which must not hold a run yet: a path, or in an object store s3://bucket/mine
    or gs://bucket/mine. None makes runs/learn-DATE-TIME."""

    init: str = "random"
    """Where the encoders start: random, pretrained:NAME (leap-rl pretrained lists them), or a file
    such as RUN/checkpoints/000100/initialization.safetensors."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

    def __post_init__(self) -> None:
        """Refuse what the fields cannot mean together.

        Raises:
            ValueError: The seed is out of range, or two fields contradict each other.
        """
        _check(self.seed, self.runtime, self.task, self.agent)


@dataclass(frozen=True)
class EvaluateConfig:
    """Learn games from initializations and from random encoders, several agents each."""

    command: ClassVar[str] = "evaluate"

    seed: int = 0
    """The evaluation's seed; all of its random streams derive from it."""

    run_dir: str | None = None
    """The evaluation's folder, which must not hold a run yet: a path, or in an object store
    s3://bucket/mine or gs://bucket/mine. None makes runs/evaluate-DATE-TIME."""

    init: list[str] = field(default_factory=list)
    """Files of the initializations that are compared, or pretrained:NAME: FILE, or
    NAME=FILE,FILE,... for several meta-training runs of one method, which are judged together."""

    random: bool = True
    """Learn from random encoders as well: the baseline that the others are compared with."""

    own_start: bool = False
    """Learn from each run's own random start as well (its version 0): a second baseline, whose
    agents share a start as those of the run do. Costs as many agents as the runs themselves."""

    seeds: int = 10
    """Agents that learn each game from each run's initialization. Those of the same number share
    everything but where their encoders start."""

    save_agents: bool = False
    """Keep the trained agents, heads and encoders, in RUN/agents."""

    clips: bool = False
    """Record a video of the first agent of each initialization in each game, up to a minute, in
    RUN/clips and in wandb. Sets save_agents. Atari games alone."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

    def __post_init__(self) -> None:
        """Refuse what the fields cannot mean together.

        Raises:
            ValueError: A field is out of range, or two fields contradict each other.
        """
        _check(self.seed, self.runtime, self.task, self.agent)
        if self.clips and not self.task.family.filmed:
            raise ValueError(
                f"clips = true: task.kind = {self.task.kind} cannot be filmed, Atari games alone"
            )
        if self.clips:  # they are of agents that are kept
            object.__setattr__(self, "save_agents", True)
        if self.seeds < 1:
            raise ValueError(f"seeds = {self.seeds}: must be at least 1")
        if not (self.init or self.random):
            raise ValueError("init = []: name a run or an initialization, as --init runs/mine")
        if instead := self.task.family.compared_by:
            raise ValueError(
                f"task.kind = {self.task.kind}: has no episodes to compare by; {instead}"
            )


Config = TrainConfig | LearnConfig | EvaluateConfig

COMMANDS: dict[str, type[Config]] = {
    config.command: config for config in (TrainConfig, LearnConfig, EvaluateConfig)
}
"""The config of each command that makes a run."""


def to_mapping(config: Config) -> dict[str, Any]:
    """Return the options as nested plain values, as YAML and the command line spell them.

    What a preset leaves open is spelled out, and what has no effect is left out.
    """
    options = asdict(config)
    options["task"]["atari"] = config.task.atari.resolved()
    for name in ("resolved_games", *config.task.without_effect):
        del options["task"][name]
    ignored = config.task.family.ignored_agent_options
    if ignored == "all":
        del options["agent"]
    else:
        for name in ignored:
            del options["agent"][name]
    return options


def flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested options by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def defining_options(config: Config) -> dict[str, Any]:
    """Return what defines the run by dotted name, the games spelled out."""
    flat = flatten(to_mapping(config))
    flat["task.games"] = list(config.task.resolved_games)
    return {
        name: value
        for name, value in flat.items()
        if name not in OPERATIONAL and name.partition(".")[0] not in OPERATIONAL
    }


def init_of(config: Config) -> tuple[str, str]:
    """Return the name and the value of the option that says where the encoder starts."""
    if isinstance(config, TrainConfig):
        return "meta.init", config.meta.init
    if isinstance(config, EvaluateConfig):
        return "init", ", ".join(config.init)
    return "init", config.init


def fingerprint(
    config: Config,
    init_sha256: str | None,
    *,
    origin: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
) -> str:
    """Return the SHA-256, in hexadecimal, of what defines the run.

    Args:
        config: The run's config.
        init_sha256: Of the file that the encoder starts from, which counts instead of its path,
            or of all those files; none for a random start.
        origin: What says by its content which checkpoint a fork starts from; none for other runs.
        without: Options, by dotted name, that do not count: those that the leap_rl which made the
            run did not know.
    """
    options = defining_options(config)
    if init_sha256 is not None:
        options[init_of(config)[0]] = f"sha256:{init_sha256}"
    options = {name: value for name, value in options.items() if name not in without}
    document = {"command": config.command, "options": options}
    if origin is not None:
        document["origin"] = dict(origin)
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
