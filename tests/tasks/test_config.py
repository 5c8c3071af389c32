from __future__ import annotations

import pytest

from leap_rl.envs.atari.settings import PRESETS, AtariConfig, AtariSettings
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.suites import QUADRATIC_GAMES


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
        ({"mix_games": True, "num_envs": 20}, r"num_envs = 20: .*task\.games, which are 25; take"),
        (
            {"kind": "quadratic", "mix_games": True},
            r"task\.mix_games: has no effect with task\.kind",
        ),
        ({"kind": "chess"}, "task.kind = 'chess'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TaskConfig(**options).check_budget()  # type: ignore[arg-type]


def test_the_emulators_settings_are_a_preset_and_what_differs() -> None:
    assert AtariConfig().settings == AtariSettings()
    for name, settings in PRESETS.items():
        assert AtariConfig(preset=name).settings == settings  # type: ignore[arg-type]
    changed = AtariConfig(preset="machado", sticky=0.0, frame_stack=2)
    assert changed.settings == AtariSettings(
        grayscale=True, frame_stack=2, sticky=0.0, noop_max=0
    ), "what is 0 or false differs too"


def test_resolved_it_is_the_same_without_its_preset() -> None:
    resolved = AtariConfig(preset="noframeskip", max_frames=400).resolved()
    assert (
        AtariConfig(**{**resolved, "preset": "paper"}).settings
        == AtariConfig(preset="noframeskip", max_frames=400).settings
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "v5"}, "task.atari.preset = 'v5': must be one of paper, machado, noframeskip"),
        ({"frameskip": 0}, r"task\.atari\.frameskip = 0"),
    ],
)
def test_an_emulator_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AtariConfig(**options)  # type: ignore[arg-type]
