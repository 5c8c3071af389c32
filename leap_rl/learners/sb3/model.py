"""stable-baselines3's models: their arguments, their policies, and which parameters are shared.

N: observations in a batch. F: features.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from leap_rl.core.lines import in_a_line
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.config import LIBRARYS_OWN
from leap_rl.networks.encoders import features_of, make_encoder, random_encoder
from leap_rl.tasks.suite import ActionSpace

if TYPE_CHECKING:
    from leap_rl.learners.game_learner import GameLearner

_SAID_ELSEWHERE: Final[Mapping[str, str]] = {
    "policy": "say agent.encoder",
    "env": "say task.games",
    "seed": "say seed",
    "device": "it is the CPU",
    "verbose": "leap_rl reports",
    "tensorboard_log": "say tracking.tensorboard",
    "monitor_wrapper": "leap_rl reports",
    "_init_setup_model": "leave it out",
}
"""Arguments that are none of `agent.sb3`."""

_HEADS: Final[Mapping[str, str]] = {
    "PPO": r"log_std|action_net\..*|value_net\..*",
    "A2C": r"log_std|action_net\..*|value_net\..*",
    "DQN": r"q_net\.q_net\.LAST\..*",
    "SAC": r"actor\.(mu|log_std)(\..*)?|critic\..*",
}
"""What a policy has beside its body, by pattern: it depends on the actions."""

_ENCODERS: Final[Mapping[str, tuple[str, ...]]] = {
    "PPO": ("features_extractor", "vf_features_extractor"),
    "A2C": ("features_extractor", "vf_features_extractor"),
    "DQN": ("q_net.features_extractor",),
    "SAC": ("actor.features_extractor", "critic.features_extractor"),
}
"""Where a policy has our encoder; the first is the one that is watched. PPO's and A2C's two are one
unless policy_kwargs has share_features_extractor: false."""

_TARGETS: Final = {"DQN": ("q_net", "q_net_target"), "SAC": ("critic", "critic_target")}
"""What is learned, and what follows it at a distance."""


def library() -> Any:
    """Return the library; ValueError if it is not installed."""
    try:
        import stable_baselines3
    except ImportError as error:
        raise ValueError(
            f"agent.algorithm = sb3:...: takes stable-baselines3 ({error}); pip install "
            "'leap-rl[sb3]'"
        ) from None
    return stable_baselines3


def algorithm_of(learner: GameLearner | type[GameLearner]) -> str:
    """Return the library's name of the algorithm."""
    return learner.name.partition(":")[2]


def arguments_of(learner: GameLearner) -> dict[str, Any]:
    """Return the constructor's arguments that `agent.sb3` gives; ValueError if it knows none."""
    given, make = learner.agent.sb3, getattr(library(), algorithm_of(learner))
    known = [name for name in inspect.signature(make).parameters if name not in _SAID_ELSEWHERE]
    for name in given:
        if name in _SAID_ELSEWHERE:
            raise ValueError(
                f"agent.sb3.{name} = {given[name]!r}: is given by leap_rl; {_SAID_ELSEWHERE[name]}"
            )
        if name not in known:
            raise ValueError(
                f"agent.sb3.{name} = {given[name]!r}: is no argument of stable-baselines3's "
                f"{algorithm_of(learner)}; it has {', '.join(known)}"
            )
    return dict(given)


def unroll_of(
    learner: GameLearner | type[GameLearner], arguments: Mapping[str, Any]
) -> tuple[int, str]:
    """Return the agent steps that an environment plays at a time, and the option that says so.

    Raises:
        ValueError: It is no such number, or the library is not installed.
    """
    make = getattr(library(), algorithm_of(learner))
    name = "n_steps" if algorithm_of(learner) in ("PPO", "A2C") else "train_freq"
    default = inspect.signature(make).parameters[name].default
    length = arguments.get(name, default)
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise ValueError(f"agent.sb3.{name} = {length!r}: must be a whole number of at least 1")
    return length, f"agent.sb3.{name}"


