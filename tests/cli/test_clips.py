"""An evaluation's clips: on disk, in wandb's file, made once, and refused where they cannot be."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from pathlib import Path

import av
import pytest
import wandb

from leap_rl.cli import EXIT_INTERRUPTED, EXIT_USAGE, main
from leap_rl.runs import clips
from leap_rl.training.interrupts import Interrupts
from tests.tracking import wandb_file

pytestmark = pytest.mark.usefixtures("without_plots")

ATARI = ["--task.num_envs", "2", "--task.agent_steps", "20", "--runtime.kind", "local"]
ATARI += ["--tracking.tensorboard", "false", "--tracking.console", "quiet"]
CLIPS = ["--clips", "true", "--tracking.wandb", "offline"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "mine"
    games = ["--task.games", '["bowling"]', "--meta.meta_steps", "1", "--meta.batch_size", "1"]
    assert main(["train", *games, *ATARI, "--run_dir", str(run)]) == 0
    return run


def evaluate(trained: Path, out: Path, *argv: str) -> int:
    games = ["--games", '["breakout", "pong@mode=1"]', "--seeds", "2"]
    return main(["evaluate", "--init", str(trained), *games, *ATARI, "--out", str(out), *argv])


def logged_clips(out: Path) -> dict[str, str]:
    """SHA-256 of what wandb has of each clip."""
    wandb.teardown()  # wait until its own process has written everything
    found = {}
    for file in out.glob("wandb/offline-run-*/*.wandb"):
        for record in wandb_file.records(file):
            for item in record.history.item:
                name, *parts = item.nested_key
                if parts == ["path"] and name.startswith("clip/"):
                    media = file.parent / "files" / json.loads(item.value_json)
                    found[name] = hashlib.sha256(media.read_bytes()).hexdigest()
    return found


def test_each_initialization_is_recorded_in_each_game_even_after_a_stop(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clips, "LONGEST_S", 1)
    out = tmp_path / "out"
    checks = iter([False] * 100 + [True])  # Ctrl-C in the midst of the second clip

    def check(interrupts: Interrupts) -> None:
        if next(checks, False):
            raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(clips, "SCALE", 1)
        stopping.setattr("leap_rl.training.interrupts.Interrupts.check", check)
        assert evaluate(trained, out, *CLIPS) == EXIT_INTERRUPTED
    (first,) = (out / "clips").iterdir()
    before = first.stat().st_mtime_ns

    assert main(["resume", str(out)]) == 0
    names = {
        f"{game}_{name}" for game in ("breakout", "pong@mode=1") for name in ("random", "mine@1")
    }
    assert {clip.stem for clip in (out / "clips").iterdir()} == names
    assert first.stat().st_mtime_ns == before
    for clip in (out / "clips").iterdir():
        with av.open(str(clip)) as container:
            assert container.streams.video[0].frames == 60
    page = (out / "report" / "index.html").read_text()
    shown = re.findall(r'<video src="data:video/mp4;base64,([^"]+)"', page)
    order = [
        f"{game}_{name}" for game in ("breakout", "pong@mode=1") for name in ("random", "mine@1")
    ]
    kept = [(out / "clips" / f"{name}.mp4").read_bytes() for name in order]
    assert [base64.b64decode(clip) for clip in shown] == kept
    assert "<figcaption>pong@mode=1, from mine@1</figcaption>" in page
    assert logged_clips(out) == {
        f"clip/{name}/{game}": hashlib.sha256(
            (out / "clips" / f"{game}_{name}.mp4").read_bytes()
        ).hexdigest()
        for game in ("breakout", "pong@mode=1")
        for name in ("random", "mine@1")
    }


def test_clips_that_cannot_be_are_refused_before_anything_is_learned(
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def error(*argv: str) -> str:
        capsys.readouterr()
        assert evaluate(trained, tmp_path / "out", *argv) == EXIT_USAGE
        assert not (tmp_path / "out").exists()
        return capsys.readouterr().err.splitlines()[-1]

    catch = ["--task.kind", "catch", "--games", "all"]
    assert "clips = true: task.kind = catch cannot be recorded" in error(*CLIPS, *catch)
    monkeypatch.setitem(sys.modules, "av", None)
    assert "clips = true: MP4 takes PyAV, which is not installed" in error(*CLIPS)
