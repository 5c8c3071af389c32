"""A gradient path that watches torch optimizers by their hooks, in a loop that is left as it is.

Dimensions: P flattened shared parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Loss = Callable[[], Tensor | float]
"""Returns the loss of the batch just gone through, 0-d."""


class Path(Protocol):
    """The part of `GradientPath` that is called here."""

    def observe(self, theta: Tensor, loss: Tensor | float, grad: Tensor | None = None) -> None: ...
    def finish(self, theta: Tensor, loss: Tensor | float, grad: Tensor | None = None) -> None: ...


class Watch:
    """The handle that `GradientPath.watch` returns; as a context manager it ends when left.

    A round is made of one step of each optimizer, in any order. It ends early where an optimizer
    steps again before another has stepped once, as the critic does of an actor that is delayed;
    the other's loss is then that of its last step, so that rounds have losses of the same parts.
    One that first steps after the first round changes no loss by that: its first one is left out
    of all that follow.
    """

    def __init__(
        self,
        path: Path,
        optimizers: Sequence[Optimizer],
        parameters: Sequence[Tensor],
        loss: Loss | None,
    ) -> None:
        self._path, self._parameters, self._loss = path, parameters, loss
        self._theta: Tensor | None = None  # where the round started; none between two rounds
        self._losses: list[Tensor | float | None] = [None] * len(optimizers)
        self._late: Tensor | float = 0.0  # first losses of optimizers that began later
        self._began = False
        self._grad: Tensor | None = None
        self._in_round: set[int] = set()  # the optimizers that have stepped, or are about to
        self._active = True
        self._hooks = [
            optimizer.register_step_pre_hook(self._before(number))
            for number, optimizer in enumerate(optimizers)
        ]
        if len(optimizers) > 1:
            self._hooks += [each.register_step_post_hook(self._after) for each in optimizers]

    def finish(self, loss: Tensor | float | None = None, grad: Tensor | None = None) -> None:
        """End the watch, and the path at the parameters as they are now.

        `loss` is that of one more batch there, 0-d; left out, it is what the watch's `loss` returns
        now. `grad`, float32 [P], is its gradient, which MAML of either order needs. Errors are
        those of `GradientPath.finish`. Nothing happens if it has ended before.
        """
        if not self._active:
            return
        self.remove()
        if loss is None:
            loss = 0.0 if self._loss is None else self._loss()
        self._path.finish(flat(self._parameters), loss - self._late, grad)

    def remove(self) -> None:
        """End the watch and leave the path unfinished, such as to continue it later."""
        self._end()
        self._observe()

    def _end(self) -> None:
        self._active = False
        for hook in self._hooks:
            hook.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish; after an exception only end the watch."""
        if kind is None:
            self.finish()
        else:
            self._end()

    def _before(self, number: int) -> Callable[[Optimizer, Any, Any], None]:
        def hook(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if kwargs.get("closure") is not None or any(each is not None for each in args[1:]):
                raise ValueError(
                    "optimizer.step(closure): the gradient is computed within the step, where no "
                    "hook sees it; compute it before, and call step()"
                )
            # Of a fused optimizer torch.amp.GradScaler leaves unscaling, and skipping, to the step.
            fused: Any = optimizer if _is_scaled(optimizer) else None
            scale, skips = (getattr(fused, name, None) for name in ("grad_scale", "found_inf"))
            if skips is not None and float(skips) > 0:
                return
            if number in self._in_round:
                self._observe()
            loss = 0.0 if self._loss is None else self._loss()
            # A copy: a loop may write into its tensor before the round ends.
            loss = loss.detach().clone() if isinstance(loss, Tensor) else loss
            if self._began and self._losses[number] is None:
                self._late = self._late + loss
            self._losses[number] = loss
            # As it is now: groups of parameters may be added on the way.
            grad = flat_grad(self._parameters, _stepped_by(optimizer, self._parameters))
            if scale is not None:
                grad /= scale
            if self._grad is None:
                self._theta, self._grad = flat(self._parameters), grad
            else:
                self._grad = self._grad + grad
            self._in_round.add(number)
            if len(self._in_round) == len(self._losses) == 1:
                self._observe()  # a loss that is not finite stops the loop before its step

        return hook

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if len(self._in_round) == len(self._losses):
            self._observe()

    def _observe(self) -> None:
        if self._theta is None:
            return
        losses = sum(loss for loss in self._losses if loss is not None)
        point = self._theta, losses - self._late, self._grad
        self._began = True
        self._theta = self._grad = None
        self._in_round.clear()
        self._path.observe(*point)


def watched(
    optimizer: Optimizer | Iterable[Optimizer],
    parameters: nn.Module | Iterable[Tensor],
    theta0: Tensor,
) -> tuple[list[Optimizer], list[Tensor]]:
    """Return the optimizers, and the tensors that make up `theta0`, float32 [P].

    ValueError: the tensors are no such vector, or no optimizer steps any of them.
    """
    optimizers = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)
    tensors = list(parameters.parameters() if isinstance(parameters, nn.Module) else parameters)
    for index, tensor in enumerate(tensors):
        if tensor.dtype != theta0.dtype or tensor.device != theta0.device:
            raise ValueError(
                f"parameters[{index}]: must be {theta0.dtype} on {theta0.device} as theta0 is, "
                f"got {tensor.dtype} on {tensor.device}"
            )
    if (size := sum(tensor.numel() for tensor in tensors)) != theta0.numel():
        raise ValueError(
            f"parameters: have {size} elements, and theta0 has {theta0.numel()}; give those whose "
            "concatenation theta0 is, in its order"
        )
    for index, each in enumerate(optimizers):
        if not any(_stepped_by(each, tensors)):
            raise ValueError(
                f"optimizer {index}: steps none of parameters; make it of these very tensors"
            )
        shared = set(map(id, tensors))
        groups = (group for group in each.param_groups if shared & set(map(id, group["params"])))
        if any(group.get("maximize") for group in groups):
            raise ValueError(
                f"optimizer {index}: maximizes, and a path descends a loss; give it minus the "
                "objective, and leave maximize out"
            )
    if not optimizers:
        raise ValueError("optimizer: must be at least one")
    return optimizers, tensors


@torch.no_grad()
def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return a copy of the tensors as one vector [P]."""
    return torch.cat([tensor.ravel() for tensor in tensors])


@torch.no_grad()
def flat_grad(tensors: Sequence[Tensor], counts: Sequence[bool]) -> Tensor:
    """Return the gradients of those that count as one vector [P]; zero where there is none."""
    parts = []
    for tensor, counted in zip(tensors, counts, strict=True):
        grad = tensor.grad if counted else None
        if grad is None:
            grad = torch.zeros_like(tensor)
        elif grad.layout is not torch.strided:  # of an embedding
            grad = grad.to_dense()
        parts.append(grad.ravel())
    return torch.cat(parts)


def _is_scaled(optimizer: Optimizer) -> bool:
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def _stepped_by(optimizer: Optimizer, tensors: Sequence[Tensor]) -> list[bool]:
    stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
    return [id(tensor) in stepped for tensor in tensors]
