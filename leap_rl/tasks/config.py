"""What can be set about tasks. Importing this costs no import of torch."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, get_args

from leap_rl.envs.atari_config import PRESETS, AtariSettings
from leap_rl.envs.games import ACTION_COUNTS, CATCH_GAMES, resolve_games
from leap_rl.envs.gymnasium_ids import parse_game
from leap_rl.envs.names import split_name
from leap_rl.tasks.gymnasium_config import GymnasiumConfig, resolve_ids
from leap_rl.tasks.omniglot_config import POOLS, OmniglotConfig

TaskKind = Literal["atari", "catch", "quadratic", "omniglot", "gymnasium"]
"""Which family of tasks a run draws from."""

LossDifference = Literal["next_batch", "same_batch"]
"""From which batches the change of the loss along a segment is taken."""

OnDivergence = Literal["stop", "restart_task", "drop_task"]
"""What happens when a task's numbers are no longer finite."""

QUADRATIC_GAMES = tuple(f"bowl_{index}" for index in range(8))
"""The quadratic tasks: bowls in a space of a few dimensions, each with its own lowest point."""


OF_GAMES = ("agent_steps", "num_envs", "unroll_length", "atari")
"""Options of tasks that an agent plays."""

OF_DRAWINGS = ("data", "data_sha256", "omniglot")
"""Options of tasks that classify drawings."""

OF_GYMNASIUM = ("gymnasium",)
"""Options of tasks that are Gymnasium environments."""

AtariPreset = Literal["paper", "machado", "noframeskip"]
"""Settings of the emulator by name."""


@dataclass(frozen=True)
class AtariConfig:
    """How Atari games are run: a preset, and what is to differ from it (null: nothing)."""

    preset: AtariPreset = "paper"
    """paper: RGB, one frame, up to 30 no-ops. machado: gray, 4 frames, sticky actions (Machado et
    al. 2018, as in Dopamine). noframeskip: gray, 4 frames, no-ops, FIRE, and the loss of a life is
    an end to learning (OpenAI Baselines, most A2C results)."""

    frameskip: int | None = None
    """Frames in an agent step. From 2 on the observation is the maximum of the last two."""

    noop_max: int | None = None
    """The most no-ops, of one frame each, at the start of an episode."""

    sticky: float | None = None
    """Probability that a frame repeats the action of the frame before it."""

    max_frames: int | None = None
    """Frames after which an episode is truncated; a multiple of frameskip."""

    grayscale: bool | None = None
    """One channel of luminance instead of red, green and blue."""

    frame_stack: int | None = None
    """Frames in an observation, one an agent step."""

    fire_reset: bool | None = None
    """Press FIRE before an episode's first observation, in games that have it."""

    life_loss_ends: bool | None = None
    """Learning treats the loss of a life as an end; the episode goes on."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range.
        """
        if self.preset not in PRESETS:
            raise ValueError(
                f"task.atari.preset = {self.preset!r}: must be one of {', '.join(PRESETS)}"
            )
        try:
            _ = self.settings
        except ValueError as error:
            raise ValueError(f"task.{error}") from None

    @property
    def settings(self) -> AtariSettings:
        """The whole of it."""
        names = [one.name for one in fields(AtariSettings)]
        given = {name: getattr(self, name) for name in names}
        changes = {name: value for name, value in given.items() if value is not None}
        return replace(PRESETS[self.preset], **changes)

    def resolved(self) -> dict[str, Any]:
        """Return the options with nothing left to the preset."""
        return {"preset": self.preset, **asdict(self.settings)}


