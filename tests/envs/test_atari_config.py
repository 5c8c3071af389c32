from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from leap_rl.envs.atari.settings import PRESETS, AtariSettings


def test_observation_shapes_follow_from_channels_and_frames() -> None:
    assert PRESETS["paper"].observation_shape == (84, 84, 3)
    assert PRESETS["machado"].observation_shape == (84, 84, 4)
    assert PRESETS["noframeskip"].observation_shape == (84, 84, 4)
    assert AtariSettings(frame_stack=2).observation_shape == (84, 84, 6)


def test_the_presets_are_their_sources() -> None:
    assert PRESETS["paper"] == AtariSettings()
    machado, noframeskip = PRESETS["machado"], PRESETS["noframeskip"]
    assert (machado.sticky, machado.noop_max, machado.fire_reset) == (0.25, 0, False)
    assert not machado.life_loss_ends
    assert (noframeskip.sticky, noframeskip.noop_max) == (0.0, 30)
    assert noframeskip.fire_reset
    assert noframeskip.life_loss_ends
    assert {preset.max_frames for preset in PRESETS.values()} == {108_000}
    assert {preset.frameskip for preset in PRESETS.values()} == {4}


def test_a_config_is_checked_without_an_emulator() -> None:
    code = (
        "import sys, leap_rl.envs.atari.settings\n"
        "assert not {'ale_py', 'numba', 'gymnasium'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frameskip": 0}, "atari.frameskip = 0"),
        ({"noop_max": -1}, "atari.noop_max = -1"),
        ({"sticky": 1.0}, "atari.sticky = 1.0"),
        ({"max_frames": 1002}, "atari.max_frames = 1002: must be a positive multiple"),
        ({"max_frames": 0}, "atari.max_frames = 0"),
        ({"frame_stack": 0}, "atari.frame_stack = 0"),
    ],
)
def test_senseless_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AtariSettings(**changes)
