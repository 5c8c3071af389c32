"""What a card says of how its initialization is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from leap_rl.sharing.card import Card, write_card


def card(**given: Any) -> Card:
    known = {"name": "mine", "encoder": "library", "observation_shape": (4,), "share": "encoder"}
    made = {"method": "leap", "games": ("A-v0",), "meta_steps": 1, "agent_steps": 2, "seed": 0}
    return Card(**{**known, **made, "leap_rl": "1", "sha256": "0", "verdicts": (), **given})


@pytest.mark.parametrize(("shape", "policy"), [((4,), "MlpPolicy"), ((40, 40, 3), "CnnPolicy")])
def test_a_librarys_network_goes_into_a_model_of_its_policy(
    shape: tuple[int, ...], policy: str
) -> None:
    text = write_card(card(observation_shape=shape), algorithm="sb3:PPO")
    assert f'model = PPO("{policy}", env)' in text
