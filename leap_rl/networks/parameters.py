"""One flat vector for all parameters of a module, and its named views.

Every parameter's data is a view of one float32 vector and its gradient a preset view of another.
An optimizer step, a sum over the gradient path and a message between processes then are operations
on one array, without gathering or scattering parameters.

N: flattened parameters of the module, padding included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor, nn

_ALIGNMENT = 16  # in float32 elements: 64 bytes, a cache line and the widest vector register


@dataclass(frozen=True)
class Leaf:
    """Where one parameter lies in the flat vector."""

    name: str
    """Dotted name within the module, as `named_parameters` has it."""
    shape: tuple[int, ...]
    offset: int
    """Index of its first element; a multiple of 16, so each view starts on a 64-byte boundary."""

    @property
    def stop(self) -> int:
        return self.offset + math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The parameters in a flat vector; elements of no leaf are zero, and so is their gradient."""

    leaves: tuple[Leaf, ...]
    size: int
    """Length N of the vector, padding included; a multiple of 16."""

    def before(self, child: str) -> Layout:
        """Return the layout of what comes before a child module's parameters."""
        leaves = tuple(takewhile(lambda leaf: not leaf.name.startswith(f"{child}."), self.leaves))
        assert 0 < len(leaves) < len(self.leaves), f"no parameters come before {child}"
        return Layout(leaves, _aligned(leaves[-1].stop))

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the views of `vector` [N], by name and in the vector's order."""
        assert vector.shape == (self.size,), (tuple(vector.shape), self.size)
        return {leaf.name: vector[leaf.offset : leaf.stop].view(leaf.shape) for leaf in self.leaves}

    def pack(self, named: Mapping[str, Tensor]) -> Tensor:
        """Return a new float32 vector [N], padding zero; ValueError if `named` does not fit."""
        names = {leaf.name for leaf in self.leaves}
        missing, unexpected = sorted(names - named.keys()), sorted(named.keys() - names)
        if missing or unexpected:
            raise ValueError(
                f"these tensors are not this network's parameters: missing {missing}, "
                f"unexpected {unexpected}; were they made for another encoder?"
            )
        vector = torch.zeros(self.size)
        views = self.named(vector)
        for leaf in self.leaves:
            tensor = named[leaf.name]
            if tuple(tensor.shape) != leaf.shape:
                raise ValueError(
                    f"{leaf.name}: has shape {tuple(tensor.shape)}, but the network's is "
                    f"{leaf.shape}; was it made for other observations or another encoder?"
                )
            if tensor.dtype != torch.float32:
                raise ValueError(f"{leaf.name}: is {tensor.dtype}; convert it to torch.float32")
            views[leaf.name].copy_(tensor.detach())
        return vector

    def spaced(self, named: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the tensors themselves, in the vector's order, with zeros for its padding."""
        following = [leaf.offset for leaf in self.leaves[1:]] + [self.size]
        parts: list[Tensor] = []
        for leaf, offset in zip(self.leaves, following, strict=True):
            parts += [named[leaf.name], torch.zeros(offset - leaf.stop)]
        return parts


class FlatParameters:
    """A module's parameters as one vector, and their gradients as another.

    There are two of each: an optimizer writes the next point into `spare` and calls `swap`, so that
    the last point and its gradient stay until the next step, and a gradient path needs no copies.

    Attributes:
        vector: float32 [N]. The module computes with what is written here. Autograd does not see
            such writes: none may come between a forward pass and its backward pass.
        grad: float32 [N]. `backward()` adds into it.
        spare: float32 [N], the other vector.
        spare_grad: float32 [N], the other gradient.
        layout: Which element belongs to which parameter.
    """

    def __init__(self, module: nn.Module, layout: Layout, *, device: torch.device) -> None:
        self.layout = layout
        self.vector, self.grad, self.spare, self.spare_grad = (
            torch.zeros(layout.size, device=device) for _ in range(4)
        )
        parameters = dict(module.named_parameters())
        self._parameters = [parameters[leaf.name] for leaf in layout.leaves]
        # Made once: an update of a small network has no time for them.
        self._views, self._spare_views = (
            list(zip(layout.named(vector).values(), layout.named(grad).values(), strict=True))
            for vector, grad in ((self.vector, self.grad), (self.spare, self.spare_grad))
        )

    def swap(self) -> None:
        """Make the module compute with the spare vector, and add gradients into the spare one."""
        self.vector, self.spare = self.spare, self.vector
        self.grad, self.spare_grad = self.spare_grad, self.grad
        self._views, self._spare_views = self._spare_views, self._views
        self.bind()

    def bind(self) -> None:
        """Make the module's parameters and gradients views of `vector` and `grad`."""
        for parameter, (value, grad) in zip(self._parameters, self._views, strict=True):
            parameter.data = value
            parameter.grad = grad

    def copies(self) -> dict[str, Tensor]:
        return {name: view.clone() for name, view in self.layout.named(self.vector).items()}

    def zero_grad(self) -> None:
        """Zero the gradients in place; torch's own `zero_grad` would drop the views."""
        self.grad.zero_()


def layout_of(module: nn.Module) -> Layout:
    """Return the layout that `module`'s parameters have in a flat vector, in their own order.

    A first child's vector is the beginning of the module's.
    """
    return layout_of_tensors(dict(module.named_parameters()))


def layout_of_tensors(named: Mapping[str, Tensor]) -> Layout:
    """Return the layout that tensors have in a flat vector, in this order."""
    leaves, offset = [], 0
    for name, tensor in named.items():
        leaves.append(Leaf(name, tuple(tensor.shape), offset))
        offset = _aligned(leaves[-1].stop)
    return Layout(tuple(leaves), offset)


@torch.no_grad()
def load_parameters(module: nn.Module, named: Mapping[str, Tensor]) -> None:
    """Copy all parameters in by name, a tied one by its first name; errors as in `Layout.pack`."""
    layout = layout_of(module)
    for name, view in layout.named(layout.pack(named)).items():
        module.get_parameter(name).copy_(view)


def flatten_parameters(module: nn.Module, *, device: str = "cpu") -> FlatParameters:
    """Move `module`'s parameters into one float32 vector and give them gradients that are views.

    The values stay. The module must be float32, and is to be moved or cast no more.
    """
    layout = layout_of(module)
    flat = FlatParameters(module, layout, device=torch.device(device))
    for name, view in layout.named(flat.vector).items():
        parameter = module.get_parameter(name)
        assert parameter.dtype == torch.float32, (name, parameter.dtype)
        view.copy_(parameter.detach())
    flat.bind()
    return flat


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
