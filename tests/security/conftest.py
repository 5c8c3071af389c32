"""A run, a stopped run, and a file that exists only if an attack ran code."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leap_rl.cli import main
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.server.parameter_server import ParameterServer
from tests.security.runs import META_STEPS, make


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that attacks would create."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists(), "code was run"


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The checksums of an undisturbed run's last checkpoint."""
    run = tmp_path_factory.mktemp("calm") / "run"
    assert make(run) == 0
    return dict(RunFolder(run).read_state(META_STEPS)["sha256"])


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped in its third meta-step: one slot is complete, another has a snapshot."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    stream = ParameterServer.stream

    def stop(self: ParameterServer, message: Any) -> object:
        answer = stream(self, message)
        ticket, saved = message.ticket, message.snapshot is not None and message.n > 0
        if ticket.round == 2 and ticket.slot == 1 and saved:
            raise KeyboardInterrupt
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParameterServer, "stream", stop)
        assert make(run, "--meta.meta_steps", "2") == 0
        often = ["--runtime.stream_every_s", "1e-6", "--runtime.snapshot_every_s", "1e-6"]
        assert main(["resume", str(run), "--meta.meta_steps", str(META_STEPS), *often]) == 130
    names = {path.name for path in RunFolder(run).slots(2).iterdir()}
    assert names >= {"000.safetensors", "001.lease", "001.snapshot"}
    return run


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it to attack."""
    shutil.copytree(stopped, tmp_path / "run")
    return tmp_path / "run"
