"""Encoders by name, and custom ones, `module:name`. Imports neither torch nor any encoder."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leap_rl.core.lines import in_a_line

if TYPE_CHECKING:
    import torch
    from torch import nn

OF_IMAGES: Final = ("mnih2013", "nature", "impala", "minatar")

OF_VECTORS: Final = "mlp"

ENCODERS: Final = (*OF_IMAGES, OF_VECTORS)

_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """An encoder's name and arguments."""

    name: str
    """One of `ENCODERS`, or `module:name`."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of a `module:name`, besides the observations' shape."""
    sha256: str | None = None
    """Of the file that defines a `module:name`; None accepts any file."""

    @property
    def is_custom(self) -> bool:
        return is_custom(self.name)


def is_custom(name: str) -> bool:
    """Whether an encoder's name is `module:name`."""
    return _NAME.fullmatch(name) is not None


def check_trust(spec: EncoderSpec, place: str | Path, *, trusts_imports: bool) -> None:
    """Raise ValueError for a custom encoder, found at `place`, unless imports are trusted."""
    if spec.is_custom and not trusts_imports:
        raise ValueError(
            f"{place}: its encoder is {spec.name}, whose module would be imported, and so run; "
            "if you trust it, pass trust_imports=True, or --trust_imports on the command line"
        )


def source_sha256(spec: EncoderSpec) -> str:
    """Return the SHA-256 of the one file that defines a custom encoder; ValueError if none does."""
    make = _import(spec.name)
    try:
        source = inspect.getsourcefile(make)
        return hashlib.sha256(Path(source or "").read_bytes()).hexdigest()
    except (TypeError, OSError):
        raise ValueError(
            f"agent.encoder = {spec.name}: is defined in no file; write it as a function or class "
            "of a Python module"
        ) from None


def check_source(spec: EncoderSpec) -> Callable[..., Any]:
    """Return a custom encoder's constructor; ValueError if it is missing or its file differs."""
    make = _import(spec.name)
    if spec.sha256 is not None and source_sha256(spec) != spec.sha256:
        raise ValueError(
            f"agent.encoder = {spec.name}: its file is not that of agent.encoder_sha256 = "
            f"{spec.sha256}, with which the run was made; take that file, or make a new run"
        )
    return make


def build(spec: EncoderSpec, observation_shape: tuple[int, ...], *, seed: int = 0) -> nn.Module:
    """Return a custom encoder, called as `name(observation_shape, **arguments)`.

    Its constructor draws from torch's global random stream, which is seeded for it and restored.
    ValueError: there is no such encoder, its file differs, or it returns no module.
    """
    import torch
    from torch import nn

    make = check_source(spec)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(seed)
        try:
            module = make(observation_shape, **spec.arguments)
        except Exception as error:
            reason = in_a_line(error)
            raise ValueError(
                f"agent.encoder = {spec.name}: cannot be built for observations of shape "
                f"{list(observation_shape)} with agent.encoder_arguments = "
                f"{dict(spec.arguments)}: {reason}"
            ) from error
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"agent.encoder = {spec.name}: returns {type(module).__name__}, and must return a "
            "torch.nn.Module"
        )
    return module


def draw(
    spec: EncoderSpec, observation_shape: tuple[int, ...], generator: torch.Generator
) -> nn.Module:
    """Return a custom encoder with weights from a stream.

    ValueError: it cannot be an encoder, or it draws from another random stream than torch's.
    """
    import torch

    seed = int(torch.randint(2**62, (), generator=generator))
    module = build(spec, observation_shape, seed=seed)
    again = build(spec, observation_shape, seed=seed).state_dict()
    for name, values in module.state_dict().items():
        if not torch.equal(values, again[name]):
            raise ValueError(
                f"agent.encoder = {spec.name}: draws {name} from another random stream than "
                "torch's global one; draw it with torch, so that a seed gives the same weights"
            )
    return module


def features_of(spec: EncoderSpec, module: nn.Module, observation_shape: tuple[int, ...]) -> int:
    """Return the width of a custom encoder's features, from a pass with two observations.

    ValueError: it is no function of its parameters alone from observations, as the environments
    give them, to float32 features [N, F].
    """
    try:
        return _width_of(module, observation_shape)
    except ValueError as error:
        raise ValueError(f"agent.encoder = {spec.name}: {error}") from error


def _width_of(module: nn.Module, observation_shape: tuple[int, ...]) -> int:
    import torch

    parameters = dict(module.named_parameters(remove_duplicate=False))
    if not parameters:
        raise ValueError("has no parameters, so there is nothing to learn")
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32:
            raise ValueError(f"its {name} is {parameter.dtype}; make it torch.float32")
    if others := sorted(module.state_dict().keys() - parameters.keys()):
        raise ValueError(
            f"has state besides its parameters ({', '.join(others)}), which no initialization "
            "holds; take LayerNorm or GroupNorm for BatchNorm, and register constants with "
            "persistent=False"
        )
    generator = torch.Generator().manual_seed(0)
    observations = torch.randint(0, 256, (2, *observation_shape), generator=generator)
    is_image = len(observation_shape) == 3
    observations = observations.to(torch.uint8) if is_image else observations / 255
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            first, second = (module(observations.clone()) for _ in range(2))
    except Exception as error:
        reason = in_a_line(error)
        raise ValueError(
            f"does not take {'uint8' if is_image else 'float32'} observations "
            f"{[2, *observation_shape]}, as the environments give them: {reason}"
        ) from error
    if not (isinstance(first, torch.Tensor) and first.ndim == 2 and len(first) == 2):
        shape = list(first.shape) if isinstance(first, torch.Tensor) else type(first).__name__
        raise ValueError(f"returns {shape} for two observations, and must return features [2, F]")
    if first.dtype != torch.float32:
        raise ValueError(f"returns {first.dtype}, and must return torch.float32")
    if not torch.equal(first, second):
        raise ValueError(
            "gives other features for the same observations; leave out what is random (dropout)"
        )
    return int(first.shape[1])


def _import(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:  # a script may read its command line
        reason = in_a_line(error)
        raise ValueError(
            f"agent.encoder = {name}: cannot be imported ({reason}); install the module, or put it "
            "on PYTHONPATH, of every trainer too"
        ) from error
    if not callable(found):
        raise ValueError(f"agent.encoder = {name}: is no class or function")
    make: Callable[..., Any] = found
    return make
