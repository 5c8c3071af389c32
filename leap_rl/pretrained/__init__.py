"""Initializations by name, for other code too: it takes neither Ray nor a game.

    from leap_rl import pretrained

    encoder = pretrained.load("minatar-leap")  # a torch.nn.Module: uint8 [N, H, W, C] to features

Each is a folder as ``leap-rl export`` writes it: the parameters, the options of the run that made
them, and a model card with what was measured. Some come with leap_rl and lie here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leap_rl.pretrained.card import Card, read_card
from leap_rl.pretrained.exported import PREFIX, Exported, find, locate, named, names

if TYPE_CHECKING:
    from leap_rl.networks.encoders import Encoder

__all__ = ["PREFIX", "Card", "Exported", "find", "load", "locate", "named", "names", "read_card"]


def load(name: str | Path) -> Encoder:
    """Return an encoder with meta-trained parameters, on the CPU.

    Args:
        name: One of `names()`, `hf://USER/REPO` or `hf://USER/REPO@REVISION`, or a folder that
            ``leap-rl export`` wrote.

    Returns:
        A module that takes uint8 observations [N, H, W, C], of the shape that its card gives, or
        vectors [N, L], and returns float32 features [N, F].

    Raises:
        ValueError: There is none of that name, it cannot be downloaded, its files are damaged, or
            it holds convolutions alone.
    """
    return named(f"{PREFIX}{name}" if name in names() else name).load()
