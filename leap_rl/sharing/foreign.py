"""Agents that exist: tensors out of stable-baselines3's archives and torch's state dicts.

Their tensors alone are read, by `torch.load(weights_only=True)`; whatever else would have to be
unpickled, and so could run code, is refused. No library of theirs is imported.

P: flattened shared parameters.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import torch
import yaml
from torch import Tensor

from leap_rl.core import plain_yaml
from leap_rl.core.regular_file import read_given
from leap_rl.core.zip_files import opened_zip, read_entry, unpacked_size
from leap_rl.networks.parameters import Layout

PREFIXES: Final = ("sb3:", "torch:")
"""Of the names of such files: `sb3:model.zip`, `torch:state.pt`; `@names=FILE` may follow."""

LARGEST: Final = 2**31
"""Bytes of a file, and of all that it unpacks to."""
_LARGEST_NAMES: Final = 2**20
_SHOWN: Final = 40
_POLICY: Final = "policy.pth"
"""A model's state dict in its archive."""


@dataclass(frozen=True, kw_only=True)
class TakenOver:
    """A start that is made of another agent's tensors."""

    theta0: Tensor
    """Float32 [P]."""
    sha256: str
    """Of what was read."""
    taken: tuple[str, ...]
    """Names of parameters whose tensors were there."""
    drawn: tuple[str, ...]
    """Those that start at random: they were not there, or of another shape."""
    dropped: tuple[str, ...]
    """The agent's own names of tensors that have no place here."""

    @property
    def in_words(self) -> str:
        """Which tensors were taken, which drawn and which dropped."""
        drawn = ", ".join(self.drawn) or "none"
        dropped = ", ".join(self.dropped) or "none"
        return f"tensors taken: {', '.join(self.taken)}; drawn: {drawn}; dropped: {dropped}"


def is_foreign(name: str) -> bool:
    """Return whether an initialization's name is that of such a file."""
    return name.startswith(PREFIXES)


def take_over(name: str, layout: Layout, drawn: Tensor | None) -> TakenOver:
    """Return a start made of the tensors that a name stands for.

    Args:
        name: `sb3:PATH` or `torch:PATH`, and maybe `@names=FILE` after it, a YAML file of their
            names and ours.
        layout: Of the shared parameters.
        drawn: Random ones, float32 [P], for what is not there; without them it must all be there.

    Raises:
        ValueError: A file cannot be read, is too large or no regular file, holds anything but
            tensors, or has none that fit.
    """
    kind, _, rest = name.partition(":")
    path, _, names_file = rest.partition("@names=")
    data = _read(path, LARGEST)
    digest = hashlib.sha256(data)
    tensors = _tensors(path, _member(path, data) if kind == "sb3" else data)
    names: dict[str, str] = {}
    if names_file:
        spelled = _read(names_file, _LARGEST_NAMES)
        digest.update(spelled)
        names = _names(names_file, spelled, tensors)
    ours: dict[str, str] = {}
    for theirs in tensors:
        if (one := names.get(theirs, theirs)) in ours:
            raise ValueError(f"{ours[one]} and {theirs} are both to be {one}")
        ours[one] = theirs
    fits = {
        leaf.name: tensors[ours[leaf.name]]
        for leaf in layout.leaves
        if leaf.name in ours and tuple(tensors[ours[leaf.name]].shape) == leaf.shape
    }
    left = tuple(leaf.name for leaf in layout.leaves if leaf.name not in fits)
    if not fits:
        raise ValueError(
            f"has none of the tensors that are shared here ({', '.join(left)}), by name and shape; "
            f"it has {_listed(tensors)}; @names=FILE gives them other names, or take the "
            "agent.algorithm that made it"
        )
    if left and drawn is None:
        raise ValueError(f"lacks {', '.join(left)}; leap-rl learn draws them at random")
    theta0 = torch.zeros(layout.size) if drawn is None else drawn.clone()
    for leaf_name, view in layout.named(theta0).items():
        if leaf_name in fits:
            view.copy_(fits[leaf_name])
    if not theta0.isfinite().all():
        raise ValueError("holds NaN or infinity")
    return TakenOver(
        theta0=theta0,
        sha256=digest.hexdigest(),
        taken=tuple(fits),
        drawn=left,
        dropped=tuple(theirs for one, theirs in ours.items() if one not in fits),
    )


def _listed(names: Collection[str]) -> str:
    """Return names for a line: a stranger's file may have a million."""
    more = len(names) - _SHOWN
    return ", ".join(islice(names, _SHOWN)) + (f" and {more:,} more" if more > 0 else "")


def _read(path: str, largest: int) -> bytes:
    try:
        return read_given(path, largest)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None


def _member(path: str, data: bytes) -> bytes:
    """Return the state dict's file in an archive of stable-baselines3."""
    try:
        with opened_zip(data) as archive:
            if archive.getinfo(_POLICY).file_size > LARGEST:
                raise ValueError(f"{path}: {_POLICY} in it is larger than {LARGEST:,} bytes")
            return read_entry(archive, _POLICY)
    except KeyError:
        raise ValueError(f"{path}: has no {_POLICY}, as stable-baselines3's archives do") from None
    except ValueError:
        raise
    except Exception as error:  # each way of packing has errors of its own
        raise ValueError(f"{path}: is no archive of stable-baselines3: {error}") from None


def _tensors(path: str, data: bytes) -> dict[str, Tensor]:
    """Return what torch saved, by name, if it is tensors alone."""
    try:
        with opened_zip(data) as archive:
            unpacked = unpacked_size(archive)
    except Exception as error:
        raise ValueError(f"{path}: is no file of torch.save: {error}") from None
    if unpacked > LARGEST:
        raise ValueError(f"{path}: unpacks to more than {LARGEST:,} bytes")
    try:
        found: Any = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception:  # of a damaged file any; of a pickle torch's own, which tells how to trust it
        raise ValueError(
            f"{path}: holds other things than tensors, which would have to be unpickled and could "
            "run code, or is damaged; save a state dict alone"
        ) from None
    if not isinstance(found, Mapping) or not all(
        isinstance(name, str) and isinstance(one, Tensor) for name, one in found.items()
    ):
        raise ValueError(f"{path}: must hold tensors by name, as a module's state_dict() does")
    return {name: one.detach() for name, one in found.items() if _has_numbers(one)}


def _has_numbers(tensor: Tensor) -> bool:
    """Whether it can be copied: neither sparse, quantized nor complex, and not of a shape alone."""
    is_plain = tensor.layout is torch.strided and tensor.device.type == "cpu"
    return is_plain and not (tensor.is_quantized or tensor.is_complex())


def _names(path: str, spelled: bytes, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    try:
        names: Any = plain_yaml.load(spelled.decode())
    except (ValueError, yaml.YAMLError, RecursionError):
        names = None
    if not isinstance(names, dict) or not all(
        isinstance(word, str) for pair in names.items() for word in pair
    ):
        raise ValueError(f"{path}: must say names as YAML, `theirs: ours` a line")
    if unknown := sorted(names.keys() - tensors.keys()):
        raise ValueError(f"{path}: there is no tensor {unknown[0]}; there are {_listed(tensors)}")
    return names
