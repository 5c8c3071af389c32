"""What can be set about the agent. Importing this costs no import of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from leap_rl.core.choices import Share
from leap_rl.core.determinism import AgentPrecision, Precision
from leap_rl.networks.custom import ENCODERS, EncoderSpec, is_custom

ClassifierShare = Literal["all_but_last", "all"]


@dataclass(frozen=True)
class ClassifierConfig:
    """Plain gradient descent on images. "Paper" is Leap's appendices on Omniglot and Multi-CV."""

    lr: float = 0.1
    """Learning rate of the task's gradient descent, without momentum. Paper."""

    augment: bool = True
    """Turn, scale and shift each image at random whenever it is shown. Paper. Of Omniglot alone:
    task.kind = images shows images as they are, as the paper does."""

    share: ClassifierShare = "all_but_last"
    """Parameters that are learned across tasks. all_but_last: the convolutions; the last layer
    starts at random in each task. all: the last layer too, as in the authors' released code."""

    precision: Precision = "float32"
    """What the network computes in; parameters, gradients, losses and the path's sums are float32.
    bfloat16 takes 0.6 of the time on processors with units for it (AMX or AVX512_BF16)."""

    validate_every: int | None = None
    """Updates between two validations, each a pass over the task's held-back images, 100 of
    Omniglot's. None validates once, after the last update, or with task.images.patience after each
    one."""

    def __post_init__(self) -> None:
        if self.validate_every is not None and self.validate_every < 1:
            raise ValueError(
                f"agent.classifier.validate_every = {self.validate_every}: must be at least 1"
            )
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"agent.classifier.lr = {self.lr}: must be greater than 0 and finite")
        choices = {"share": get_args(ClassifierShare), "precision": get_args(Precision)}
        for name, known in choices.items():
            if (value := getattr(self, name)) not in known:
                raise ValueError(
                    f"agent.classifier.{name} = {value!r}: must be one of {', '.join(known)}"
                )


@dataclass(frozen=True)
class RllibConfig:
    """PPO as RLlib has it, where it differs from our agent; defaults are RLlib's."""

    num_epochs: int = 30
    """Passes over each batch of task.num_envs × task.unroll_length agent steps."""

    minibatch_size: int | Literal["auto"] = "auto"
    """Agent steps that an update learns from. auto, resolved when a run is made: RLlib's 128, or
    the whole batch where that is less."""

    gae_lambda: float = 1.0
    """λ of the generalized advantage estimates."""

    clip: float = 0.3
    """Bound of the policy's ratio."""

    value_clip: float = 10.0
    """Bound of a squared error of the values."""

    def __post_init__(self) -> None:
        for name in ("num_epochs", "minibatch_size"):
            value = getattr(self, name)
            if value != "auto" and value < 1:
                raise ValueError(f"agent.rllib.{name} = {value}: must be at least 1")
        if not 0 <= self.gae_lambda <= 1:
            raise ValueError(f"agent.rllib.gae_lambda = {self.gae_lambda}: must lie in [0, 1]")
        for name in ("clip", "value_clip"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"agent.rllib.{name} = {getattr(self, name)}: must be greater than 0"
                )


LARGEST = 1e6
"""Rates and coefficients beyond this overflow float32 somewhere along the way."""

LIBRARIES: Final = ("rllib", "sb3")
"""Libraries whose algorithms are named `library:ALGORITHM`."""

LIBRARYS_OWN: Final = "library"
"""In place of an encoder's name: the network that a library makes for its own algorithm."""

InitialWeights = Literal["torch", "he"]

AutoInitialWeights = Literal["auto", InitialWeights]

AutoFloat = float | Literal["auto"]
"""auto, resolved when a run is made: what `defaults.DEFAULTS` has for games of the kind."""

GAINS: dict[InitialWeights, dict[str, float | None]] = {
    "torch": {"encoder": None, "value": None, "policy": None},
    "he": {"encoder": math.sqrt(2.0), "value": 1.0, "policy": 0.01},
}
"""The gains of `networks.encoders.initialize`, by part of the network."""

_Demand = tuple[Callable[[Any], bool], str]

RMSPropStart = Literal["zero", "one", "bias_corrected"]

PathLoss = Literal["total", "policy", "value"]

