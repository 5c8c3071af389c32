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

from leap_rl.cli import EXIT_INTERRUPTED, main
from leap_rl.runs import clips
from leap_rl.training.interrupts import Interrupts
from tests.commands import LOCALLY, Refused
from tests.tracking import wandb_file

pytestmark = pytest.mark.usefixtures("without_plots")

ATARI = ["--task.num_envs", "2", "--task.agent_steps", "20", *LOCALLY]
CLIPS = ["--clips", "true", "--tracking.wandb", "offline"]
GAMES = ("breakout", "pong@mode=1")
INITS = ("random", "mine@1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "mine"
    games = ["--task.games", '["bowling"]', "--meta.meta_steps", "1", "--meta.batch_size", "1"]
    assert main(["train", *games, *ATARI, "--run_dir", str(run)]) == 0
    return run


def evaluation(trained: Path, out: Path, *argv: str) -> list[str]:
    words = ["evaluate", "--init", str(trained), "--games", json.dumps(GAMES), "--seeds", "2"]
    return [*words, *ATARI, "--out", str(out), *CLIPS, *argv]


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
        assert main(evaluation(trained, out)) == EXIT_INTERRUPTED
    (first,) = (out / "clips").iterdir()
    before = first.stat().st_mtime_ns

    assert main(["resume", str(out)]) == 0
    names = [f"{game}_{name}" for game in GAMES for name in INITS]
    assert {clip.stem for clip in (out / "clips").iterdir()} == set(names)
    assert first.stat().st_mtime_ns == before
    for clip in (out / "clips").iterdir():
        with av.open(str(clip)) as container:
            assert container.streams.video[0].frames == 60
    page = (out / "report" / "index.html").read_text()
    shown = re.findall(r'<video src="data:video/mp4;base64,([^"]+)"', page)
    kept = [(out / "clips" / f"{name}.mp4").read_bytes() for name in names]
    assert [base64.b64decode(clip) for clip in shown] == kept
    assert "<figcaption>pong@mode=1, from mine@1</figcaption>" in page
    logged = [f"clip/{name}/{game}" for game in GAMES for name in INITS]
    digests = [hashlib.sha256(clip).hexdigest() for clip in kept]
    assert logged_clips(out) == dict(zip(logged, digests, strict=True))


def test_clips_that_cannot_be_are_refused_before_anything_is_learned(
    trained: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = evaluation(trained, tmp_path / "out")
    of_catch = ["all" if word == json.dumps(GAMES) else word for word in words]
    line = refused(*of_catch, "--task.kind", "catch")
    assert "clips = true: task.kind = catch cannot be recorded" in line
    monkeypatch.setitem(sys.modules, "av", None)
    assert "clips = true: MP4 takes PyAV, which is not installed" in refused(*words)
    assert not (tmp_path / "out").exists()
