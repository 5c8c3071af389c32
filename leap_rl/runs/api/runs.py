"""Runs as objects: make one, follow it, read what it came to, load its encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from leap_rl.core.parsing import typed_options
from leap_rl.core.regular_file import LARGEST, read_given
from leap_rl.learners.config import LIBRARYS_OWN
from leap_rl.learners.registry import encoder_shared_by
from leap_rl.networks.custom import check_trust
from leap_rl.networks.encoders import make_encoder
from leap_rl.networks.parameters import load_parameters
from leap_rl.runs.config import Config, LearnConfig, TrainConfig
from leap_rl.runs.creation import new_folder
from leap_rl.runs.header import read_run, to_mapping
from leap_rl.runs.initializations import find_initialization
from leap_rl.runs.kinds import kind_of, meta_trains
from leap_rl.runs.process import Request, call
from leap_rl.sharing import pretrained
from leap_rl.sharing.initialization import encoder_part, load_tensors
from leap_rl.storage.open_run import open_run
from leap_rl.storage.run_folder import INITIALIZATION

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import nn

R = TypeVar("R", bound="Run")
Row = Mapping[str, Any]
Callback = Callable[["Run", Row], object]
"""Called with the run and each new row of its metrics: of a meta-step, if the run meta-trains."""


class StopRun(Exception):  # noqa: N818 - like StopIteration
    """Raised in a callback: the run stops, to be resumed some time."""


class Run:
    """A run in its folder. It may be finished, stopped, or under way in some other process.

    Args:
        place: The run's folder, or its URL in an object store.

    Raises:
        ValueError: There is no run, or its config is damaged.
    """

    def __init__(self, place: str | Path) -> None:
        self._folder = open_run(place)
        self.config: Config = read_run(self._folder).config
        """Every option of the run."""

    def __repr__(self) -> str:
        """Say what it is and how far it came."""
        made = f", {self.meta_step} meta-steps" if meta_trains(self.config) else ""
        return f"<{type(self).__name__} {self.place}: {self.config.command}{made}>"

    @property
    def place(self) -> str:
        """Its folder, or its URL in an object store."""
        return self._folder.place

    @property
    def path(self) -> Path:
        """Its folder on this machine."""
        return self._folder.path

    @property
    def meta_step(self) -> int:
        """The meta-steps that it has made; of a run elsewhere, when it was last looked for."""
        self._folder.refresh()
        return self._folder.latest() or 0

    @property
    def finished(self) -> bool:
        """Whether it has made all that its config asks for."""
        return self.meta_step >= kind_of(self.config).rounds(self.config)

    @property
    def initialization(self) -> Path:
        """The file of the newest initialization.

        Raises:
            ValueError: The run does not meta-train.
        """
        if not meta_trains(self.config):
            raise ValueError(
                f"{self.place}: is a run of leap-rl {self.config.command}; only "
                "those of leap-rl train make an initialization"
            )
        return self._folder.checkpoint(self.meta_step) / INITIALIZATION

    def rows(self) -> list[dict[str, Any]]:
        """Return the metrics that are logged, a row each meta-step; docs/metrics.md names them."""
        self._folder.refresh()
        return self._folder.rows()

    def metrics(self) -> DataFrame:
        """Return the metrics as a table, a row each meta-step and a column each metric."""
        from pandas import DataFrame

        return DataFrame(self.rows())


def train(
    config: TrainConfig,
    callbacks: Sequence[Callback] = (),
    *,
    trust_imports: bool = False,
    quiet: bool = False,
) -> Run:
    """Meta-train an initialization, as `leap-rl train` does.

    Ctrl-C stops the run and raises KeyboardInterrupt; `resume` continues it, to the same bits.

    Args:
        config: Its options.
        callbacks: Called in turn, in this process, after each meta-step, with the run and the
            meta-step's metrics. `StopRun` ends the run there; any other exception does too, and is
            raised here.
        trust_imports: Whether modules may be imported that the config names.
        quiet: Whether the run says nothing on stderr.

    Returns:
        The run; it is not finished if it was stopped.

    Raises:
        ValueError: The config cannot be; the message names the field.
        RunFailedError: The run failed, or its process was killed.
    """
    return _make(config, TrainConfig, callbacks, trust_imports=trust_imports, quiet=quiet)


def learn(
    config: LearnConfig,
    callbacks: Sequence[Callback] = (),
    *,
    trust_imports: bool = False,
    quiet: bool = False,
) -> Run:
    """Train agents without meta-learning, as `leap-rl learn` does.

    Args and errors are those of `train`.
    """
    return _make(config, LearnConfig, callbacks, trust_imports=trust_imports, quiet=quiet)


@overload
def resume(
    run: R,
    callbacks: Sequence[Callback] = ...,
    *,
    options: Mapping[str, Any] | None = ...,
    trust_imports: bool = ...,
    quiet: bool = ...,
) -> R: ...


@overload
def resume(
    run: str | Path,
    callbacks: Sequence[Callback] = ...,
    *,
    options: Mapping[str, Any] | None = ...,
    trust_imports: bool = ...,
    quiet: bool = ...,
) -> Run: ...


def resume(
    run: Run | str | Path,
    callbacks: Sequence[Callback] = (),
    *,
    options: Mapping[str, Any] | None = None,
    trust_imports: bool = False,
    quiet: bool = False,
) -> Run:
    """Continue a run that was stopped, as `leap-rl resume` does.

    Args:
        run: The run, its folder, or its URL in an object store.
        callbacks: As for `train`; called with the rows that are new.
        options: By dotted name, such as `{"meta.meta_steps": 20}`: those that do not define what
            is computed may change.
        trust_imports: Whether modules may be imported that the config names.
        quiet: Whether the run says nothing on stderr.

    Returns:
        The run, as an `Evaluation` if it was given as one.

    Raises:
        ValueError: There is no run, or an option cannot be changed.
        RunFailedError: The run failed, or its process was killed.
    """
    place = place_of(run)
    kind = type(run) if isinstance(run, Run) else Run
    before = Run(place)
    request = Request(
        action="resume",
        command="resume",
        place=place,
        options=typed_options(type(before.config), options or {}),
        trusts_imports=trust_imports,
        quiet=quiet,
        rows_seen=len(before.rows()),
    )
    follow(request, callbacks)
    return kind(place)


def _make(
    config: Config,
    wanted: type[Config],
    callbacks: Sequence[Callback],
    *,
    trust_imports: bool,
    quiet: bool,
) -> Run:
    if not isinstance(config, wanted):
        raise ValueError(
            f"config: is a {type(config).__name__}; give a {wanted.__name__}, such as "
            f'{wanted.__name__}.from_yaml("debug")'
        )
    with place_for(config.command, config.run_dir) as place:
        request = Request(
            action="make",
            command=config.command,
            place=place,
            config=to_mapping(config),
            trusts_imports=trust_imports,
            quiet=quiet,
        )
        follow(request, callbacks)
    return Run(place)


@contextmanager
def place_for(command: str, run_dir: str | Path | None) -> Iterator[str]:
    """Give a place that was named, or else a new folder, which goes if its command is refused."""
    if run_dir:
        yield str(run_dir)
        return
    place = new_folder(command).place
    try:
        yield place
    except ValueError:
        with suppress(OSError):  # something is in it
            Path(place).rmdir()
        raise


def place_of(run: Run | str | Path) -> str:
    """Return a run's folder or URL, or what else names it on the command line."""
    return run.place if isinstance(run, Run) else str(run)


