from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from leap_rl.cli import EXIT_INTERRUPTED, main, watch
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.console import Console
from leap_rl.tracking.live import LIVE, LiveConsole, read_live
from tests.commands import BOWLS, Refused, start, wait_until
from tests.tracking.test_live import VIEW


@pytest.fixture
def stopped(finished: Path, tmp_path: Path) -> Path:
    """The same, as if it had been stopped after its first meta-step."""
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "checkpoints/latest").write_text("000001\n")
    return run


def files(run: Path) -> dict[Path, tuple[bytes, int]]:
    found = (path for path in run.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def watched(capsys: pytest.CaptureFixture[str], run: Path, *options: str) -> list[str]:
    capsys.readouterr()
    assert main(["watch", str(run), *options]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


@pytest.mark.parametrize("options", [[], ["--once"]])
def test_a_run_that_is_not_under_way_says_so_in_one_line(
    finished: Path, stopped: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(finished), files(stopped)
    assert watched(capsys, finished, *options) == [f"{finished}: finished after 4 of 4 meta-steps"]
    (line,) = watched(capsys, stopped, *options)
    assert line.startswith(f"{stopped}: stopped after 1 of 4 meta-steps; continue with: ")
    assert line.endswith(f" resume {stopped}")
    assert (files(finished), files(stopped)) == before


@contextmanager
def driving(run: Path) -> Iterator[LiveConsole]:
    """Work in a run's folder as a driver does."""
    folder = RunFolder(run)
    with folder.lock(), LiveConsole(Console(), run) as console:
        yield console


def test_a_run_that_is_under_way_is_shown_once(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with driving(stopped) as console:
        (line,) = watched(capsys, stopped, "--once")
        assert f"process {os.getpid()} on " in line
        assert line.endswith("works on it, and has shown nothing yet")
        many = tuple(replace(VIEW.running[0], slot=slot, game=f"game_{slot}") for slot in range(60))
        console.show(replace(VIEW, running=many))
        before = files(stopped)
        lines = watched(capsys, stopped, "--once")
        assert files(stopped) == before
    assert lines[0].split()[:4] == ["meta-step", "2", "of", "3"]
    assert [line.split()[0] for line in lines[3:]] == [f"game_{slot}" for slot in range(60)]
    assert not any("\x1b" in line for line in lines)  # no terminal


def test_a_view_that_is_old_says_so(
    stopped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with driving(stopped) as console:
        console.show(VIEW)
        assert not watched(capsys, stopped, "--once")[-1].startswith("as of")
        monkeypatch.setattr(watch, "OLD_S", -1.0)
        assert watched(capsys, stopped, "--once")[-1].startswith("as of ")


def test_what_a_dead_driver_left_is_not_shown(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with driving(stopped) as console:
        console.show(VIEW)
        left = (stopped / LIVE).read_bytes(), (stopped / ".lock").read_bytes()
    (stopped / LIVE).write_bytes(left[0])
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    pid = str(os.getpid()).encode()
    (stopped / ".lock").write_bytes(left[1].replace(pid, str(dead.pid).encode()))
    (line,) = watched(capsys, stopped, "--once")
    assert "stopped after 1 of 4" in line


def test_a_run_is_watched_to_its_end(
    stopped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 0.01)
    began, seen = threading.Event(), threading.Event()
    monkeypatch.setattr(watch, "read_live", lambda folder: seen.set() or read_live(folder))

    def drive() -> None:
        with driving(stopped) as console:
            console.show(VIEW)
            began.set()
            seen.wait(30)
            seen.clear()
            seen.wait(30)
            (stopped / "checkpoints/latest").write_text("000004\n")

    driver = threading.Thread(target=drive)
    driver.start()
    try:
        began.wait(30)
        lines = watched(capsys, stopped)
    finally:
        driver.join()
    assert lines[0] == "training: from meta-step 1, 3 meta-steps in all, 2 tasks each"
    assert lines[1].startswith("meta-step 0 finished (1 of 3)")
    assert lines[-1] == f"{stopped}: finished after 4 of 4 meta-steps"


def test_ctrl_c_leaves_the_watch_alone(
    stopped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with driving(stopped) as console:
        console.show(VIEW)
        monkeypatch.setattr(watch.time, "sleep", interrupt)
        assert main(["watch", str(stopped)]) == EXIT_INTERRUPTED
        assert "Traceback" not in capsys.readouterr().err
        assert read_live(stopped) is not None


def test_a_folder_without_a_run_is_one_line(tmp_path: Path, refused: Refused) -> None:
    assert "no run is here" in refused("watch", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(170)
def test_a_real_run_is_watched_until_it_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    options = ["--task.agent_steps", "4000000", "--runtime.stream_every_s", "0.2"]
    options += ["--meta.meta_steps", "3", "--run_dir", str(run)]
    driver = start("train", *BOWLS, *options, cwd=tmp_path)
    try:
        wait_until((run / LIVE).exists, driver)
        lines = watched(capsys, run, "--once")
        assert lines[0].startswith("meta-step 1 of 3")
        assert any(line.startswith("bowl_") for line in lines)
        follower, leaver = start("watch", run, cwd=tmp_path), start("watch", run, cwd=tmp_path)
        assert leaver.stdout is not None
        assert leaver.stdout.readline().startswith("training: 3 meta-steps in all")
        leaver.send_signal(signal.SIGINT)
        output, errors = leaver.communicate(timeout=60)
        assert (leaver.returncode, "Traceback" in output + errors) == (EXIT_INTERRUPTED, False)
        assert follower.stdout is not None
        assert follower.stdout.readline().startswith("training: 3 meta-steps in all")
    finally:
        driver.send_signal(signal.SIGINT)
        driver.communicate(timeout=60)
    output, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0
    assert "stopped after 0 of 3 meta-steps; continue with: " in output.splitlines()[-1]
    assert not (run / LIVE).exists()
