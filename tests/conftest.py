"""Computes in the tests as in a run: one thread, the same bits."""

from __future__ import annotations

from leap_rl.determinism import configure_torch, prepare_environment

prepare_environment()
configure_torch()