AutoPrecision = Literal["auto", AgentPrecision]

Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class AgentConfig:
    """Who learns, and how. "Paper" is Leap's appendix "Experiment details: Atari".

    Options that are auto are resolved when a run is made. Those of a2c then depend on the
    kind of game: Atari, which stands for all but task.kind = gymnasium; images; vectors; or vectors
    with continuous actions. Other learners take the values of Atari.
    """

    algorithm: str = "auto"
    """Who learns. a2c: advantage actor-critic, for games (paper). rllib:PPO: RLlib's PPO, for
    games. sb3:PPO, sb3:A2C, sb3:DQN, sb3:SAC: stable-baselines3's, for games (an extra, sb3).
    classifier: gradient descent on images. gradient_descent: the same on quadratic bowls.
    NAME: a learner that an installed package brings. package:Learner: one of your own;
    module:function: a script's own loop; both need --trust_imports on the command line. auto,
    resolved when a run is made: a2c, or what fits task.kind."""

    encoder: str = "mnih2013"
    """The encoder, whose parameters the tasks share. mnih2013: paper ("the same network as in Mnih
    et al. 2013"). nature: Mnih et al. 2015. impala: Espeholt et al. 2018's deep one. minatar: Young
    and Tian 2019's, for pictures of 10 × 10. mlp: two layers of 64 tanh (Schulman et al. 2017), for
    observations that are vectors, which take it in place of mnih2013. library: with sb3:PPO and its
    like, what they take in place of mnih2013: the network that stable-baselines3 makes, all of it
    but its heads. module:name is one of your own, which needs --trust_imports on the command
    line."""

    encoder_arguments: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of an encoder of your own, such as '{"width": 64}'."""

    encoder_sha256: str | None = None
    """SHA-256 of the file that defines an encoder of your own. Found when the run is made, and
    written down; what is given must be met."""

    share: Share = "encoder"
    """Which parameters the tasks share and the initialization holds. encoder: the encoder's; each
    task draws its policy and value heads. agent: the encoder's and the heads', for games that all
    have the same number of actions, or as many numbers in a continuous one. convolutions: the
    encoder's but for its linear layer, which has most of them and may be thought of as each game's
    own; each task draws it as it draws its heads. Not given in the paper."""

    initial_weights: AutoInitialWeights = "auto"
    """How random weights are drawn. torch: weights and biases uniform within 1/√inputs, torch's
    default. he: weights uniform with deviations of √2/√inputs in the encoder (He et al. 2015),
    1/√inputs in the value's head and 0.01/√inputs in the policy's, biases zero; the gains are those
    of OpenAI Baselines' A2C. Not given in the paper. auto: torch for Atari, he for other games."""

    value_gain: AutoFloat | None = "auto"
    """Gain of the first weights of the value's head: near 0 its first errors do not reach the
    encoder. None: as initial_weights has it. auto: 0.001 for images, None for other games."""

    initial_log_std: float = 0.0
    """Log standard deviation that continuous actions are first drawn with, where the bounds of an
    action are -1 and 1: a shift of the policy's first biases. Not for discrete actions."""

    lr: AutoFloat = "auto"
    """Learning rate of the agent's RMSProp, or of the learner's own optimizer. auto: 0.0001 for
    Atari (paper), 0.0007 for images, 0.002 for vectors, 0.001 for continuous actions."""

    rmsprop_alpha: float = 0.99
    """Decay, for each update, of the running mean of squared gradients. Paper. This and the next
    two options are of a2c alone; other algorithms leave them out."""

    rmsprop_eps: AutoFloat = "auto"
    """Added to the root of that mean, outside the root: the place, not given in the paper, is
    torch's. auto: 0.0001 for Atari (paper), 1e-05 for other games."""

    rmsprop_start: RMSPropStart = "bias_corrected"
    """How that mean starts. bias_corrected: at zero, divided by 1 - alpha^t at update t, as in
    Adam. one: at one, as in TensorFlow, which the A2C literature used. zero: torch's own, whose
    first update is ten rates long in every coordinate and destroys an initialization. Not given in
    the paper."""

    gamma: AutoFloat = "auto"
    """Discount for each agent step. auto: 0.99 for Atari (paper), 0.99 for images, 0.97 for
    vectors, 0.9 for continuous actions."""

    entropy_coefficient: float = 0.01
    """Weight of the policy's entropy, which the loss rewards. Paper ("entropy cost")."""

    value_coefficient: AutoFloat = "auto"
    """Weight of the mean squared error of the values, not given in the paper. Where returns are
    large, a large one leaves little of the policy's gradient in the encoder. auto: 0.5 for Atari
    (customary), 0.5 for images, 0.005 for vectors, 0.02 for continuous actions."""

    reward_clip: AutoFloat = "auto"
    """Rewards are clipped to [-reward_clip, reward_clip] for learning, never for reporting.
    Infinity clips nothing. auto, resolved when a run is made: 5 (paper), and infinity for
    task.kind = gymnasium."""

    normalize_observations: bool = False
    """Standardise observations that are vectors: each number less its running mean, over its
    running deviation, clipped to [-10, 10] (docs/environments.md). The statistics are those of what
    the agent itself has seen, and no part of the initialization. Not for images, nor with
    rllib:PPO or loops of your own."""

    max_grad_norm: AutoFloat = "auto"
    """The gradient that an update descends is scaled down to this norm where it is longer; the
    gradient path's own is not. Infinity clips nothing. The paper mentions no clipping. auto:
    0.5 for images, infinity for other games."""

    precision: AutoPrecision = "auto"
    """Weights and activations within the network; parameters, their gradients, the loss and the
    path's sums are float32. float32_compiled: float32 in compiled loops, for minatar and mlp on a
    CPU; it is a quarter faster on few environments and rounds otherwise. auto, resolved when a
    run is made: float32_compiled for these two on a CPU; bfloat16 for the encoders of screens on a
    CPU with the units for it (AMX or AVX512_BF16), where it is much faster; otherwise float32."""

    device: Device = "auto"
    """Where the network is computed. auto is cpu: what is measured, and what the promise of the
    same bits holds for. cuda shares a GPU among trainers (runtime.gpus_per_trainer)."""

    path_loss: PathLoss = "total"
    """The loss f whose surface the gradient path runs over, and whose gradient it takes. total:
    policy + value_coefficient·value − entropy_coefficient·entropy, what the updates descend.
    policy or value: that part alone. Not given in the paper."""

    rllib: RllibConfig = field(default_factory=RllibConfig)

    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)

    sb3: dict[str, Any] = field(default_factory=dict)
    """Arguments of stable-baselines3's algorithm by their own names, such as '{"n_steps": 1024}';
    those left out are the library's own. n_steps, or train_freq, times task.num_envs is what is
    played at a time; task.unroll_length has no effect."""

    options: dict[str, Any] = field(default_factory=dict)
    """Options of a learner of your own, or arguments of a loop, such as '{"rate": 0.001}'."""

    @property
    def encoder_spec(self) -> EncoderSpec:
        return EncoderSpec(
            name=self.encoder, arguments=self.encoder_arguments, sha256=self.encoder_sha256
        )

    @property
    def gains(self) -> Mapping[str, float | None]:
        """The gains of `networks.encoders.initialize`, by part of the network."""
        assert self.initial_weights != "auto", "`defaults.resolved` comes first"
        gains = GAINS[self.initial_weights]
        # A learner without a value head leaves its gain open.
        value_gain = None if self.value_gain == "auto" else self.value_gain
        return gains if value_gain is None else {**gains, "value": value_gain}

    @property
    def without_effect(self) -> tuple[str, ...]:
        return () if is_custom(self.encoder) else ("encoder_arguments", "encoder_sha256")

    @property
    def imports(self) -> dict[str, tuple[str, ...]]:
        return {
            f"agent.{option}": (name.partition(":")[0],) if named else ()
            for option, name, named in (
                ("algorithm", self.algorithm, is_own_learner(self.algorithm)),
                ("encoder", self.encoder, is_custom(self.encoder)),
            )
        }

    def __post_init__(self) -> None:
        self._check_encoder()
        for name, known in _CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"agent.{name} = {value!r}: must be one of {', '.join(known)}")
        for name, (holds, demand) in _NUMBERS.items():
            number = getattr(self, name)
            if number != "auto" and not holds(number):
                raise ValueError(f"agent.{name} = {number}: must {demand}")

    def _check_encoder(self) -> None:
        if is_custom(self.encoder):
            if self.share == "convolutions":
                raise ValueError(
                    f"agent.share = {self.share}: which parameters these are is not known of "
                    f"agent.encoder = {self.encoder}; take encoder, or agent"
                )
            return
        librarys = self.encoder == LIBRARYS_OWN and self.algorithm.startswith("sb3:")
        if not (librarys or self.encoder in ENCODERS):
            raise ValueError(
                f"agent.encoder = {self.encoder!r}: must be one of {', '.join(ENCODERS)}, or "
                "module:name of one of your own"
            )
        if librarys and self.initial_weights not in ("auto", "torch"):
            raise ValueError(
                f"agent.initial_weights = {self.initial_weights}: has no effect with agent.encoder "
                f"= {self.encoder}, whose weights the library draws; leave it out"
            )
        for name in self.without_effect:
            if value := getattr(self, name):
                raise ValueError(
                    f"agent.{name} = {value}: has no effect with agent.encoder = {self.encoder}; "
                    "leave it out"
                )


