"""Advantage actor-critic: the agent without its environments.

Synchronous n-step actor-critic (Mnih et al. 2016, one learner for all environments), as the Leap
paper's appendix "Experiment details: Atari" sets it.

P: flattened shared parameters, the encoder's or, with `share: agent`, all. T: unroll.
B: environments. D: numbers of a continuous action. H, W, C: an observation's height, width and
channels; where it is a vector, float32 [B, length] takes the place of uint8 [B, H, W, C].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leap_rl.core.determinism import configure_cuda
from leap_rl.learners.a2c.distributions import Gaussian
from leap_rl.learners.a2c.loss import (
    A2CLoss,
    Distribution,
    Targets,
    Weights,
    a2c_loss,
)
from leap_rl.learners.a2c.returns import n_step_returns
from leap_rl.learners.a2c.rmsprop import RMSProp, check_same_shape, norm
from leap_rl.learners.config import AgentConfig, PathLoss
from leap_rl.learners.defaults import settings_of
from leap_rl.learners.hardware import resolve
from leap_rl.networks.actor_critic import ActorCritic, Outputs
from leap_rl.networks.autograd import make_forward_backward
from leap_rl.networks.encoders import LAST_LAYER, initialize, shared_part
from leap_rl.networks.parameters import flatten_parameters, layout_of


@dataclass(frozen=True)
class Batch:
    """The data of one update; observations are not copied."""

    observations: tuple[Tensor, ...]
    """T of uint8 [B, H, W, C], those acted on."""
    targets: Targets
    """Each [T, B], or [T, B, D] of continuous actions of D numbers."""


class A2CLearner:
    """An agent that acts and learns.

    One update, with the environments and the gradient path in the caller's hands::

        for _ in range(unroll):
            actions = learner.act(observations)
            ... step the environments with the actions ...
            learner.record(rewards, terminated=..., truncated=..., last_observations=...)
        loss, batch = learner.losses(observations)
        gradient = learner.backward()
        path.observe(learner.shared, loss.path_loss(config.path_loss), gradient,
                     step_length=learner.step_length)
        learner.step()

    The parameters and the gradient of an update stay readable until the next one is done. Between
    `step` and the next `act` the learner is its `state_dict` and nothing else.

    Attributes:
        config: What it was built with, each `auto` resolved.
        flat: The network's parameters and gradients as vectors; the first P are the shared ones.
        step_length: Length of the last step of the shared parameters; none before the first.
        shared_size: P.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        observation_shape: tuple[int, ...],
        policies: Distribution,
        head_generator: torch.Generator,
        action_generator: torch.Generator,
    ) -> None:
        """Draw the task's own parameters; the shared ones are zero until `load_shared`.

        What is `auto` in the config is resolved here. The head generator draws the heads unless
        they are shared, and the encoder's linear layer where that is not; `act` draws from the
        action generator.

        Raises:
            ValueError: The observations are too small for the encoder, or of another kind.
        """
        self.config = config = resolve(config)
        assert config.precision != "auto"
        assert config.reward_clip != "auto"
        self._reward_clip = config.reward_clip
        self._settings = settings = settings_of(config)
        self.policies = policies
        self.action_generator = action_generator
        self.network = ActorCritic(
            config.encoder_spec,
            observation_shape=observation_shape,
            num_logits=policies.num_logits,
        )
        encoder, shares_agent = self.network.encoder, config.share == "agent"
        layout = layout_of(self.network if shares_agent else encoder)
        self.shared_size = shared_part(layout, config.share).size
        if not shares_agent:
            log_std = config.initial_log_std if isinstance(policies, Gaussian) else None
            self.network.draw_heads(head_generator, config.gains, log_std=log_std)
        if self.shared_size < layout.size:
            linear = encoder.get_submodule(LAST_LAYER)
            initialize(linear, head_generator, gain=config.gains["encoder"])
        if config.device == "cuda":
            configure_cuda()
        self.network.to(config.device)
        self.flat = flatten_parameters(self.network, device=config.device)
        self.step_length: float | None = None
        self.optimizer = RMSProp(
            self.flat,
            lr=settings.lr,
            alpha=config.rmsprop_alpha,
            eps=settings.rmsprop_eps,
            start=config.rmsprop_start,
        )
        self.passes = make_forward_backward(self.network, self.flat, precision=config.precision)
        self._weights: dict[PathLoss, Weights] = {
            "total": Weights(1.0, settings.value_coefficient, -config.entropy_coefficient),
            "policy": Weights(policy=1.0),
            "value": Weights(value=1.0),
        }
        # Of each agent step, the arguments and results of `act`, and the arguments of `record`.
        self._acted: list[tuple[Tensor, Outputs, Tensor]] = []
        self._outcomes: list[tuple[Tensor, Tensor, Tensor, Mapping[int, Tensor]]] = []
        self._ignored: list[Tensor] = []  # of each agent step, where any may be
        # Of the unroll whose gradient is to be taken, that of the total loss last.
        self._unrolled: tuple[Outputs, Targets, Outputs] | None = None

    @property
    def shared(self) -> Tensor:
        """float32 [P], a view of the shared parameters; each update has a new one."""
        return self.flat.vector[: self.shared_size]

    def load_shared(self, theta: Tensor) -> None:
        """Copy the shared parameters in, float32 [P], between updates; the rest stays as it is."""
        assert not self._acted, "an unroll is under way"
        assert theta.shape == self.shared.shape, (tuple(theta.shape), self.shared_size)
        self.shared.copy_(theta)
        self.step_length = None  # no step of the optimizer led here
        self.passes.refresh()

    def act(self, observations: Tensor) -> Tensor:
        """Draw actions for observations uint8 [B, H, W, C].

        Returns:
            int64 [B], or float32 [B, D], on the CPU.

        The observations are not copied: they must not change as long as a `Batch` holds them.
        """
        assert len(self._acted) == len(self._outcomes), "the last step was not recorded"
        if not self._acted:
            self.passes.forget()  # an earlier unroll whose gradient was not taken
        predictions = _on_cpu(self.passes.record(observations))
        # Drawn on the CPU, from a stream that is the same on every device.
        actions = self.policies.sample(predictions.logits, self.action_generator)
        self._acted.append((observations, predictions, actions))
        return actions

    def record(
        self,
        rewards: Tensor,
        *,
        terminated: Tensor,
        truncated: Tensor,
        last_observations: Mapping[int, Tensor],
        ignored: Tensor | None = None,
    ) -> None:
        """Take the outcome of the last `act`.

        Args:
            rewards: float32 [B], raw.
            terminated: bool [B], the episode ended.
            truncated: bool [B], the episode was cut off and did not end by itself.
            last_observations: For each environment that was cut off, by index, that episode's own
                last observation, uint8 [H, W, C].
            ignored: bool [B], the action was not taken, as the episode had ended in the step
                before: it is left out of the loss. None of environments that take all.
        """
        assert len(self._acted) == len(self._outcomes) + 1, "nothing was acted"
        self._outcomes.append((rewards, terminated, truncated, last_observations))
        if ignored is not None:
            self._ignored.append(ignored)

    def losses(self, next_observations: Tensor) -> tuple[A2CLoss, Batch]:
        """Return the loss of the unroll since the last call, and its batch.

        Clips the rewards, bootstraps from `next_observations`, uint8 [B, H, W, C], those to be
        acted on next, and forgets the unroll.
        """
        assert self._acted, "an unroll needs at least one agent step"
        assert len(self._acted) == len(self._outcomes), "the last step was not recorded"
        observations, predictions, actions = zip(*self._acted, strict=True)
        logits, values = (torch.stack(parts) for parts in zip(*predictions, strict=True))
        *ends, last_observations = zip(*self._outcomes, strict=True)
        rewards, terminated, truncated = (torch.stack(parts) for parts in ends)
        truncation_values = torch.zeros_like(rewards)
        cut_off = truncated & ~terminated
        last = [last_observations[t][b] for t, b in cut_off.nonzero().tolist()]
        if last:
            truncation_values[cut_off] = self.passes.forward(torch.stack(last)).values.cpu()
        returns = n_step_returns(
            rewards.clamp(-self._reward_clip, self._reward_clip),
            terminated=terminated,
            truncated=truncated,
            truncation_values=truncation_values,
            bootstrap_values=self.passes.forward(next_observations).values.cpu(),
            gamma=self._settings.gamma,
        )
        targets = Targets(
            torch.stack(actions),
            returns=returns,
            advantages=returns - values,
            taken=~torch.stack(self._ignored) if self._ignored else None,
        )
        self._acted, self._outcomes, self._ignored = [], [], []
        outputs = Outputs(logits, values)
        loss, gradient = a2c_loss(self.policies, outputs, targets, self._weights["total"])
        self._unrolled = (outputs, targets, gradient)
        return loss, Batch(observations, targets)

    def backward(self) -> Tensor:
        """Return the gradient of the path loss by the shared parameters, float32 [P].

        The gradient of the total loss is left in `flat.grad` for `step`. If the path loss is the
        total loss, what is returned is a view of that, valid until the next but one `step`.
        """
        path_loss = self.config.path_loss
        path_gradient = self.flat.grad[: self.shared_size]
        if path_loss != "total":
            self._backward(path_loss, forget=False)
            path_gradient = path_gradient.clone()
        self._backward("total", forget=True)
        return path_gradient

    def step(self) -> None:
        scale = 1.0
        longest = self._settings.max_grad_norm
        if math.isfinite(longest):
            length = norm(self.flat.grad)
            if length > longest:  # not if it is NaN, which the step finds
                scale = longest / length
        # The gradient itself stays as it is: a gradient path keeps a view of it.
        self.step_length = self.optimizer.step(self.shared_size, grad_scale=scale)
        self.passes.refresh()

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> A2CLoss:
        """Return the loss of a batch at the current parameters, without gradient.

        Actions, returns and advantages stay those of the batch: this is the function whose gradient
        the update took, at another point.
        """
        passes = [_on_cpu(self.passes.forward(each)) for each in batch.observations]
        predictions = Outputs(*(torch.stack(parts) for parts in zip(*passes, strict=True)))
        return a2c_loss(self.policies, predictions, batch.targets, self._weights["total"])[0]

    def state_dict(self) -> dict[str, Tensor]:
        assert not self._acted, "an unroll is under way"
        state = {
            "parameters": self.flat.vector.clone(),
            "actions": self.action_generator.get_state(),
            **{f"optimizer.{name}": part for name, part in self.optimizer.state_dict().items()},
        }
        if self.step_length is not None:
            state["step_length"] = torch.tensor(self.step_length, dtype=torch.float64)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        assert not self._acted, "an unroll is under way"
        check_same_shape("parameters", state["parameters"], self.flat.vector)
        prefix = "optimizer."
        parts = {
            name.removeprefix(prefix): part
            for name, part in state.items()
            if name.startswith(prefix)
        }
        self.optimizer.load_state_dict(parts)
        self.flat.vector.copy_(state["parameters"])
        self.action_generator.set_state(state["actions"])
        length = state.get("step_length")
        self.step_length = None if length is None else float(length)
        self.passes.refresh()

    def _backward(self, part: PathLoss, *, forget: bool) -> None:
        assert self._unrolled is not None, "losses comes before its gradient"
        outputs, targets, gradient = self._unrolled
        if part != "total":
            _, gradient = a2c_loss(self.policies, outputs, targets, self._weights[part])
        device = self.flat.vector.device
        self.passes.backward(*(each.to(device) for each in gradient), forget=forget)
        if forget:
            self._unrolled = None


def _on_cpu(outputs: Outputs) -> Outputs:
    if outputs.logits.device.type == "cpu":
        return outputs
    return Outputs(outputs.logits.cpu(), outputs.values.cpu())
