"""The options of `leap-rl study`: strict and typed, and such that members alone suffice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from leap_rl.core.machine import cores
from leap_rl.core.parsing import options_given, parse_options, to_cli_args
from leap_rl.core.seeding import SEED_BITS
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.registry import check_budget
from leap_rl.meta.config import MetaConfig
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.header import to_mapping
from leap_rl.studies.arms import RANDOM, arm_config, spelled_arms
from leap_rl.studies.defaults import defaults_of, quick_sizes, refuse_without_episodes, resolved
from leap_rl.tasks.config import TaskConfig
from leap_rl.tracking.config import TrackingConfig
from leap_rl.training.config import RuntimeConfig

MOST: Final = 1_000
"""Runs of an arm, and agents of a run: each takes its room in memory before anything is learned."""

QUESTION: Final = "From which start does a new agent learn a new member soonest, and does it pay?"


@dataclass(frozen=True)
class StudyConfig:
    """From which start does a new agent learn a new member of a family soonest, and does it pay?

    What is not given of task, agent and meta is taken from the config that comes with leap_rl for
    such observations: atari, minatar for other images, gymnasium_classic_control for vectors; of
    Gymnasium's environments budgets and agents are what `auto` makes of them.
    """

    command: ClassVar[str] = "study"

    question: str = QUESTION
    """The question, the page's title."""

    games: list[str] | str = field(default_factory=list)
    """Members of the family to learn from, named as in task.games of leap-rl train. task.kind is
    found by them unless it is given."""

    held_out: list[str] | str = field(default_factory=list)
    """Members that nothing is learned from: new agents learn them from each arm's starts."""

    also_seen: bool = False
    """Have new agents learn the members that were learned from, too."""

    arms: dict[str, Any] | list[str] = field(
        default_factory=lambda: {RANDOM: {}, "leap": {}, "pretraining": {}}
    )
    """Where starts come from: a list of names (docs/study.md has them), or by name the options of
    leap-rl train in which an arm differs, dotted, as '{leap: {}, mine: {meta.p: 1}}'. random is
    always one."""

    runs: int = 3
    """Meta-training runs of each arm, which differ in their seeds. A claim about a method takes 3
    or more."""

    agents: int = 5
    """New agents that learn each member from each run's initialization."""

    random_agents: int | None = None
    """Agents that learn each member from random starts. None: three times as many as agents."""

    agent_steps: int | None = None
    """Budget of each new agent. None: task.agent_steps."""

    quick: bool = False
    """A first answer in minutes, which proves little: one run, few meta-steps and a small budget,
    half of a study file's, where the command line does not say otherwise."""

    processes: int | Literal["auto"] = "auto"
    """Cells at a time, each in a process of its own. auto: one for each core; with runtime.kind =
    ray, whose trainers serve all cells, as many as have four tasks for each trainer, at least 2."""

    seed: int = 0
    """Runs of an arm have seeds counted from this one. New agents of the same number share theirs
    between arms."""

    runtime: RuntimeConfig = field(default_factory=lambda: RuntimeConfig(kind="local"))
    task: TaskConfig = field(default_factory=TaskConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    meta: MetaConfig = field(default_factory=MetaConfig)
    """As leap-rl train's: what arms share. Agent steps of training data, for every arm:
    meta.meta_steps × meta.batch_size × task.agent_steps."""
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

    def __post_init__(self) -> None:
        for name in ("runs", "agents", "random_agents"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST:
                raise ValueError(f"{name} = {value}: must be at least 1 and at most {MOST:,}")
        if self.processes != "auto" and self.processes < 1:
            raise ValueError(f"processes = {self.processes}: must be at least 1, or auto")
        if not 0 <= self.seed < 2**SEED_BITS - self.runs:
            raise ValueError(f"seed = {self.seed}: must be at least 0 and below 2**{SEED_BITS}")
        # Derived, or spelled in one way; a frozen dataclass is set through object.
        object.__setattr__(self, "arms", spelled_arms(self.arms))
        self._check_members()
        if not self.task.is_sized:
            raise ValueError(
                f"task.num_envs = {self.task.num_envs}, task.agent_steps = {self.task.agent_steps}:"
                " a study is planned before its games are made; leave them to StudyConfig.from_yaml"
                " or the command line, or give numbers"
            )
        object.__setattr__(self, "task", replace(self.task, games=list(self.members)))
        check_budget(self.task, self.agent)
        if self.agent_steps is not None:
            self.new_agents_task()  # which refuses a budget that cannot be

    def _check_members(self) -> None:
        refuse_without_episodes(self.task.kind)
        if not self.games:
            raise ValueError("games = []: name the members of the family to learn from")
        if not self.held_out and not self.also_seen:
            raise ValueError(
                "held_out = []: name members that are not learned from, or say also_seen = true"
            )
        both = [member for member in self.held_out_members if member in self.members]
        if both:
            raise ValueError(
                f"held_out: {', '.join(both)} is among the games that are learned from, so it is "
                "not held out; leave it out of one of them"
            )

    @property
    def members(self) -> tuple[str, ...]:
        """The members that are learned from."""
        return resolved(self.task.kind, "games", self.games)

    @property
    def held_out_members(self) -> tuple[str, ...]:
        return resolved(self.task.kind, "held_out", self.held_out) if self.held_out else ()

    @property
    def evaluated(self) -> tuple[str, ...]:
        """The members that new agents learn, those held out first."""
        return (*self.held_out_members, *(self.members if self.also_seen else ()))

    @property
    def baseline_agents(self) -> int:
        return 3 * self.agents if self.random_agents is None else self.random_agents

    @property
    def spelled_arms(self) -> dict[str, dict[str, Any]]:
        """Each arm's own options by dotted name, the baseline first."""
        assert isinstance(self.arms, dict)
        return self.arms

    @property
    def trained_arms(self) -> tuple[str, ...]:
        return tuple(name for name in self.arms if name != RANDOM)

    @property
    def trainers_here(self) -> int:
        """Trainers on this machine, over all cells."""
        if self.runtime.kind == "local":
            return cores() if self.processes == "auto" else self.processes
        if self.runtime.trainers != "auto":
            return self.runtime.trainers
        return max(1, cores() // self.runtime.own_env_processes)

    @property
    def imports(self) -> dict[str, tuple[str, ...]]:
        """The modules that are imported because an option names them, by that option."""
        suite = self.task.suite
        found = {"games": suite.imports(self.task)}
        if self.held_out:
            task = replace(self.task, games=list(self.held_out_members))
            found["held_out"] = suite.imports(task)
        return {**found, **self.agent.imports}

    @classmethod
    def from_yaml(
        cls,
        config: str | Path,
        options: Mapping[str, Any] | None = None,
        *,
        trust_imports: bool = False,
    ) -> StudyConfig:
        """Return the study of a file.

        Args:
            config: The file.
            options: By dotted name; they override the file's.
            trust_imports: Whether modules may be imported that the study names: what its members
                look like says which options they take where none are given.

        Raises:
            ValueError: Something in it cannot be; one line.
        """
        words = ["--config", str(config), *to_cli_args(options or {})]
        return configure(words, trusts_imports=trust_imports)

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> StudyConfig:
        """Return the study whose `to_mapping` these options are; imports nothing.

        Raises:
            ValueError: Something in it cannot be; one line.
        """
        task = {**options.get("task", {}), "games": options.get("games", [])}
        return parse_options(cls, {}, defaults={**options, "task": task}, trusts_imports=True)

    def new_agents_task(self) -> TaskConfig:
        """Return what new agents learn; ValueError for a budget that cannot be."""
        budget = self.task.agent_steps if self.agent_steps is None else self.agent_steps
        try:
            task = replace(self.task, mix_games=False, agent_steps=budget)
            check_budget(task, self.agent)
        except ValueError as error:
            raise ValueError(str(error).replace("task.agent_steps", "agent_steps", 1)) from None
        return replace(task, games=list(self.evaluated))

    def base(self) -> TrainConfig:
        """Return the options of `leap-rl train` that all arms share."""
        return TrainConfig(
            seed=self.seed,
            runtime=self.runtime,
            task=self.task,
            agent=self.agent,
            tracking=self.tracking,
            meta=self.meta,
        )

    def shared(self) -> dict[str, Any]:
        """Return the same, nested, with what methods resolve left open."""
        return {**to_mapping(self.base()), "meta": asdict(self.meta)}

    def arm(self, name: str, *, trusts_imports: bool = False) -> TrainConfig:
        """Return what an arm trains; see `arms.arm_config`."""
        return arm_config(
            name,
            self.spelled_arms[name],
            base=self.base(),
            shared=self.shared(),
            trusts_imports=trusts_imports,
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return the options as nested plain values: a study file that says all of them."""
        groups = {name: value for name, value in self.shared().items() if name in _GROUPS}
        del groups["task"]["games"]
        names = [one.name for one in fields(self) if one.name not in (*_GROUPS, "seed")]
        own = {name: getattr(self, name) for name in names}
        return {**own, "seed": self.seed, **groups}


_GROUPS: Final = ("runtime", "task", "agent", "meta", "tracking")


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command line that name files of options, and its own options."""
    files = [word for word in argv if word.startswith("--config=")]
    words = [word for word in argv if not word.startswith("--config=")]
    while "--config" in words:
        at = words.index("--config")
        files += words[at : at + 2]
        del words[at : at + 2]
    return files, words


def configure(argv: Sequence[str], *, trusts_imports: bool = False) -> StudyConfig:
    """Return the study that a command line and its files ask for.

    Raises:
        ValueError: Something in it cannot be; one line.
    """
    given = dict(options_given(StudyConfig, argv))
    if given.get("quick"):
        files, words = _split(argv)
        # A file that says it has sizes of its own, such as that of a quick study which was begun.
        if not (files and options_given(StudyConfig, files).get("quick")):
            given |= quick_sizes(given, options_given(StudyConfig, words))
    defaults = defaults_of(given, trusts_imports=trusts_imports)
    return parse_options(StudyConfig, {**defaults, **given}, trusts_imports=trusts_imports)
