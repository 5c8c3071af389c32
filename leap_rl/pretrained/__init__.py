"""Initializations that come with leap_rl, for other code too: it takes neither Ray nor a game.

    from leap_rl import pretrained

    encoder = pretrained.load("minatar-leap")  # a torch.nn.Module: uint8 [N, H, W, C] to features

Each is a folder here, as ``leap-rl export`` writes it: the parameters, the options of the run that
made them, and a model card with what was measured.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leap_rl.pretrained.card import CARD, Card, read_card
from leap_rl.storage.run_folder import INITIALIZATION

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PREFIX", "Card", "load", "locate", "names", "read_card"]

PREFIX: Final = "pretrained:"
"""What the name of one starts with where any initialization may be named."""

_HERE = Path(__file__).parent


def names() -> list[str]:
    """Return the names of all, in alphabetical order."""
    return sorted(path.parent.name for path in _HERE.glob(f"*/{CARD}"))


def locate(name: str) -> Path:
    """Return the folder of one; the prefix may stand before its name.

    Raises:
        ValueError: There is none of that name.
    """
    name = name.removeprefix(PREFIX)
    if name not in names():
        raise ValueError(f"there is no pretrained {name!r}; there are {', '.join(names())}")
    return _HERE / name


def load(name: str | Path, *, trust_imports: bool = False) -> nn.Module:
    """Return an encoder with meta-trained parameters, on the CPU.

    Args:
        name: One of `names()`, or a folder that ``leap-rl export`` wrote.
        trust_imports: Whether the module may be imported that defines an encoder which is none of
            leap_rl's.

    Returns:
        A module that takes uint8 observations [N, H, W, C], of the shape that its card gives, or
        vectors [N, L], and returns float32 features [N, F]. leap_rl's own encoders have an
        attribute `features`, F.

    Raises:
        ValueError: There is none of that name, its files are damaged, it holds convolutions alone,
            or it takes an import that is not trusted.
    """
    from leap_rl.networks.encoders import make_encoder
    from leap_rl.training.initialization import load_tensors

    folder = name if isinstance(name, Path) else locate(name)
    card = read_card(folder)
    if card.share != "encoder":
        raise ValueError(
            f"{folder}: holds the {card.share} alone, and the rest of an encoder starts at random; "
            "leap-rl learn --init takes it"
        )
    if card.encoder_spec.is_custom and not trust_imports:
        raise ValueError(
            f"{folder}: its encoder is {card.encoder}, whose module would be imported, and so run; "
            "pass trust_imports=True if you trust it"
        )
    file = folder / INITIALIZATION
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != card.sha256:
        raise ValueError(f"{file}: is not the file that its card was written for")
    encoder = make_encoder(card.encoder_spec, card.observation_shape)
    encoder.load_state_dict(load_tensors(data))
    return encoder
