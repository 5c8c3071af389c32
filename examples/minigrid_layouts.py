"""MiniGrid's layouts as games: `minigrid_layouts:Layout-v0@name=Empty-8x8`.

    pip install minigrid
    PYTHONPATH=examples leap-rl learn --trust_imports --task.kind gymnasium \
        --task.games '["minigrid_layouts:Layout-v0@name=Empty-8x8"]' --task.agent_steps 200000

MiniGrid's observations are dictionaries, of which agents here take the image: 7 × 7 cells in front
of the player, each a kind of thing, a color and a state, whole numbers up to 10.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from minigrid.wrappers import ImgObsWrapper


class Image(ImgObsWrapper):
    """The image alone, its numbers spread over those of a uint8, which encoders scale by 1/255."""

    def observation(self, observation: Any) -> Any:
        """Return uint8 [7, 7, 3]."""
        return super().observation(observation) * 25


def make(name: str, **arguments: Any) -> Image:
    """Make the layout MiniGrid-NAME-v0."""
    return Image(gymnasium.make(f"MiniGrid-{name}-v0", **arguments))


gymnasium.register("Layout-v0", entry_point=make)
