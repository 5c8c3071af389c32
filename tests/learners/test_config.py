from __future__ import annotations

import math
from typing import Any

import pytest

from leap_rl.learners.config import AgentConfig


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("encoder", "resnet", "agent.encoder = 'resnet': must be one of mnih2013, nature, impala"),
        (
            "encoder_arguments",
            {"width": 3},
            "agent.encoder_arguments = {'width': 3}: has no",
        ),
        ("encoder_sha256", "00", "agent.encoder_sha256 = 00: has no effect"),
        ("path_loss", "entropy", "agent.path_loss = 'entropy': must be one of total, policy, val"),
        ("lr", 0.0, "agent.lr = 0.0: must be greater than 0"),
        ("lr", math.nan, "agent.lr = nan: must be greater than 0"),
        ("lr", math.inf, "agent.lr = inf: must be greater than 0 and finite"),
        ("rmsprop_alpha", 1.0, "agent.rmsprop_alpha = 1.0: must lie in [0, 1)"),
        ("rmsprop_alpha", -0.1, "agent.rmsprop_alpha = -0.1: must lie in [0, 1)"),
        ("rmsprop_eps", 0.0, "agent.rmsprop_eps = 0.0: must be greater than 0"),
        ("gamma", 1.5, "agent.gamma = 1.5: must lie in [0, 1]"),
        ("gamma", -0.5, "agent.gamma = -0.5: must lie in [0, 1]"),
        ("entropy_coefficient", -0.01, "agent.entropy_coefficient = -0.01: must be at least 0"),
        ("value_coefficient", math.inf, "agent.value_coefficient = inf: must be at least 0"),
        ("reward_clip", 0.0, "agent.reward_clip = 0.0: must be greater than 0"),
        ("reward_clip", math.nan, "agent.reward_clip = nan: must be greater than 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match="agent") as error:
        AgentConfig(**{field: value})
    assert str(error.value).startswith(message)


def test_the_edges_are_allowed() -> None:
    AgentConfig(gamma=0.0, rmsprop_alpha=0.0, entropy_coefficient=0.0, value_coefficient=0.0)
    AgentConfig(gamma=1.0, reward_clip=math.inf, encoder="impala", path_loss="value")


def test_a_custom_encoder_may_be_named_and_is_shared_whole() -> None:
    with pytest.raises(ValueError, match=r"agent.encoder = 'resnet': .*module:name"):
        AgentConfig(encoder="resnet")
    with pytest.raises(ValueError, match=r"agent.share = convolutions: which"):
        AgentConfig(encoder="a:b", share="convolutions")
    assert AgentConfig(encoder="a:b", share="agent").share == "agent"
