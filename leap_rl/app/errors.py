"""Errors that a user can mend."""

from __future__ import annotations


class UsageError(ValueError):
    """The command line or a config file asks for what cannot be."""
