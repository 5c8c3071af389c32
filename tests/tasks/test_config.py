from __future__ import annotations

import pytest

from leap_rl.tasks.config import QUADRATIC_GAMES, TaskConfig


def test_the_papers_task_is_31_250_updates() -> None:
    config = TaskConfig()
    assert (config.agent_steps_per_update, config.updates) == (160, 31_250)
    assert len(config.resolved_games) == 25


def test_games_may_be_a_name_a_pool_or_a_list_of_both() -> None:
    assert TaskConfig(games="pong").resolved_games == ("pong",)
    assert TaskConfig(games="held_out").resolved_games == ("breakout", "space_invaders")
    assert TaskConfig(games=["ALE/Pong-v5", "held_out"]).resolved_games == (
        "pong",
        "breakout",
        "space_invaders",
    )


def test_other_kinds_have_their_own_games() -> None:
    assert TaskConfig(kind="quadratic").resolved_games == QUADRATIC_GAMES
    assert "catch" in TaskConfig(kind="catch").resolved_games
    assert TaskConfig(kind="quadratic", games=["bowl_3"]).resolved_games == ("bowl_3",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"games": []}, "task.games"),
        ({"games": "breakot"}, "did you mean 'breakout'"),
        ({"kind": "quadratic", "games": ["pong"]}, "'pong' is no game of task.kind = quadratic"),
        ({"kind": "quadratic", "games": ["bowl_1", "bowl_1"]}, "each once"),
        ({"agent_steps": 100}, "= 160 agent steps; take 160"),
        ({"agent_steps": 161}, "take 160 or 320"),
        ({"num_envs": 0}, r"task\.num_envs = 0"),
        ({"kind": "chess"}, "task.kind = 'chess'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TaskConfig(**options)  # type: ignore[arg-type]
