"""Options of these measurements. Importing this does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from leap_rl.bench.config import AgentBench
from leap_rl.learners.config import AgentConfig


@dataclass(frozen=True, kw_only=True)
class OverheadConfig(AgentBench):
    """Measure what Leap's sums cost an agent: the same agent with and without, in turns.

    Blocks of a few updates take turns: without sums, with them, and so on; each share is the
    median over neighboring blocks, with its 95 % interval.
    """

    game: str = "breakout"
    """The game."""

    seconds: float = 60.0
    """Time to measure for."""


@dataclass(frozen=True, kw_only=True)
class SnapshotConfig(AgentBench):
    """Measure a task's snapshots: their size, and the time to take, write and restore them.

    What a run pays for resuming after a crash: each task's snapshot is taken now and then.
    """

    game: str = "breakout"
    """The game."""

    seconds: float = 20.0
    """Time to measure for."""


@dataclass(frozen=True)
class ServerConfig:
    """Measure the parameter server on Ray: messages and megabytes a second, and their cost.

    Tasks that compute nothing stream contributions of the real size as fast as the protocol lets
    them, one on the way at a time.
    """

    trainers: list[int] = field(default_factory=lambda: [1, 2, 4])
    """Numbers of trainers, measured one after another."""

    seconds: float = 5.0
    """Time to measure for, for each number of trainers."""

    agent: AgentConfig = field(default_factory=AgentConfig)


@dataclass(frozen=True)
class CrowdConfig:
    """Measure the parameter server with up to a thousand simulated trainers, for a meta-step each.

    It averages, steps and writes as in a run; this process sends the messages of all trainers.
    """

    trainers: list[int] = field(default_factory=lambda: [16, 100, 400, 1000])
    """Numbers of trainers, measured one after another."""

    seconds: float = 40.0
    """Time of the shortest task; the longest takes 1.8 times as long."""

    stream_every_s: float = 2.0
    """As of a run, see runtime.stream_every_s."""


@dataclass(frozen=True)
class BusyConfig:
    """Measure how busy trainers are: in one run, with lent cores, and in a study that shares them.

    Environments sleep, so that there can be more trainers than cores. A run's tasks are as many as
    there are trainers, and the longest takes twice as long as the shortest.
    """

    trainers: int = 16
    """Logical CPUs, with a trainer each."""

    runs: int = 4
    """Meta-training runs of the study; 0 leaves it out."""

    meta_steps: int = 8
    """Of each."""

    task_s: float = 10.0
    """Seconds of the shortest task. Cores are lent to tasks that last for 20 s more."""

    envs: int = 1
    """Environments of a task, which sleep one after the other; lent cores need several."""


@dataclass(frozen=True)
class LendingConfig:
    """Simulate how busy trainers are with a task each, with and without lent cores.

    The games' emulators are measured first, one after another.
    """

    games: str = "pretraining"
    """A pool of Atari games."""

    seconds: float = 1.0
    """Processor time for each game."""

    learning_us: float = 220.0
    """Time of learning, for an agent step: all but emulation and preprocessing, as
    `leap-rl bench throughput` splits it."""

    trainers: list[int] = field(default_factory=lambda: [16, 64, 400])
    """Numbers of trainers, and of tasks."""

    cores: int = 16
    """Of a machine, within which cores are lent."""


@dataclass(frozen=True)
class StartupConfig:
    """Measure the way from the command to an agent's first update, part by part."""

    game: str = "breakout"
    """The game."""

    envs: int = 32
    """Environments of the agent."""

    repeats: int = 3
    """Repetitions of each measurement; the median is reported."""


@dataclass(frozen=True)
class OmniglotBench:
    """Measure an Omniglot task against a plain PyTorch loop.

    Both learn the same network from the same batches, in turns; the images are random.
    """

    seconds: float = 15.0
    """Time to measure for."""

    updates: int = 100
    """Updates of a task."""

    batch_size: int = 20
    """Images in a batch."""
