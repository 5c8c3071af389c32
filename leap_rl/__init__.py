"""leap_rl: meta-train, over many Atari games, the encoder an agent starts a new game from.

The method is Leap (Flennerhag et al., "Transferring Knowledge across Learning Processes",
ICLR 2019). ``leap_rl.meta`` holds it for use in any PyTorch loop; ``leap-rl --help`` runs it at
scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Return `__version__`; looking it up at import would take longer than importing Leap."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("leap-rl")
    except PackageNotFoundError:  # the package was copied and not installed
        return "unknown"