def batch_of(learner: GameLearner) -> tuple[int, str]:
    """Return the agent steps that are played at a time, and the option that says so."""
    length, option = unroll_of(learner, learner.agent.sb3)
    return learner.task.num_envs * length, option


def policy_kwargs(learner: GameLearner) -> dict[str, Any]:
    """Return what a policy is made with: what is given, and our encoder where one is named."""
    given = learner.agent.sb3.get("policy_kwargs") or {}
    if not isinstance(given, Mapping):
        raise ValueError(
            f"agent.sb3.policy_kwargs = {given!r}: must be arguments by name, as {{net_arch: [64]}}"
        )
    given = dict(given)
    agent = learner.agent_config
    if agent.encoder == LIBRARYS_OWN:
        return given
    return {
        "net_arch": [],  # linear heads, as our own agents have them
        "normalize_images": False,  # the encoder scales them itself
        **given,
        "features_extractor_class": _encoder_class(),
        "features_extractor_kwargs": {"learner": learner},
    }


def make_policy(learner: GameLearner, actions: ActionSpace, *, seed: int) -> Any:
    """Return a policy of random weights, without environments; the global stream stays as it is.

    ValueError: the library makes none of such arguments.
    """
    make = getattr(library(), algorithm_of(learner))
    shape = learner.observation_shape
    observed = Box(-np.inf, np.inf, shape, np.float32)
    if len(shape) > 1:
        height, width, channels = shape
        first = _channels_first(shape)
        observed = Box(0, 255, shape if first else (channels, height, width), np.uint8)
    acts: Any = Discrete(actions.size)
    if actions.continuous:
        acts = Box(-1.0, 1.0, (actions.size,), np.float32)
    kwargs = policy_kwargs(learner)
    if learner.agent.sb3.get("use_sde"):
        kwargs["use_sde"] = True
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            policy = make.policy_aliases[policy_name(learner)](
                observed, acts, lambda _: 1e-3, **kwargs
            )
        except (TypeError, AssertionError, AttributeError, ValueError) as error:
            raise _cannot_be_made(learner, error) from None
        load_shared(learner, policy, _drawn(learner, policy, seed=seed))
    return policy


