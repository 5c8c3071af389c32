"""A server over a folder of its own, with a clock that a test moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.server.parameter_server import ParameterServer
from tests.training.fakes import FakeClock, FakePlan, make_server


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


@pytest.fixture
def plan() -> FakePlan:
    return FakePlan()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(folder: RunFolder, plan: FakePlan, clock: FakeClock) -> ParameterServer:
    return make_server(folder, plan, clock)
