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


@pytest.mark.parametrize(
    ("given", "told", "not_told"),
    [
        ({"encoder": "mlp"}, 'load_encoder("FOLDER")  # observations', "trust"),
        (
            {"encoder": "minatar", "observation_shape": (10, 10, 3)},
            'load_encoder("FOLDER")  # uint8 obs',
            "trust",
        ),
        ({"encoder": "mine:Mlp"}, 'load_encoder("FOLDER", trust_imports=True)', "uint8"),
        ({"encoder": "mine:Mlp"}, "--games GAMES --trust_imports", "uint8"),
        (
            {"encoder": "atari", "share": "convolutions", "observation_shape": (84, 84, 4)},
            "leap-rl learn --init FOLDER --agent.share convolutions",
            "leap_rl.load_encoder(",
        ),
    ],
)
def test_an_encoder_is_loaded_by_a_call_that_takes_it(
    given: dict[str, Any], told: str, not_told: str
) -> None:
    text = write_card(card(**given))
    assert told in text
    assert not_told not in text


def test_options_that_name_a_module_are_trusted_in_its_commands() -> None:
    text = write_card(card(encoder="mlp"), algorithm="ppo_loop:learn", trust=" --trust_imports")
    assert "--games GAMES --trust_imports" in text
    assert 'load_encoder("FOLDER")' in text, "which imports nothing"
