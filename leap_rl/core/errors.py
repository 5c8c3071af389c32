"""Why a run may stop. Each message is one line that a user can act on."""

from __future__ import annotations


class RunFailedError(RuntimeError):
    """A run cannot continue; its checkpoints stay."""


class UnfitMachineError(RunFailedError):
    """A trainer's machine cannot compute the run's tasks; others may."""


class ProtocolError(RunFailedError):
    """A message does not belong to this run."""
