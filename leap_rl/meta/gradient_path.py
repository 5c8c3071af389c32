"""The gradient path of one task: it sums up the task's contribution to the meta-gradient.

Dimensions: P flattened shared parameters, K updates (and so K segments).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypedDict, Unpack

import torch
from torch import Tensor, nn

from leap_rl.meta.vectors import (
    BlockSum,
    NonFiniteError,
    check_finite,
    check_state,
    check_vector,
    copy_theta0,
    finite_scalar,
    norm,
)
from leap_rl.meta.watch import Loss, Watch, flat, watched

__all__ = ["GradientPath", "Method", "NoMethod", "NonFiniteError", "NullPath"]


class Known(TypedDict, total=False):
    """Optional fields of a `Point`."""

    previous_batch_loss: Tensor | float | None
    step_length: float | None


class GradientPath(ABC):
    """The path of one task's shared parameters, observed while the task is learned.

    The loop that it is made for::

        path = method.start(theta0)
        for each update:
            loss, grad = ...                      # at theta, on the update's own batch
            path.observe(theta, loss, grad)
            theta = theta - step(grad)
        path.finish(theta, loss, grad)            # one more batch, not stepped on
        contribution = path.gradient()

    A method's path adds `_extend` (take one point in), `gradient`, and its state to `_saved`.
    """

    _needs_gradient = False
    """Whether each point must have its gradient."""
    _needs_loss = False
    """Whether the contribution depends on the losses."""
    _saved: tuple[str, ...] = ("points", "finished", "first_step")
    """Names of the state's attributes, without their underscore."""

    def __init__(self, theta0: Tensor, *, borrow: bool = False) -> None:
        self._theta0 = copy_theta0(theta0)
        self._borrow = borrow
        self._points = 0
        self._finished = False
        self._first_step = 0.0  # |theta_1 - theta0| / |theta0|

    @property
    def segments(self) -> int:
        """Segments closed so far: K after `finish`."""
        return max(self._points - 1, 0)

    def observe(
        self,
        theta: Tensor,
        loss: Tensor | float,
        grad: Tensor | None = None,
        **known: Unpack[Known],
    ) -> None:
        """Close the segment that ends at `theta` and open the next; called before each update.

        Arguments are a `Point`'s; theta is theta0 at the first call. `theta` and `grad` are copied,
        unless the path was started to borrow them.

        Raises:
            NonFiniteError: something observed is NaN or infinite; the path is as it was before.
            ValueError: a wrong shape or dtype, a first observation away from theta0, or no
                gradient where the method needs it.
            RuntimeError: the path is finished.
        """
        self.visit(Point(theta=theta, loss=loss, grad=grad, **known))

    def finish(
        self,
        theta: Tensor,
        loss: Tensor | float,
        grad: Tensor | None = None,
        **known: Unpack[Known],
    ) -> None:
        """Close the last segment at `theta`, the parameters after the last update.

        Arguments and errors are those of `observe`; the gradient is needed only where the method's
        `end_batches` are not 0.
        """
        self.end(Point(theta=theta, loss=loss, grad=grad, **known))

    def watch(
        self,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
        parameters: nn.Module | Iterable[Tensor],
        loss: Loss | None = None,
    ) -> Watch:
        """Observe each step of a torch optimizer from now on, by its hooks.

            with path.watch(optimizer, encoder, lambda: loss):
                for update in range(updates):  # a loop as it is without a path
                    loss = ...
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            contribution = path.gradient()

        Args:
            optimizer: What steps the parameters, and maybe others; of several optimizers, such as
                an actor's and a critic's, a round of steps is one segment. Its gradient is the sum
                of what each of them steps by, and its loss the sum of what `loss` returns.
            parameters: A module, or tensors, float32; their concatenation is theta0. What no
                optimizer steps stands still.
            loss: Called before each step, for the loss of the batch just gone through, and once
                more when the watch ends. Without it the loss difference of each segment is 0.

        Gradients are those that the optimizer finds, after any clipping.

        Raises:
            ValueError: the parameters are not at theta0, or no optimizer steps any of them; or the
                path runs through the loss, and none is given. In a step: a closure, and what
                `observe` raises.
        """
        optimizers, tensors = watched(optimizer, parameters, self._theta0)
        if loss is None and self._needs_loss:
            raise ValueError(
                "loss: the path runs through it; give watch a function that returns the last "
                "batch's, such as lambda: loss, or take Leap(loss_in_path=False)"
            )
        if self._points == 0 and not torch.equal(flat(tensors), self._theta0):
            raise ValueError(
                "parameters: are not at theta0; copy it into them first "
                "(torch.nn.utils.vector_to_parameters)"
            )
        return Watch(self, optimizers, tensors, loss)

    def visit(self, point: Point) -> None:
        """The same as `observe`, of a `Point`."""
        where = f"the start of segment {self._points}"
        if point.grad is None and self._needs_gradient:
            raise ValueError(f"grad: the path needs it at {where}; call observe(theta, loss, grad)")
        self._take_in(point, where)

    def end(self, point: Point) -> None:
        """The same as `finish`, of a `Point`."""
        if self._points == 0:
            raise RuntimeError("finish before any observe: the path has no segment to close")
        where = f"the end of segment {self.segments}"
        if point.grad is not None:  # no later step would show that it is not finite
            check_finite("grad", point.grad, where)
        self._take_in(point, where)
        self._finished = True

    def _take_in(self, point: Point, where: str) -> None:
        if self._finished:
            raise RuntimeError("the path is finished: start another")
        loss = finite_scalar("loss", point.loss, where)
        ends_at = loss
        if point.previous_batch_loss is not None:
            if self._points == 0:
                raise ValueError("previous_batch_loss: the first observation has no previous batch")
            ends_at = finite_scalar("previous_batch_loss", point.previous_batch_loss, where)
        if point.step_length is not None and math.isnan(point.step_length):
            check_finite("theta", point.theta, where)
            raise NonFiniteError(f"the optimizer's state at {where} is not finite")
        with torch.no_grad():
            self._extend(point, loss, ends_at, where)
            if self._points == 1:
                length = norm(self._theta0)
                step = norm(point.theta - self._theta0)
                self._first_step = step / length if length > 0 else 0.0
        self._points += 1

    def _check_point(self, point: Point, where: str) -> None:
        # Whether theta is finite is left to the callers, which may learn it from a norm.
        check_vector("theta", point.theta, like=self._theta0)
        if point.grad is not None:
            check_vector("grad", point.grad, like=self._theta0)
            if point.step_length is None:
                check_finite("grad", point.grad, where)
        if self._points == 0 and not torch.equal(point.theta, self._theta0):
            check_finite("theta", point.theta, where)
            raise ValueError(
                "theta: the first observation must be of theta0; "
                "call observe before the update, not after it"
            )

    @abstractmethod
    def _extend(self, point: Point, loss: float, ends_at: float, where: str) -> None:
        """Take one point in, or refuse it and change nothing.

        The open segment ends at the loss `ends_at`, the next one starts at `loss`.
        """

    @abstractmethod
    def gradient(self) -> Tensor:
        """The contribution: float32 [P], the sum over the segments closed so far; a pure read."""

    def metrics(self) -> dict[str, float]:
        """Scalars for logs; a pure read.

        `first_step`: |theta_1 - theta0| / |theta0|, 0 before the first update.
        """
        return {"first_step": self._first_step}

    def state_dict(self) -> dict[str, Tensor]:
        """All that a fresh path from the same theta0 and method needs, copied.

        Counts are 0-d int64, other scalars 0-d float64.
        """
        # An integer sum over the bits is the same on every CPU, in whatever order it is taken.
        state = {"theta0_checksum": self._theta0.view(torch.int32).sum(dtype=torch.int64).cpu()}
        for name in self._saved:
            value = getattr(self, f"_{name}")
            if isinstance(value, BlockSum):
                state |= value.state_dict(name)
            elif isinstance(value, Tensor):
                state[name] = value.clone()
            elif isinstance(value, float):
                state[name] = torch.tensor(value, dtype=torch.float64)
            else:
                state[name] = torch.tensor(int(value))
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state`; ValueError, and no change, if it is not one of such a path."""
        own = self.state_dict()
        check_state(state, like=own)
        if int(state["theta0_checksum"]) != int(own["theta0_checksum"]):
            raise ValueError("state: it was saved on a path that started from another theta0")
        for name in self._saved:
            value = getattr(self, f"_{name}")
            if isinstance(value, BlockSum):
                value.load_state_dict(state, name)
            elif isinstance(value, Tensor):
                setattr(self, f"_{name}", state[name].to(value.device, copy=True))
            else:
                setattr(self, f"_{name}", type(value)(state[name].item()))


class Method:
    """How a task's gradient path becomes its contribution to the meta-gradient."""

    name: ClassVar[str]
    path: ClassVar[type[GradientPath]]
    end_batches: int = 0
    """Batches over which the gradient given to `finish` is averaged; 0 if it needs none."""
    carries_agents: ClassVar[bool] = False
    """Whether a game's agent is carried over from its last round, heads and optimizer included."""

    def start(self, theta0: Tensor, *, borrow: bool = False) -> GradientPath:
        """Begin a task's path at a copy of `theta0`, float32 [P]; errors as in `copy_theta0`.

        With `borrow` the caller leaves each observed `theta` and `grad` unchanged until the next
        call has returned; the path then copies nothing, which halves its cost.
        """
        return self.path(theta0, borrow=borrow)


class NullPath(GradientPath):
    """A path that sums nothing: it counts segments and refuses a loss that is not finite."""

    def _extend(self, point: Point, loss: float, ends_at: float, where: str) -> None:
        pass

    def gradient(self) -> Tensor:
        return torch.zeros_like(self._theta0)


@dataclass(frozen=True)
class NoMethod(Method):
    """Learn a task and contribute nothing to a meta-gradient."""

    name = "none"
    path = NullPath


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Shared parameters, and the loss there.

    An observer may keep `theta` and `grad` by reference: they stay as they are until the next point
    has been observed.
    """

    theta: Tensor
    """Shared parameters, float32 [P]."""
    loss: Tensor | float
    """The loss at `theta` on the batch of the update to come, 0-d."""
    grad: Tensor | None = None
    """Its gradient, float32 [P]; some methods do without."""
    previous_batch_loss: Tensor | float | None = None
    """The loss at `theta` on the batch of the update just done, 0-d. Given it, the closed segment's
    loss difference is taken on that one batch; without it, between one batch and the next."""
    step_length: float | None = None
    """|theta - last theta|, if the caller knows it. It saves a pass over the last point, and the
    search for NaN in `grad`: a NaN there shows in the next point's step length."""