@dataclass(frozen=True)
class TaskConfig:
    """The tasks: a game each, with a budget. "Paper" is Leap's appendix on Atari."""

    kind: TaskKind = "atari"
    """atari: ALE's games. catch: a small pixel game of our own, for trying things out.
    quadratic: noisy bowls with closed forms, for tests. omniglot: handwritten characters to
    classify, an alphabet a game (the paper's image experiment). gymnasium: environments by their
    Gymnasium ids, one's own too."""

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
    from its own, up to three times. drop_task: its round goes on without it, and its row says
    so."""

    atari: AtariConfig = field(default_factory=AtariConfig)

    data: str | None = None
    """Where Omniglot's drawings lie: the folder of images_background and images_evaluation, as
    folders or zips, or of the minimal splits. For task.kind = omniglot alone."""

    data_sha256: str | None = None
    """SHA-256 of the drawings, however they are packed. Found when the run is made, and written
    down; what is given must be met."""

    omniglot: OmniglotConfig = field(default_factory=OmniglotConfig)

    gymnasium: GymnasiumConfig = field(default_factory=GymnasiumConfig)

    resolved_games: tuple[str, ...] = field(init=False, repr=False)
    """The games spelled out; derived. Empty as long as it takes task.data to know them."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range, or a game does not exist.
        """
        if self.kind not in get_args(TaskKind):
            raise ValueError(
                f"task.kind = {self.kind!r}: must be one of {', '.join(get_args(TaskKind))}"
            )
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
        # The one field that is derived; a frozen dataclass is set through object.
        object.__setattr__(self, "resolved_games", self._resolve())

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The options that this kind of task has no use for."""
        if self.kind == "omniglot":
            return (*OF_GAMES, *OF_GYMNASIUM)
        if self.kind == "gymnasium":
            return ("atari", *OF_DRAWINGS)
        return (*OF_DRAWINGS, *OF_GYMNASIUM)

    @property
    def imports(self) -> tuple[str, ...]:
        """The modules that have to be imported for the games' ids to be known."""
        if self.kind != "gymnasium":
            return ()
        modules = (parse_game(game).module for game in self.resolved_games)
        return tuple(dict.fromkeys(module for module in modules if module is not None))

    @property
    def unit(self) -> Literal["agent_steps", "examples"]:
        """What a task's budget counts: agent steps, or drawings that an update learns from."""
        return "examples" if self.kind == "omniglot" else "agent_steps"

    @property
    def budget(self) -> int:
        """A task's budget, in its unit."""
        supervised = self.kind == "omniglot"
        return self.updates * self.omniglot.batch_size if supervised else self.agent_steps

    @property
    def agent_steps_per_update(self) -> int:
        """Agent steps, over all environments, between two updates."""
        return self.num_envs * self.unroll_length

    @property
    def updates(self) -> int:
        """K, the updates in a task's budget."""
        if self.kind == "omniglot":
            return self.omniglot.updates
        return self.agent_steps // self.agent_steps_per_update

    def _check_budget(self) -> None:
        each = self.agent_steps_per_update
        if self.agent_steps % each:
            below = self.agent_steps - self.agent_steps % each
            fitting = f"{below} or {below + each}" if below else f"{each}"
            raise ValueError(
                f"task.agent_steps = {self.agent_steps}: must be a whole number of updates of "
                f"task.num_envs × task.unroll_length = {each} agent steps; take {fitting}"
            )

    def _resolve(self) -> tuple[str, ...]:
        games = [self.games] if isinstance(self.games, str) else list(self.games)
        if self.kind == "omniglot":
            # Which alphabets there are, the data says: omniglot_games.settle_games.
            return () if set(games) & set(POOLS) else tuple(games)
        if self.kind == "gymnasium":
            ids = resolve_ids(games)
            return self._checked(ids, ids)
        if self.kind == "atari":
            flavours = resolve_games(games)
            own_games = tuple(dict.fromkeys(split_name(flavour)[0] for flavour in flavours))
            self._checked(own_games, tuple(ACTION_COUNTS))
            return flavours
        own = CATCH_GAMES if self.kind == "catch" else QUADRATIC_GAMES
        if games in (["pretraining"], ["all"]):
            return own
        return self._checked(resolve_games(games) if self.kind == "catch" else tuple(games), own)

    def _checked(self, games: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
        for game in games:
            if game not in known:
                close = get_close_matches(game, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"such as {known[0]!r}"
                raise ValueError(
                    f"task.games: {game!r} is no game of task.kind = {self.kind}; {hint}"
                )
        if not games or len(set(games)) < len(games):
            raise ValueError(f"task.games = {list(games)}: name at least one game, each once")
        return games


def _default(name: str) -> object:
    (one,) = (each for each in fields(TaskConfig) if each.name == name)
    return one.default if one.default_factory is MISSING else one.default_factory()