def follow(request: Request, callbacks: Sequence[Callback]) -> None:
    """Carry out a run in a process of its own, and call callbacks in turn with each new row.

    Raises:
        ValueError: A callback is no function; or as `call` raises.
        RunFailedError: As `call` raises.
    """
    if callable(callbacks) or not all(map(callable, callbacks)):
        raise ValueError(
            "callbacks: must be functions in a list, as [function]; options are given by name, as "
            "options={...}"
        )
    run: Run | None = None

    def on_row(row: Row) -> None:
        nonlocal run
        for callback in callbacks:
            run = run or Run(request.place)
            callback(run, row)

    with suppress(StopRun):
        call(request, on_row)


def load_encoder(of: str | Path | Run, *, trust_imports: bool = False) -> nn.Module:
    """Return an encoder with meta-trained parameters, on the CPU. Neither Ray nor a game starts.

    Args:
        of: What it is the encoder of: a run or its folder (its newest version), `RUN@12`,
            `RUN@best`, a checkpoint of a run or its file (`run.initialization`), a folder that
            `leap-rl export` wrote, `pretrained:NAME`, or `hf://USER/REPO`, also with `@REVISION`.
        trust_imports: Whether the module may be imported that defines an encoder which is none of
            leap_rl's.

    Returns:
        A `torch.nn.Module` that takes uint8 observations [N, H, W, C], or vectors [N, L], and
        returns float32 features [N, F]. leap_rl's own encoders have an attribute `features`, F.

    Raises:
        ValueError: There is none, it cannot be downloaded, its files are damaged, it holds
            convolutions alone, or it takes an import that is not trusted.
    """
    given = place_of(of)
    if (exported := pretrained.find(given)) is not None:
        return exported.load(trust_imports=trust_imports)
    one = find_initialization(given)
    if one.run is None or one.file is None:
        raise ValueError(
            f"{given}: lies in no run, so its network is not known; name the run, or "
            "a folder that leap-rl export wrote"
        )
    config = read_run(open_run(one.run)).config
    shared = encoder_shared_by(config.task, config.agent)
    if config.agent.encoder == LIBRARYS_OWN:
        raise ValueError(
            f"{given}: is a network of its library's own (agent.encoder = {LIBRARYS_OWN}); the "
            "card that leap-rl export writes shows how the library loads it"
        )
    if shared is None or config.agent.share == "convolutions":
        what = f"task.kind = {config.task.kind}, agent.share = {config.agent.share}"
        raise ValueError(f"{given}: has no whole encoder of an agent ({what})")
    spec, observation_shape = shared
    check_trust(spec, given, trusts_imports=trust_imports)
    encoder = make_encoder(spec, observation_shape)
    load_parameters(encoder, encoder_part(load_tensors(read_given(one.file, LARGEST))))
    return encoder