_RATE: _Demand = (lambda x: 0 < x <= LARGEST, "be greater than 0 and finite, at most 1e6")
_WEIGHT: _Demand = (lambda x: 0 <= x <= LARGEST, "be at least 0 and finite, at most 1e6")
_BOUND: _Demand = (lambda x: x > 0, "be greater than 0 (infinity clips nothing)")

_NUMBERS: dict[str, _Demand] = {
    "lr": _RATE,
    "rmsprop_alpha": (lambda x: 0 <= x < 1, "lie in [0, 1)"),
    "rmsprop_eps": _RATE,
    "gamma": (lambda x: 0 <= x <= 1, "lie in [0, 1]"),
    "entropy_coefficient": _WEIGHT,
    "value_coefficient": _WEIGHT,
    "initial_log_std": (lambda x: -5 <= x <= 2, "lie in [-5, 2]"),
    "value_gain": (lambda x: x is None or _RATE[0](x), f"{_RATE[1]}, or null"),
    "reward_clip": _BOUND,
    "max_grad_norm": _BOUND,
}
"""What a number must hold to, where it is not `auto`."""


def is_own_learner(algorithm: str) -> bool:
    """Return whether `agent.algorithm` is `package:Learner`: a class that a user names."""
    return is_custom(algorithm) and algorithm.partition(":")[0] not in LIBRARIES


_CHOICES = {
    name: get_args(hint)
    for name, hint in get_type_hints(AgentConfig).items()
    if get_origin(hint) is Literal
}