def make_model(learner: GameLearner, envs: Any, *, seed: int) -> Any:
    """Return the model that learns in a vector of environments; errors as in `make_policy`."""
    make = getattr(library(), algorithm_of(learner))
    arguments = arguments_of(learner)
    if algorithm_of(learner) in _TARGETS:  # what is never filled need not be there
        size = arguments.get(
            name := "buffer_size", inspect.signature(make).parameters[name].default
        )
        if isinstance(size, int):  # else the library refuses it
            most = max(learner.task.agent_steps, learner.task.num_envs)
            arguments[name] = min(size, most)
    arguments["policy_kwargs"] = policy_kwargs(learner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of batches and memory
        try:
            return make(policy_name(learner), envs, seed=seed, device="cpu", **arguments)
        except (TypeError, AssertionError, AttributeError, ValueError) as error:
            raise _cannot_be_made(learner, error) from None


def policy_name(learner: GameLearner) -> str:
    """Return the library's name of the policy."""
    return "CnnPolicy" if len(learner.observation_shape) > 1 else "MlpPolicy"


def shared_parameters(learner: GameLearner, policy: Any) -> dict[str, nn.Parameter]:
    """Return what tasks share of a policy, by name: an encoder's names, or the policy's own."""
    algorithm, agent = algorithm_of(learner), learner.agent_config
    if agent.share == "encoder" and agent.encoder != LIBRARYS_OWN:
        extractor: Any = policy.get_submodule(_ENCODERS[algorithm][0])
        return dict(extractor.encoder.named_parameters())
    targets = re.compile(r"(q_net_target|critic_target)\.")
    learned = {
        name: parameter for name, parameter in policy.named_parameters() if not targets.match(name)
    }
    if agent.share == "agent":
        return learned
    last = str(len(policy.q_net.q_net) - 1) if algorithm == "DQN" else ""
    heads = re.compile(_HEADS[algorithm].replace("LAST", last))
    body = {name: each for name, each in learned.items() if not heads.fullmatch(name)}
    if not body:
        raise ValueError(
            "agent.share = encoder: the policy has no layers but its heads; give it some "
            "(agent.sb3.policy_kwargs.net_arch), or take agent.share = agent"
        )
    return body


@torch.no_grad()
def load_shared(learner: GameLearner, policy: Any, named: Mapping[str, Tensor]) -> None:
    """Copy shared parameters into a policy, and into what follows them."""
    for name, parameter in shared_parameters(learner, policy).items():
        parameter.copy_(named[name])
    algorithm, agent = algorithm_of(learner), learner.agent_config
    if agent.encoder != LIBRARYS_OWN and agent.share == "encoder":
        first, *others = (policy.get_submodule(name) for name in _ENCODERS[algorithm])
        for other in others:
            other.load_state_dict(first.state_dict())
    if algorithm in _TARGETS:
        learned, follows = _TARGETS[algorithm]
        getattr(policy, follows).load_state_dict(getattr(policy, learned).state_dict())


def optimizers_of(learner: GameLearner, policy: Any) -> list[torch.optim.Optimizer]:
    """Return those that step what is shared."""
    if algorithm_of(learner) != "SAC":
        return [policy.optimizer]
    if learner.agent.share == "agent":
        return [policy.critic.optimizer, policy.actor.optimizer]
    return [policy.actor.optimizer]


def _drawn(learner: GameLearner, policy: Any, *, seed: int) -> Mapping[str, Tensor]:
    """Return shared parameters as they start: our encoder's as in all our agents."""
    shared = shared_parameters(learner, policy)
    agent = learner.agent_config
    if agent.encoder == LIBRARYS_OWN:
        return shared
    draws = torch.Generator().manual_seed(derive_seed(seed, Purpose.INITIALIZATION))
    encoder = random_encoder(
        agent.encoder_spec, learner.observation_shape, draws, gain=agent.gains["encoder"]
    )
    drawn = dict(encoder.named_parameters())
    if agent.share == "encoder":
        return drawn
    places = [f"{place}.encoder." for place in _ENCODERS[algorithm_of(learner)]]
    copies = {place + name: each for place in places for name, each in drawn.items()}
    return {**shared, **{name: each for name, each in copies.items() if name in shared}}


def _encoder_class() -> Any:
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class LeapFeatures(BaseFeaturesExtractor):  # type: ignore[misc]
        """Our encoder, as the library takes one."""

        def __init__(self, observation_space: Any, learner: GameLearner) -> None:
            agent, shape = learner.agent_config, learner.observation_shape
            encoder = make_encoder(agent.encoder_spec, shape)
            super().__init__(
                observation_space, features_dim=features_of(agent.encoder_spec, encoder, shape)
            )
            self.encoder = encoder
            self._is_bytes = observation_space.dtype == np.uint8
            self._turned = len(shape) > 1 and not _channels_first(shape)

        def forward(self, observations: Tensor) -> Any:
            """Return features [N, F] of images [N, C, H, W] in 0..255, or of vectors [N, L]."""
            if self._turned:
                observations = observations.permute(0, 2, 3, 1)
            if self._is_bytes:
                observations = observations.to(torch.uint8)
            return self.encoder(observations)

    return LeapFeatures


def _channels_first(shape: tuple[int, ...]) -> bool:
    """Return whether the library takes images of this shape for [C, H, W], and leaves them so."""
    return int(np.argmin(shape)) == 0


def _cannot_be_made(learner: GameLearner, error: Exception) -> ValueError:
    return ValueError(f"agent.sb3: {learner.name} cannot be made: {in_a_line(error)[:300]}")
