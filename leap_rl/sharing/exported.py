"""Exported initializations by name: which folder a name stands for, and what is in it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leap_rl.core.regular_file import LARGEST, read_given
from leap_rl.core.urls import is_url
from leap_rl.networks.custom import check_trust
from leap_rl.sharing import hub
from leap_rl.sharing.card import CARD, FILES, OPTIONS, Card, read_card
from leap_rl.storage.run_folder import INITIALIZATION

if TYPE_CHECKING:
    from torch import nn

PREFIX: Final = "pretrained:"
"""Of the names of those that come with leap_rl."""

_HERE = Path(__file__).parent / "pretrained"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An initialization in a folder on this machine, as ``leap-rl export`` writes it."""

    place: str
    """Names these very bytes in a record: the file, pretrained:NAME, or hf://USER/REPO@COMMIT with
    the hash of the commit."""
    name: str
    """For tables and figures."""
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / INITIALIZATION

    @cached_property
    def card(self) -> Card:
        """Raises ValueError if there is none as ``leap-rl export`` writes it."""
        return read_card(self.folder)

    def read(self) -> bytes:
        """Return the file's bytes; raise ValueError unless they are those of its card."""
        try:
            data = read_given(self.file, LARGEST)
        except OSError as error:
            raise ValueError(f"{self.file}: cannot be read: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != self.card.sha256:
            raise ValueError(f"{self.file}: is not the file that its card was written for")
        return data

    def load(self, *, trust_imports: bool = False) -> nn.Module:
        check_trust(self.card.encoder_spec, self.folder, trusts_imports=trust_imports)
        if self.card.encoder == "library":
            raise ValueError(
                f"{self.folder}: holds the network of another library, which loads it as its "
                f"{CARD} says; leap-rl learn --init takes it"
            )
        if self.card.share == "convolutions":
            raise ValueError(
                f"{self.folder}: holds the convolutions alone, and the rest of an encoder "
                "starts at random; leap-rl learn --init takes it"
            )
        return encoder_of(self.card, self.read())


def names() -> list[str]:
    """Return the names of the initializations that come with leap_rl, sorted."""
    return sorted(path.parent.name for path in _HERE.glob(f"*/{CARD}"))


def locate(name: str) -> Path:
    """Return the folder of NAME or pretrained:NAME; raise ValueError if there is none."""
    name = name.removeprefix(PREFIX)
    if name not in names():
        raise ValueError(f"there is no pretrained {name!r}; there are {', '.join(names())}")
    return _HERE / name


def find(given: str | Path) -> Exported | None:
    """Return the exported initialization of a name; none if it names something else.

    A name is pretrained:NAME, hf://USER/REPO or hf://USER/REPO@REVISION (which are downloaded), or
    a folder with parameters and the options of their run: a run has no parameters beside its
    options, and a checkpoint no options beside its parameters.

    Raises:
        ValueError: There is none of that name, it cannot be downloaded, or what was downloaded is
            damaged.
    """
    given = str(given)
    if given.startswith(PREFIX):
        folder = locate(given)
        return Exported(place=given, name=folder.name, folder=folder)
    if given.startswith(hub.PREFIX):
        folder, place, name = hub.download(given)
        found = Exported(place=place, name=name, folder=folder)
        found.read()  # which checks it
        return found
    folder = Path(os.path.expanduser(given))
    if not is_url(given) and all(exists(folder / name) for name in (INITIALIZATION, OPTIONS)):
        file = str(folder / INITIALIZATION)
        return Exported(place=file, name=folder.absolute().name, folder=folder)
    return None


def named(given: str | Path) -> Exported:
    """Return the exported initialization of a name, as `find` does; raise ValueError if none."""
    found = find(given)
    if found is None:
        missing = [name for name in FILES if not exists(Path(given) / name)]
        raise ValueError(
            f"{given}: is no folder that leap-rl export wrote ({', '.join(missing)} is not there); "
            f"those that come with leap_rl are {', '.join(names())}"
        )
    return found


def encoder_of(card: Card, data: bytes) -> nn.Module:
    """Return a card's encoder with the parameters in `data`, on the CPU; ValueError if none fit."""
    from leap_rl.networks.encoders import make_encoder
    from leap_rl.networks.parameters import load_parameters
    from leap_rl.sharing.initialization import encoder_part, load_tensors

    try:
        encoder = make_encoder(card.encoder_spec, card.observation_shape)
        load_parameters(encoder, encoder_part(load_tensors(data)))
    except (RuntimeError, TypeError) as error:  # torch's
        reason = " ".join(str(error).split())
        raise ValueError(f"the parameters are not those of the card's encoder: {reason}") from None
    return encoder
