"""A policy and a value function on one encoder, and its forward and backward passes over an unroll.

As in the Leap paper, appendix "Experiment details: Atari": "estimating both value function and
policy through linear layers connected to the final output of a shared convolutional network".

On-policy, the pass that chooses an action is the pass that is differentiated: each agent step is
computed once, what its gradient needs is kept, and the backward pass takes the gradients with
respect to the outputs of the whole unroll.

T: agent steps in an unroll. B, N: observations. L: logits of a policy. H, W, C: an image's height,
width and channels. V: length of a vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from leap_rl.networks.custom import EncoderSpec
from leap_rl.networks.encoders import blank, features_of, initialize, make_encoder


class ActorCritic(nn.Module):
    """An encoder and two linear heads, in the flat vector's order: encoder, policy, value.

    All parameters are zero until `initialize` draws them or a vector is copied in, but for those
    of a custom encoder. The policy's head gives L logits: one an action, or more where actions are
    continuous. ValueError: the encoder is not known, or takes no such observations.
    """

    def __init__(
        self,
        encoder: str | EncoderSpec,
        *,
        observation_shape: tuple[int, ...],
        num_logits: int,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(encoder, observation_shape)
        features = features_of(encoder, self.encoder, observation_shape)
        self.policy = blank(lambda: nn.Linear(features, num_logits))
        self.value = blank(lambda: nn.Linear(features, 1))

    def draw_heads(
        self,
        generator: torch.Generator,
        gains: Mapping[str, float | None],
        *,
        log_std: float | None = None,
    ) -> None:
        """Draw the policy's head, then the value's; for gains by name see `initialize`.

        Of continuous actions, the second half of whose logits are log standard deviations, the
        biases of that half are shifted by `log_std`; None: actions are discrete.
        """
        initialize(self.policy, generator, gain=gains["policy"])
        if log_std is not None:
            with torch.no_grad():
                self.policy.bias[len(self.policy.bias) // 2 :] += log_std
        initialize(self.value, generator, gain=gains["value"])

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [N, L] and values [N] of observations uint8 [N, H, W, C], or [N, V].

        A vector is float32, or uint8, of which the encoder sees 1/255.
        """
        if observations.dtype == torch.uint8 and observations.ndim == 2:
            observations = observations / 255  # an encoder of somebody's own takes float32 vectors
        features = self.encoder(observations)
        return self.policy(features), torch.squeeze(self.value(features), -1)


class Outputs(NamedTuple):
    """The network's outputs for the observations of agent steps, detached."""

    logits: Tensor
    """float32 [..., L], of the policy π: one an action, or as a distribution has them."""
    values: Tensor
    """float32 [...], V."""


class ForwardBackward(ABC):
    """Forward and backward passes of one network; its parameters are constant within an unroll."""

    def __init__(self) -> None:
        self._unroll: list[Any] = []  # what the backward pass needs of each agent step

    @torch.no_grad()
    def forward(self, observations: Tensor) -> Outputs:
        """Return the outputs for images uint8 [B, H, W, C] or vectors float32 [B, V]."""
        return self._forward(observations)[0]

    def record(self, observations: Tensor) -> Outputs:
        """Return the outputs, and keep what the gradient needs, the observations included."""
        outputs, step = self._forward(observations)
        self._unroll.append(step)
        return outputs

    def backward(self, logits_grad: Tensor, values_grad: Tensor, *, forget: bool = True) -> None:
        """Overwrite the flat gradient with that of the recorded unroll.

        Given are a loss's gradients by the logits, float32 [T, B, L], and by the values [T, B].
        Unless the unroll is forgotten, it can be differentiated again.
        """
        self._backward(logits_grad, values_grad, forget)
        if forget:
            self.forget()

    def forget(self) -> None:
        self._unroll = []

    def refresh(self) -> None:  # noqa: B027 - autograd needs none
        """Read the parameters again, after they have changed."""

    @abstractmethod
    def _forward(self, observations: Tensor) -> tuple[Outputs, Any]:
        """Return the outputs, detached, and what the backward pass needs of this agent step."""

    @abstractmethod
    def _backward(self, logits_grad: Tensor, values_grad: Tensor, forget: bool) -> None: ...


def heads_gradient(logits_grad: Tensor, values_grad: Tensor) -> Tensor:
    """Return both gradients as one, [N, L + 1], N = T·B."""
    return torch.cat([logits_grad, values_grad.unsqueeze(2)], dim=2).flatten(0, 1)


def through_relu(grad: Tensor, outputs: Tensor) -> Tensor:
    """Zero the gradient where the ReLU's output is zero, in place."""
    torch.ops.aten.threshold_backward.grad_input(grad, outputs, 0, grad_input=grad)
    return grad
