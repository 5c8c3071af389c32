"""Damaged files and foreign ones in a run's folder: the same bits, or one clear line."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from leap_rl.cli import EXIT_FAILED, main
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.server.parameter_server import ParameterServer
from tests.commands import Refused, contents
from tests.security.runs import META_STEPS, make, one_line, rewrite_checkpoint


def sums(run: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of the run's last checkpoint."""
    folder = RunFolder(run)
    assert folder.latest() == META_STEPS
    return dict(folder.read_checkpoint(META_STEPS)[1]["sha256"])


def damage(run: Path, dice: random.Random) -> list[str]:
    """Truncate, change or remove files of a run; returns what was done."""
    done = []
    for _ in range(dice.choice([1, 1, 1, 2, 4])):
        files = sorted(path for path in run.rglob("*") if path.is_file())
        path = dice.choice(files)
        data = bytearray(path.read_bytes())
        match dice.choice(["flip", "flip", "flip", "cut", "cut", "empty", "remove", "append"]):
            case "flip" if data:
                for _ in range(dice.choice([1, 1, 3, 20])):
                    place = dice.randrange(len(data))
                    data[place] ^= 1 << dice.randrange(8)
                    done.append(f"{path.relative_to(run)}: byte {place}")
                path.write_bytes(data)
            case "cut" if data:
                size = dice.randrange(len(data))
                path.write_bytes(data[:size])
                done.append(f"{path.relative_to(run)}: cut at {size}")
            case "remove":
                path.unlink()
                done.append(f"{path.relative_to(run)}: removed")
            case "append":
                path.write_bytes(bytes(data) + dice.randbytes(dice.randrange(1, 40)))
                done.append(f"{path.relative_to(run)}: appended to")
            case _:
                path.write_bytes(b"")
                done.append(f"{path.relative_to(run)}: emptied")
    return done


def check_damaged(
    run: Path, calm: dict[str, str], capsys: pytest.CaptureFixture[str], what: object
) -> bool:
    """Check that resuming gives the same bits (returns True) or one clear line (returns False)."""
    capsys.readouterr()
    status = main(["resume", str(run)])
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert all(line.startswith("leap-rl: ") for line in lines), (what, captured.err)
    assert "Traceback" not in captured.err, (what, captured.err)
    if status == 0:
        assert sums(run) == calm, what
        return True
    assert status in (1, 2), what
    assert lines, what
    assert str(run) in lines[-1], (what, lines)
    return False


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("first", "count"), [(0, 8), pytest.param(1000, 400, marks=pytest.mark.slow)]
)
def test_damage_is_mended_or_told(
    stopped: Path,
    calm: dict[str, str],
    first: int,
    count: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mended = 0
    for seed in range(first, first + count):
        run = tmp_path / "run"
        shutil.copytree(stopped, run)
        what = damage(run, random.Random(seed))
        mended += check_damaged(run, calm, capsys, (seed, what))
        shutil.rmtree(run)
    assert count / 4 < mended < count  # both happen


def test_damaged_rows_are_written_again_from_the_checkpoints(
    run: Path, calm: dict[str, str], refused: Refused
) -> None:
    metrics = run / "metrics.jsonl"
    rows = metrics.read_bytes()
    metrics.write_bytes(rows[1:])
    assert "metrics.jsonl, line 1: not a JSON object" in refused("resume", run)
    metrics.unlink()
    assert main(["resume", str(run)]) == 0
    assert metrics.read_bytes().startswith(rows)
    assert sums(run) == calm


def test_a_run_with_no_whole_checkpoint_is_one_line(run: Path, refused: Refused) -> None:
    for path in run.glob("checkpoints/*/state.json"):
        path.unlink()
    line = refused("resume", run)
    assert "000002/state.json: cannot be read" in line
    assert "no other checkpoint is whole" in line


def test_a_disk_that_is_full_at_any_write_costs_nothing_that_was_written(
    calm: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fsync = os.fsync
    calls: list[int] = []
    full_at = -1

    def maybe_full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == full_at:
            if os.fstat(descriptor).st_nlink == 1:  # a file, of which half was written
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", maybe_full)
    run = tmp_path / "run"
    assert make(run) == 0
    total = len(calls)
    outcomes = set()
    for full_at in range(1, total, 40):
        shutil.rmtree(run)
        calls.clear()
        capsys.readouterr()
        status = make(run)
        lines = capsys.readouterr().err.splitlines()
        outcomes.add(status)
        assert len(lines) == 1, (full_at, lines)
        assert "No space left on device" in lines[0], full_at
        calls.extend([0] * total)  # and there is room again
        if not RunFolder(run).exists():
            assert status == 2  # it was not even made
            continue
        assert status == EXIT_FAILED, full_at
        assert main(["resume", str(run)]) == 0, full_at
        assert sums(run) == calm, full_at
    assert outcomes == {2, EXIT_FAILED}


# -- a folder that another run has taken ----------------------------------------------------------


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
