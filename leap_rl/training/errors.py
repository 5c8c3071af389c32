"""Why a run may stop. Each message is one line that a user can act on."""

from __future__ import annotations


class RunFailedError(RuntimeError):
    """A run cannot go on; what its last checkpoint holds is kept."""


class UnfitMachineError(RunFailedError):
    """A trainer's machine cannot compute what the run is made of; others may."""


class ProtocolError(RunFailedError):
    """A message does not belong to this run."""
