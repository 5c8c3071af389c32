"""A policy and a value function on one encoder.

As in the Leap paper, appendix "Experiment details: Atari": "estimating both value function and
policy through linear layers connected to the final output of a shared convolutional network".

N: observations, L: logits, H, W, C: an image's height, width and channels, V: a vector's length.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leap_rl.networks.custom import EncoderSpec
from leap_rl.networks.encoders import blank, features_of, make_encoder


class ActorCritic(nn.Module):
    """An encoder and two linear heads, in the flat vector's order: encoder, policy, value.

    All parameters are zero until `initialize` draws them or a vector is copied in, but for those
    of a custom encoder. The policy's head gives L logits: one an action, or more where actions are
    continuous.

    Raises:
        ValueError: The encoder is not known, or takes no such observations.
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

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [N, L] and values [N] of the observations.

        Args:
            observations: uint8 [N, H, W, C], or [N, V]: float32, or uint8, of which the encoder
                sees 1/255.
        """
        if observations.dtype == torch.uint8 and observations.ndim == 2:
            observations = observations / 255  # an encoder of somebody's own takes float32 vectors
        features = self.encoder(observations)
        return self.policy(features), torch.squeeze(self.value(features), -1)
