"""Initializations by name, for other code too: it takes neither Ray nor a game.

    from leap_rl.sharing import pretrained

    encoder = pretrained.load("minatar-leap")  # a torch.nn.Module: uint8 [N, H, W, C] to features

Each is a folder as ``leap-rl export`` writes it: the parameters, the options of the run that made
them, and a model card with what was measured. Some come with leap_rl and lie here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leap_rl.sharing.card import Card, read_card
from leap_rl.sharing.exported import PREFIX, Exported, find, locate, named, names

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PREFIX", "Card", "Exported", "find", "load", "locate", "named", "names", "read_card"]


def load(name: str | Path, *, trust_imports: bool = False) -> nn.Module:
    """Return an encoder with meta-trained parameters, on the CPU.

    Args:
        name: One of `names()`, `hf://USER/REPO` or `hf://USER/REPO@REVISION`, or a folder that
            ``leap-rl export`` wrote.
        trust_imports: Whether the module may be imported that defines an encoder which is none of
            leap_rl's.

    Returns:
        A module that takes uint8 observations [N, H, W, C], of the shape that its card gives, or
        vectors [N, L], and returns float32 features [N, F]. leap_rl's own encoders have an
        attribute `features`, F.

    Raises:
        ValueError: There is none of that name, it cannot be downloaded, its files are damaged, it
            holds convolutions alone, or it takes an import that is not trusted.
    """
    one = named(f"{PREFIX}{name}" if name in names() else name)
    return one.load(trust_imports=trust_imports)
