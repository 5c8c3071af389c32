"""Two runs in one folder: neither takes or harms what is the other's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from leap_rl.cli import main
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.server.parameter_server import ParameterServer
from tests.commands import Refused, contents
from tests.security.runs import META_STEPS, one_line, rewrite_checkpoint

pytestmark = pytest.mark.usefixtures("without_plots")


@pytest.mark.parametrize("how", ["the lock is removed", "another run takes its place"])
def test_a_run_whose_folder_is_not_its_own_any_more_stops(
    how: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(run, tmp_path / "other")
    before = contents(tmp_path / "other")
    stream, lost = ParameterServer.stream, []

    def lose(self: ParameterServer, message: Any) -> object:
        if not lost:
            lost.append(True)
            if how == "the lock is removed":
                (run / ".lock").unlink()
            else:
                shutil.rmtree(run)
                shutil.copytree(tmp_path / "other", run)
        return stream(self, message)

    monkeypatch.setattr(ParameterServer, "stream", lose)
    assert main(["resume", str(run), "--runtime.stream_every_s", "1e-6"]) == 1
    line = one_line(capsys)
    assert f"{run / '.lock'}: was " in line
    assert "while a run went on there; another command may work there now" in line
    assert RunFolder(run).latest() == META_STEPS - 1
    if how == "another run takes its place":
        assert contents(run) == before


def test_a_checkpoint_of_another_run_is_not_taken(
    run: Path, tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    """A driver left it that continued in a folder which had become another run's."""
    rewrite_checkpoint(run, {"fingerprint": "0" * 64}, to=5)
    checkpoint = run / "checkpoints" / "000005"
    new = ["--run_dir", tmp_path / "new"]
    few = ["--agent_steps", "20", "--seeds", "1", "--games", '["pong"]']
    for words in (
        ["fork", run, "--at", 5, *new],
        ["evaluate", "--init", run, *few, *new],
        ["evaluate", "--init", f"{run}@5", *few, *new],
        ["evaluate", "--init", checkpoint, *few, *new],
    ):
        says = f"leap-rl: {checkpoint}: belongs to another run than config.yaml"
        assert refused(*words) == says
    assert not (tmp_path / "new").exists()
    assert main(["watch", str(run)]) == 0
    said = capsys.readouterr().out
    assert said == f"{run}: is damaged: it has 5 meta-steps, of {META_STEPS} that were to be made\n"
