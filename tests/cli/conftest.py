"""Runs that tests read or copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import BOWLS, CATCH, META, QUIET, undisturbed


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over bowls, of four meta-steps."""
    run = tmp_path_factory.mktemp("runs") / "finished"
    return undisturbed(run, *BOWLS, "--meta.meta_steps", "4").path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over Catch, of two meta-steps, each after a validation."""
    run = tmp_path_factory.mktemp("runs") / "mine"
    judged = ["--validation.every_meta_steps", "1", "--validation.games", "catch"]
    return undisturbed(run, *CATCH, *META, *QUIET, *judged).path
