"""The options of tasks, as plain fields. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from leap_rl.core.choices import Domain, OnDivergence
from leap_rl.envs.atari.settings import AtariConfig
from leap_rl.envs.gymnasium_config import GymnasiumConfig
from leap_rl.tasks.images.config import ImagesConfig, OmniglotConfig

MIXED: Final = "mixed"
"""The game whose environments are dealt over all games, see `TaskOptions.mix_games`."""


if TYPE_CHECKING:
    # Whatever computes with them has a run's options, in which `auto` is resolved.
    AutoInt: TypeAlias = int
else:
    AutoInt = int | Literal["auto"]

AUTO: Final[Any] = "auto"


class Sizes(NamedTuple):
    """The options whose `auto` depends on the kind of game."""

    num_envs: int
    agent_steps: int


SIZES: Final[Mapping[Domain, Sizes]] = {
    "atari": Sizes(32, 5_000_000),  # the paper's
    "images": Sizes(16, 200_000),  # those in which A2C learns MinAtar: docs/environments.md
    "vectors": Sizes(16, 100_000),
    "continuous": Sizes(16, 200_000),
}


@dataclass(frozen=True)
class TaskOptions:
    """What is learned: games, and a budget for each. "Paper" is Leap's appendix on Atari."""

    kind: str = "atari"
    """The suite that the games are from. atari: ALE's games. gymnasium: environments by their
    Gymnasium ids, your own too. catch: a small pixel game, for trying things out. omniglot:
    handwritten characters to classify, an alphabet a game (the paper's first experiment). images:
    data sets to classify, a folder a game (its second, Multi-CV). quadratic: noisy bowls with
    closed forms, for tests. Who learns them says agent.algorithm."""

    games: list[str] | str = "pretraining"
    """The games to draw from: names, pools, or a list of them. Pools: pretraining (at most 10
    actions, less the held-out: paper), held_out, large_action, paper, all. `leap-rl games` lists
    them. A game's modes and difficulties are games too, such as freeway@mode=4,difficulty=1, and
    modes:freeway is the pool of its modes. omniglot: alphabets by the names of their folders,
    or the pools pretraining, held_out and all, see task.omniglot. images: folders in task.data, and
    alphabets there. gymnasium: ids and what their environments are made with,
    ID@key=value,key=value; an id with a module, module:ID, needs --trust_imports on the command
    line. For the other kinds, and images, pretraining and all are all that there is."""

    mix_games: bool = False
    """Domain randomisation: one agent plays all of task.games at once. Environment i plays game i
    modulo their number, and to the run there is a single game, mixed. The games must have the same
    observations and number of actions. With meta.method pretraining, meta.batch_size 1 and
    agent.share agent, one agent is trained on everything."""

    agent_steps: AutoInt = AUTO
    """Budget of a task in agent steps, one action of one environment each. auto, resolved when a
    run is made: 200000 for gymnasium's images and continuous actions, 100000 for other vectors, in
    whole updates; 5000000 for other games: paper ("trained independently for 5 million steps"; not
    given: that these are agent steps)."""

    num_envs: AutoInt = AUTO
    """Environments that an agent plays at the same time. auto: 16 for gymnasium, 32 for other
    games: paper ("batch size of 32"; not given: that these are environments)."""

    unroll_length: int = 5
    """Agent steps in each environment between two updates. Paper."""

    on_divergence: OnDivergence = "stop"
    """What happens when NaN or infinity turns up in a task's numbers. stop: the run ends, with the
    game, the slot, the update and the seed. restart_task: the task begins again with a seed derived
    from its own, up to three times. drop_task: its round continues without it, and its row says
    so."""

    atari: AtariConfig = field(default_factory=AtariConfig)

    data: str | None = None
    """Where the images lie. omniglot: the folder of images_background and images_evaluation, as
    folders or zips, or of the minimal splits. images: a folder of data sets (docs/multi_cv.md), in
    which Omniglot's may lie too. For these kinds alone."""

    data_sha256: str | None = None
    """SHA-256 of the images, however they are packed. Found when the run is made, and written
    down; what is given must be met."""

    omniglot: OmniglotConfig = field(default_factory=OmniglotConfig)

    images: ImagesConfig = field(default_factory=ImagesConfig)

    gymnasium: GymnasiumConfig = field(default_factory=GymnasiumConfig)

    resolved_games: tuple[str, ...] = field(init=False, repr=False)
    """The games spelled out; derived. Empty as long as it takes task.data to know them."""

    @property
    def task_games(self) -> tuple[str, ...]:
        """The games that tasks are made of: the resolved ones, or the mix of all."""
        return (MIXED,) if self.mix_games else self.resolved_games

    @property
    def is_sized(self) -> bool:
        """Whether the budget and the environments are known; before, nothing computes with them."""
        return AUTO not in (self.num_envs, self.agent_steps)

    def sized(self, sizes: Sizes) -> dict[str, Any]:
        """Return the options whose `auto` is left, set; the budget is one of whole updates."""
        num_envs = sizes.num_envs if self.num_envs == AUTO else self.num_envs
        each, agent_steps = num_envs * self.unroll_length, self.agent_steps
        if agent_steps == AUTO:
            agent_steps = max(1, round(sizes.agent_steps / each)) * each
        return {"num_envs": num_envs, "agent_steps": agent_steps}

    @property
    def agent_steps_per_update(self) -> int:
        return self.num_envs * self.unroll_length
