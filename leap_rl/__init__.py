"""leap_rl: meta-train, over many Atari games, the encoder an agent starts a new game from.

The method is Leap (Flennerhag et al., "Transferring Knowledge across Learning Processes",
ICLR 2019). ``leap_rl.meta`` holds it for use in any PyTorch loop; ``leap-rl --help`` runs it at
scale.
"""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("leap-rl")
