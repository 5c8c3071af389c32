"""RLlib's PPO learner, each of whose steps of shared parameters is shown to a gradient path.

P: flattened shared parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from torch import Tensor, nn

from leap_rl.core.choices import Share
from leap_rl.learners.rllib.module import LeapEncoderModule
from leap_rl.meta.gradient_path import Point
from leap_rl.networks.parameters import layout_of, load_parameters


class ObservedPPOLearner(PPOTorchLearner):
    """PPO's learner for one `LeapEncoderModule`, in this process.

    The loss of a point is the whole loss of the update's minibatch, and its gradient that before
    any clipping. `observe` sees the shared parameters before each update; without it, `points` are
    measured and nothing is updated. `losses` are those of updates since they were last taken.
    """

    observe: Callable[[Point], None] | None
    evaluates_again: bool
    points: list[Point]
    updates: int
    losses: list[float]

    def build(self) -> None:
        super().build()
        self.observe, self.evaluates_again = None, False
        self.points, self.losses, self.updates = [], [], 0
        self.share("encoder")
        self._previous_batch_loss: Tensor | None = None
        self._minibatch: dict[str, Any] = {}

    @property
    def network(self) -> LeapEncoderModule:
        network = self.module[DEFAULT_MODULE_ID].unwrapped()
        assert isinstance(network, LeapEncoderModule)
        return network

    def share(self, what: Share) -> None:
        """Share the parameters of the encoder, as is the case until this is called, or of all."""
        self._shared: nn.Module = self.network if what == "agent" else self.network.encoder
        self._layout = layout_of(self._shared)

    def theta(self) -> Tensor:
        return self._layout.pack(dict(self._shared.named_parameters()))

    def load_theta(self, theta: Tensor) -> None:
        load_parameters(self._shared, self._layout.named(theta))

    def compute_loss_for_module(self, **given: Any) -> Tensor:
        self._minibatch = given
        loss: Any = super().compute_loss_for_module(**given)
        assert isinstance(loss, Tensor)
        return loss

    def compute_gradients(self, loss_per_module: dict[str, Any], **kwargs: Any) -> Any:
        gradients = super().compute_gradients(loss_per_module, **kwargs)
        grads = {
            name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for name, parameter in self._shared.named_parameters()
        }
        self._point = Point(
            theta=self.theta(),
            loss=loss_per_module[DEFAULT_MODULE_ID].detach(),
            grad=self._layout.pack(grads),
            previous_batch_loss=self._previous_batch_loss,
        )
        return gradients

    def apply_gradients(self, gradients_dict: Any) -> None:
        if self.observe is None:
            self.points.append(self._point)
            return
        self.observe(self._point)
        super().apply_gradients(gradients_dict)
        self.updates += 1
        self.losses.append(float(self._point.loss))
        if self.evaluates_again:
            self._previous_batch_loss = self._loss_again()

    @torch.no_grad()
    def _loss_again(self) -> Tensor:
        """Return the loss of the last minibatch at the parameters as they are now."""
        # RLlib takes the KL divergence that it steers by from its metrics: they stay as they were.
        kept, self.metrics = self.metrics, MetricsLogger()
        minibatch = self._minibatch
        outputs = self.network.forward_train(minibatch["batch"])
        loss: Any = super().compute_loss_for_module(**{**minibatch, "fwd_out": outputs})
        self.metrics = kept
        assert isinstance(loss, Tensor)
        return loss.detach()
