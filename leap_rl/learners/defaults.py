"""The values of an agent's options that are `auto`: one table, by kind of game.

Importing this imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from leap_rl.core.choices import Domain
from leap_rl.learners.config import AgentConfig, InitialWeights


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The options whose default depends on the kind of game, as `AgentConfig` names them."""

    initial_weights: InitialWeights
    value_gain: float | None
    lr: float
    rmsprop_eps: float
    gamma: float
    value_coefficient: float
    max_grad_norm: float


PAPER: Final = Settings(
    initial_weights="torch",
    value_gain=None,
    lr=1e-4,
    rmsprop_eps=1e-4,
    gamma=0.99,
    value_coefficient=0.5,
    max_grad_norm=math.inf,
)
"""Leap's appendix "Experiment details: Atari"; what it leaves open, `AgentConfig` says."""

# OpenAI Baselines' A2C (Dhariwal et al. 2017), but for the value head's gain: configs/atari.yaml.
_IMAGES: Final = Settings(
    initial_weights="he",
    value_gain=1e-3,
    lr=7e-4,
    rmsprop_eps=1e-5,
    gamma=0.99,
    value_coefficient=0.5,
    max_grad_norm=0.5,
)

# Returns of hundreds are usual: value_coefficient keeps the value's errors from drowning the
# policy's gradient in the encoder. And values start at 0 and move by about lr times the features
# an update: with a gamma nearer to 1 all actions look bad for so long, where rewards are negative,
# that the policy has settled on one of them by then. docs/environments.md has what was measured.
_VECTORS: Final = Settings(
    initial_weights="he",
    value_gain=None,
    lr=2e-3,
    rmsprop_eps=1e-5,
    gamma=0.97,
    value_coefficient=0.005,
    max_grad_norm=math.inf,
)

DEFAULTS: Final[Mapping[Domain, Settings]] = {
    "atari": PAPER,
    "images": _IMAGES,
    "vectors": _VECTORS,
    "continuous": replace(_VECTORS, lr=1e-3, gamma=0.9, value_coefficient=0.02),
}
"""A2C's, by kind of game. Other learners take the paper's."""

_NAMES: Final = tuple(one.name for one in fields(Settings))


def auto_options(agent: AgentConfig) -> tuple[str, ...]:
    """Return the options of the table that are `auto`."""
    return tuple(name for name in _NAMES if getattr(agent, name) == "auto")


def resolved(
    agent: AgentConfig, settings: Settings, *, options: Collection[str] = _NAMES
) -> AgentConfig:
    """Return the config with those of these options that are `auto` set."""
    left = {name: getattr(settings, name) for name in auto_options(agent) if name in options}
    return replace(agent, **left) if left else agent


def settings_of(agent: AgentConfig) -> Settings:
    """Return the options of the table, none of which may be `auto`."""
    assert not auto_options(agent), f"resolved comes first: {auto_options(agent)}"
    return Settings(**{name: getattr(agent, name) for name in _NAMES})
