"""Our games and our encoder with heads for RLlib's PPO, APPO and IMPALA (new API stack).

B: observations in a batch. L: logits. F: features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

import torch
from gymnasium.spaces import Box, Discrete
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import (
    TARGET_NETWORK_ACTION_DIST_INPUTS,
    InferenceOnlyAPI,
    TargetNetworkAPI,
    ValueFunctionAPI,
)
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor, nn

from leap_rl.envs.single import GameEnv
from leap_rl.learners.config import GAINS, InitialWeights
from leap_rl.networks.custom import EncoderSpec
from leap_rl.networks.encoders import blank, features_of, initialize, random_encoder
from leap_rl.sharing import pretrained

OPTIONS = (
    *("initialization", "trust_imports", "encoder", "encoder_arguments", "encoder_sha256"),
    *("initial_weights", "value_gain"),
)
"""What `model_config` may have."""


class LeapEnv(GameEnv):
    """A game as our agents see it; the config has the arguments of `GameEnv` by name.

    config.environment(LeapEnv, env_config={"game": "breakout", "atari": "noframeskip"})
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(**config)


class LeapEncoderModule(TorchRLModule, ValueFunctionAPI, TargetNetworkAPI, InferenceOnlyAPI):
    """An encoder, and linear heads for policy and value on it, as our own agent has them.

        config.rl_module(rl_module_spec=RLModuleSpec(
            module_class=LeapEncoderModule,
            model_config={"initialization": "pretrained:minatar-leap"},
        ))

    Observations are as `LeapEnv` gives them: uint8 [B, H, W, C], which the encoder scales by
    1/255, or vectors [B, L]. No connector may scale them or change their order.

    Options, in `model_config`:
        initialization: Where the encoder's weights are: `pretrained:NAME`, a folder that
            `leap-rl export` wrote, readable on every node, or `hf://USER/REPO@REVISION`, which each
            node downloads.
        trust_imports: Whether the module may be imported that defines the encoder of an
            initialization, where it is none of leap_rl's.
        encoder: In place of an initialization, the name of an encoder (`agent.encoder`) that starts
            at random, `module:name` of your own included.
        encoder_arguments: What such a one is made with (`agent.encoder_arguments`).
        encoder_sha256: Of the file that defines it, where it must be that one.
        initial_weights: How random weights are drawn, `torch` or `he` (`agent.initial_weights`);
            `torch` by default. From torch's global stream, which RLlib seeds with `config.seed`.
        value_gain: Gain of the value's head (`agent.value_gain`).

    Attributes:
        encoder: Observations to features [B, F].
        policy: Features to logits [B, L].
        value: Features to values [B, 1]; not on the environment runners.
    """

    encoder: nn.Module
    policy: nn.Linear
    value: nn.Linear

    def setup(self) -> None:
        """Build the network; RLlib calls this once.

        ValueError: an option is not known or has no such value, the initialization cannot be read,
        or it is for other observations; or actions are neither discrete nor a Box.
        """
        given: Any = self.model_config or {}
        options = _options(given)
        observations, actions = self.observation_space, self.action_space
        if not (isinstance(observations, Box) and isinstance(actions, Discrete | Box)):
            raise ValueError(
                f"observation_space = {observations}, action_space = {actions}: must be a Box and "
                "a Discrete or a Box, as those of LeapEnv are"
            )
        gains = GAINS[options["initial_weights"]]
        draws = torch.default_generator
        if options["initialization"] is None:
            spec = EncoderSpec(
                name=options["encoder"],
                arguments=options["encoder_arguments"] or {},
                sha256=options["encoder_sha256"],
            )
            self.encoder = random_encoder(spec, observations.shape, draws, gain=gains["encoder"])
        else:
            self.encoder, spec = load_encoder(
                options["initialization"],
                observations.shape,
                trust_imports=bool(options["trust_imports"]),
            )
        features = features_of(spec, self.encoder, observations.shape)
        # A Box's are means and log standard deviations, as RLlib's Gaussian takes them.
        logits = 2 * math.prod(actions.shape) if isinstance(actions, Box) else int(actions.n)
        self.policy = blank(lambda: nn.Linear(features, logits))
        self.value = blank(lambda: nn.Linear(features, 1))
        initialize(self.policy, draws, gain=gains["policy"])
        value_gain = options["value_gain"]
        initialize(self.value, draws, gain=gains["value"] if value_gain is None else value_gain)

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        return {Columns.ACTION_DIST_INPUTS: self.policy(self.encoder(batch[Columns.OBS]))}

    def _forward_train(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        features = self.encoder(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.policy(features), Columns.EMBEDDINGS: features}

    def compute_values(self, batch: Mapping[str, Any], embeddings: Tensor | None = None) -> Tensor:
        if embeddings is None:
            embeddings = self.encoder(batch[Columns.OBS])
        values: Tensor = self.value(embeddings)
        return values.squeeze(-1)

    def get_non_inference_attributes(self) -> list[str]:
        return ["value", "_target_encoder", "_target_policy"]

    def make_target_networks(self) -> None:
        self._target_encoder = make_target_network(self.encoder)
        self._target_policy = make_target_network(self.policy)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        return [(self.encoder, self._target_encoder), (self.policy, self._target_policy)]

    def forward_target(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        logits = self._target_policy(self._target_encoder(batch[Columns.OBS]))
        return {TARGET_NETWORK_ACTION_DIST_INPUTS: logits}


def load_encoder(
    initialization: str, observation_shape: tuple[int, ...], *, trust_imports: bool = False
) -> tuple[nn.Module, EncoderSpec]:
    """Return the encoder of an initialization and which it is; errors as in `pretrained.load`."""
    exported = pretrained.named(initialization)
    takes = exported.card.observation_shape
    if takes != observation_shape:
        raise ValueError(
            f"initialization = {initialization}: takes observations of {list(takes)}, and the "
            f"environment's are {list(observation_shape)}; set up LeapEnv as it was trained "
            f"({exported.folder}/config.yaml)"
        )
    return exported.load(trust_imports=trust_imports), exported.card.encoder_spec


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    options = {**dict.fromkeys(OPTIONS), "initial_weights": "torch"}
    # RLlib adds what its own modules share; its own name means nothing here.
    given = {name: value for name, value in given.items() if name != "vf_share_layers"}
    if unknown := sorted(given.keys() - options.keys()):
        raise ValueError(f"model_config: does not know {unknown}; it has {', '.join(OPTIONS)}")
    options |= given
    if (options["initialization"] is None) == (options["encoder"] is None):
        raise ValueError(
            "model_config: give either initialization, whose weights the encoder starts from, or "
            "encoder, the name of one that starts at random"
        )
    if options["initial_weights"] not in get_args(InitialWeights):
        raise ValueError(
            f"model_config: initial_weights = {options['initial_weights']!r}: must be one of "
            f"{', '.join(get_args(InitialWeights))}"
        )
    return options
