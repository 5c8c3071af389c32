"""What can be set about tasks. Importing this costs no import of torch."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any, Literal, get_args

from leap_rl.envs.atari.config import AtariConfig
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.gymnasium.config import GymnasiumConfig
from leap_rl.learners.rllib_config import RllibConfig
from leap_rl.tasks.families import OPTIONS, family_of
from leap_rl.tasks.family import Family
from leap_rl.tasks.images.config import OmniglotConfig

LossDifference = Literal["next_batch", "same_batch"]
"""From which batches the change of the loss along a segment is taken."""

OnDivergence = Literal["stop", "restart_task", "drop_task"]
"""What happens when a task's numbers are no longer finite."""


@dataclass(frozen=True)
class TaskConfig:
    """The tasks: a game each, with a budget. "Paper" is Leap's appendix on Atari."""

    kind: str = "atari"
    """atari: ALE's games. catch: a small pixel game of our own, for trying things out.
    quadratic: noisy bowls with closed forms, for tests. omniglot: handwritten characters to
    classify, an alphabet a game (the paper's image experiment). gymnasium: environments by their
    Gymnasium ids, one's own too. rllib: the same, learned by RLlib's PPO. An installed package can
    bring families of its own."""

    games: list[str] | str = "pretraining"
    """The games to draw from: names, pools, or a list of them. Pools: pretraining (at most 10
    actions, less the held-out: paper), held_out, large_action, paper, all. `leap-rl games` lists
    them. A game's modes and difficulties are games too, such as freeway@mode=4,difficulty=1, and
    flavours:freeway is the pool of its modes. omniglot: alphabets by the names of their folders,
    or the pools pretraining, held_out and all, see task.omniglot. gymnasium: ids and what their
    environments are made with, ID@key=value,key=value; an id with a module, module:ID, needs
    --trust_imports on the command line. For the other kinds, pretraining and all are all that
    there is."""

    agent_steps: int = 5_000_000
    """Budget of a task in agent steps, one action of one environment each. Paper ("trained
    independently for 5 million steps"; not given: that these are agent steps)."""

    num_envs: int = 32
    """Environments that an agent plays at the same time. Paper ("batch size of 32"; not given: that
    these are environments)."""

    unroll_length: int = 5
    """Agent steps in each environment between two updates. Paper."""

    on_divergence: OnDivergence = "stop"
    """What happens when NaN or infinity turns up in a task's numbers. stop: the run ends, with the
    game, the slot, the update and the seed. restart_task: the task begins again with a seed derived
    from its own, up to three times. drop_task: its round continues without it, and its row says
    so."""

    atari: AtariConfig = field(default_factory=AtariConfig)

    data: str | None = None
    """Where Omniglot's images lie: the folder of images_background and images_evaluation, as
    folders or zips, or of the minimal splits. For task.kind = omniglot alone."""

    data_sha256: str | None = None
    """SHA-256 of the images, however they are packed. Found when the run is made, and written
    down; what is given must be met."""

    omniglot: OmniglotConfig = field(default_factory=OmniglotConfig)

    gymnasium: GymnasiumConfig = field(default_factory=GymnasiumConfig)

    rllib: RllibConfig = field(default_factory=RllibConfig)

    options: dict[str, Any] = field(default_factory=dict)
    """Options of a family that an installed package brings."""

    resolved_games: tuple[str, ...] = field(init=False, repr=False)
    """The games spelled out; derived. Empty as long as it takes task.data to know them."""

    def __post_init__(self) -> None:
        family_of(self.kind)
        if self.on_divergence not in get_args(OnDivergence):
            raise ValueError(
                f"task.on_divergence = {self.on_divergence!r}: must be one of "
                f"{', '.join(get_args(OnDivergence))}"
            )
        for name in ("agent_steps", "num_envs", "unroll_length"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"task.{name} = {value}: must be at least 1")
        if self.kind != "atari" and self.atari.settings != AtariSettings():
            raise ValueError(
                f"task.atari: has no effect with task.kind = {self.kind}; leave it out"
            )
        for name in self.without_effect:
            if getattr(self, name) != _default(name):
                raise ValueError(
                    f"task.{name}: has no effect with task.kind = {self.kind}; leave it out"
                )
        self._check_budget()
        games = [self.games] if isinstance(self.games, str) else list(self.games)
        # The one field that is derived; a frozen dataclass is set through object.
        object.__setattr__(self, "resolved_games", self.family.resolve_games(games))

    @property
    def family(self) -> Family:
        """What knows this kind of task."""
        return family_of(self.kind)

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The options that this kind of task has no use for."""
        return tuple(option for option in OPTIONS if option not in self.family.options)

    @property
    def imports(self) -> tuple[str, ...]:
        """The modules that have to be imported for the games' ids to be known."""
        return self.family.imports(self)

    @property
    def has_emulators(self) -> bool:
        """Whether its games are frames of an emulator."""
        return self.family.frames_per_agent_step(self) > 0

    @property
    def unit(self) -> Literal["agent_steps", "examples"]:
        """What a task's budget counts: agent steps, or images that an update learns from."""
        return self.suite.unit

    @property
    def budget(self) -> int:
        """A task's budget, in its unit."""
        return self.family.budget(self)

    @property
    def agent_steps_per_update(self) -> int:
        """Agent steps, over all environments, between two updates."""
        return self.num_envs * self.unroll_length

    @property
    def updates(self) -> int:
        """K, the updates in a task's budget."""
        return self.family.updates(self)

    def _check_budget(self) -> None:
        each = self.agent_steps_per_update
        if self.agent_steps % each:
            below = self.agent_steps - self.agent_steps % each
            fitting = f"{below} or {below + each}" if below else f"{each}"
            raise ValueError(
                f"task.agent_steps = {self.agent_steps}: must be a whole number of updates of "
                f"task.num_envs × task.unroll_length = {each} agent steps; take {fitting}"
            )


def _default(name: str) -> object:
    one = TaskConfig.__dataclass_fields__[name]
    return one.default if one.default_factory is MISSING else one.default_factory()
