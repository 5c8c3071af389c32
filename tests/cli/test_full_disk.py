"""Runs on a disk that is really full: a small tmpfs, and a `write` that fails."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from leap_rl.cli import EXIT_FAILED, main
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tracking.jsonl import read_rows
from tests.tracking import tensorboard_file

# As many slots as in the paper, and so more figures in a row than TensorBoard's queue would hold.
SHORT = [
    *("--config", "debug", "--runtime.kind", "local"),
    *("--runtime.trainers", "1", "--tracking.console", "quiet", "--meta.batch_size", "16"),
    *("--task.agent_steps", "40", "--meta.meta_steps", "4"),
]
PAGE = 4096
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")


def mount(where: Path, pages: int) -> None:
    where.mkdir(parents=True, exist_ok=True)
    options = f"size={pages * PAGE},mode=0777"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(where)], check=False)
    if done.returncode:
        pytest.skip("mounting a tmpfs needs root")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder to mount a tmpfs on; in a run's folder, it is that of the event files."""
    where = tmp_path / "tensorboard"
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=False, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The last initialization of the run when nothing is full."""
    run = tmp_path_factory.mktemp("calm") / "run"
    assert main(["train", *SHORT, "--run_dir", str(run)]) == 0
    return last(run)


def last(run: Path) -> bytes:
    assert len(read_rows(run / "metrics.jsonl")) == 4
    return (RunFolder(run).checkpoint(4) / INITIALIZATION).read_bytes()


def test_a_full_disk_under_tensorboard_costs_its_metrics_alone(
    disk: Path, calm: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    run = disk.parent
    mount(disk, pages=1)
    assert main(["train", *SHORT, "--run_dir", str(run)]) == 0
    steps = tensorboard_file.rows(disk, "meta_step")
    assert last(run) == calm
    assert len(steps) < 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("leap-rl: TensorBoard has failed ([Errno 28] No space left on device")


def test_a_run_on_a_full_disk_says_the_file_and_the_way_out_and_can_be_resumed(
    disk: Path, calm: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    mount(disk, pages=400)
    outcomes = set()
    for free in (4, 16, 28, 40, 52):
        run, ballast = disk / f"run-{free}", disk / "ballast"
        fill(ballast, leave=free)
        status = main(["train", *SHORT, "--run_dir", str(run)])
        errors = capsys.readouterr().err.splitlines()
        ballast.unlink()
        outcomes.add(status)
        assert "No space left on device" in errors[-1], (free, errors)
        assert str(run) in errors[-1], (free, errors)
        mirrors = [line for line in errors[:-1] if "TensorBoard has failed" in line]
        assert len(errors) == 1 + len(mirrors) <= 2, (free, errors)
        if not RunFolder(run).exists():
            assert status == 2  # it was not even made
            continue
        assert status == EXIT_FAILED, free
        assert f"make room, and `python -m leap_rl resume {run}` continues" in errors[-1]
        # As long as there is no room, a resume says so too.
        fill(ballast, leave=0)
        assert main(["resume", str(run)]) == EXIT_FAILED
        assert f"{run}" in capsys.readouterr().err.splitlines()[-1]
        ballast.unlink()
        assert main(["resume", str(run)]) == 0, free
        assert last(run) == calm
        capsys.readouterr()
    assert outcomes == {2, EXIT_FAILED}


def fill(ballast: Path, *, leave: int) -> None:
    """Fill a disk but for some pages."""
    free = os.statvfs(ballast.parent).f_bavail
    with open(ballast, "wb") as file:
        file.write(b"\0" * PAGE * (free - leave))


@pytest.mark.parametrize("target", ["metrics.jsonl", "state.json", ".safetensors", "latest"])
def test_a_write_that_fails_half_done_ends_the_run_in_one_line(
    target: str,
    tmp_path: Path,
    calm: bytes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        for module in ("leap_rl.storage.durable_files", "leap_rl.tracking.jsonl"):
            patch.setattr(f"{module}.open", FullDisk(target, after=3), raising=False)
        assert main(["train", *SHORT, "--run_dir", str(run)]) == EXIT_FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"leap-rl: {run}/")
    assert target in line
    assert line.endswith(
        f": No space left on device; make room, and `python -m leap_rl resume {run}` continues"
    )
    assert main(["resume", str(run)]) == 0
    assert last(run) == calm


class FullDisk:
    """Opens files as `open` does; of a file whose name ends so, a write takes half and fails."""

    def __init__(self, target: str, after: int) -> None:
        self.target, self.after = target, after

    def __call__(self, file: int | Path, mode: str = "r", buffering: int = -1, **more: object):  # type: ignore[no-untyped-def]
        opened = open(file, mode, buffering, **more)  # type: ignore[call-overload]  # noqa: SIM115
        name = TEMPORARY.sub(r"\1", Path(os.readlink(f"/proc/self/fd/{opened.fileno()}")).name)
        if ("w" in mode or "a" in mode) and name.endswith(self.target):
            self.after -= 1
            return Half(opened) if self.after <= 0 or "a" in mode else opened
        return opened


class Half:
    """A file on a disk with room for half of what is written."""

    def __init__(self, file) -> None:  # type: ignore[no-untyped-def]
        self.file = file
        self.taken = False

    def write(self, data: bytes) -> int:
        if self.taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.taken = True
        count: int = self.file.write(data[: len(data) // 2])
        self.file.flush()
        if self.file.mode == "wb":  # with a buffer, whose writes are whole or fail
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return count

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)

    def __enter__(self) -> Half:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()
