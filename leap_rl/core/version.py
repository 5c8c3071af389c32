"""The version of leap_rl that is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("leap-rl")
except PackageNotFoundError:  # the package was copied and not installed
    __version__ = "unknown"
