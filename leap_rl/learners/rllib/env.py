"""Our games as RLlib takes an environment: a class that it calls with one mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leap_rl.envs.single import GameEnv


class LeapEnv(GameEnv):
    """A game as our agents see it; the config has the arguments of `GameEnv` by name.

    config.environment(LeapEnv, env_config={"game": "breakout", "atari": "noframeskip"})
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(**config)
