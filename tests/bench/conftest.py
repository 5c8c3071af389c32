"""Processes that need not import torch each."""

from __future__ import annotations

import multiprocessing

import pytest


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes of pools from one that has imported what they need: seconds for each.

    Those of the commands in test_experiment.py and tests/cli/test_bench.py import it themselves.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["benchmarks.harness.cells", "leap_rl.bench.worker_pool", "torch"]
    )
    monkeypatch.setattr("benchmarks.harness.cells.multiprocessing.get_context", lambda _: context)
    monkeypatch.setattr("leap_rl.bench.worker_pool.get_context", lambda _: context)
