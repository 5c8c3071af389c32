"""Weights & Biases: each row once whoever is killed, and nothing stops where its server is away."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import wandb
from safetensors.numpy import save_file

from leap_rl.tracking import wandb as sink
from leap_rl.tracking import wandb_folder
from leap_rl.tracking.config import TrackingConfig
from leap_rl.tracking.sink import TrackingError
from leap_rl.tracking.tracker import Tracker, open_tracker
from tests.tracking import wandb_file
from tests.tracking.wandb_server import WandbServer, serve

ROOT = Path(__file__).parents[2]
OFFLINE = TrackingConfig(wandb="offline", tensorboard=False)
ONLINE = TrackingConfig(wandb="online", tensorboard=False)
ROWS = [{"meta_step": n, "agent_steps": 100 * n, "meta/step_norm": n / 7} for n in range(6)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    with serve() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        yield server


@pytest.fixture
def initialization(tmp_path: Path) -> Path:
    """Of a run that wandb knows."""
    checkpoint = tmp_path / "parent" / "checkpoints" / "000012"
    checkpoint.mkdir(parents=True)
    (tmp_path / "parent" / "wandb").mkdir()
    (tmp_path / "parent" / "wandb" / "run_id.txt").write_text("a1b2c3d4\n")
    save_file({"w": np.ones(3, np.float32)}, checkpoint / "initialization.safetensors")
    return checkpoint / "initialization.safetensors"


def open_run(config: TrackingConfig, folder: Path) -> Tracker:
    return open_tracker(config, run_folder=folder, run_config={"seed": 7}, kind="train")


def track(config: TrackingConfig, folder: Path, *steps: int) -> None:
    with open_run(config, folder) as tracker:
        for step in steps:
            tracker.log(ROWS[step], axis="meta_step")
    wandb_file.end()


def run_id_of(folder: Path) -> str:
    return (folder / "wandb" / "run_id.txt").read_text().strip()


@contextmanager
def hung_server() -> Iterator[str]:
    """Takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


# -- killed and resumed -----------------------------------------------------------------------


def test_what_a_killed_driver_took_with_it_is_told_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    program = f"""
import os, signal
from pathlib import Path
from tests.tracking.test_wandb import OFFLINE, ROWS, open_run
tracker = open_run(OFFLINE, Path({str(folder)!r}))
for row in ROWS[:3]:
    tracker.log(row, axis="meta_step")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    (killed,) = wandb_file.files(folder)
    assert wandb_file.rows(killed) == []  # lost in the buffer of wandb's own process

    track(OFFLINE, folder, 3)
    first, second = wandb_file.files(folder)
    assert first == killed
    assert wandb_file.rows(second) == ROWS[:4]


@pytest.mark.slow
def test_wandb_sync_takes_the_newest_file_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for step in range(3):
        track(OFFLINE, folder, step)
    files = wandb_file.files(folder)
    assert len(files) == 3
    program = [sys.executable, "-m", "wandb", "sync", "--dry-run", "--verbose"]
    folders = [str(file.parent) for file in files]
    done = subprocess.run(
        [*program, *folders], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "Skipped 2 synced run(s)" in done.stderr
    assert str(files[-1].name) in done.stderr
    assert files[-1].parent.name in done.stderr
    assert files[0].parent.name not in done.stderr


def test_marks_are_not_written_where_links_lead(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    (outside / "run-1.wandb").touch()
    (folder / "wandb" / "offline-run-2").mkdir(parents=True)
    (folder / "wandb" / "offline-run-1").symlink_to(outside)
    (folder / "wandb" / "offline-run-2" / "run-2.wandb").touch()
    (folder / "wandb" / "offline-run-2" / "run-2.wandb.synced").symlink_to(outside / "new")
    wandb_folder.pass_over_older_files(folder)
    assert [path.name for path in outside.iterdir()] == ["run-1.wandb"]


def test_a_resume_tells_the_server_what_it_lacks_and_nothing_twice(
    tmp_path: Path, server: WandbServer
) -> None:
    folder = tmp_path / "run"
    track(ONLINE, folder, 0, 1, 2)
    run_id = run_id_of(folder)
    assert server.rows(run_id) == ROWS[:3]

    del server.histories[run_id][1:]  # never came there
    track(ONLINE, folder, 3)
    assert server.rows(run_id) == ROWS[:4]

    # Killed between the mirror and the truth: the server has a row that metrics.jsonl lacks.
    server.histories[run_id].append({**ROWS[4], "_step": 4})
    track(ONLINE, folder, 4, 5)
    assert server.rows(run_id) == ROWS
    assert [row["_step"] for row in server.histories[run_id]] == list(range(6))
    assert len(server.histories) == 1


@pytest.mark.slow
def test_what_was_tracked_while_the_server_was_away_is_uploaded_whole(
    tmp_path: Path, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    track(ONLINE, folder, 0, 1)
    with monkeypatch.context() as away:
        away.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
        track(ONLINE, folder, 2, 3)
    run_id = run_id_of(folder)
    assert server.rows(run_id) == ROWS[:2]
    sync = [sys.executable, "-m", "wandb", "sync", *map(str, wandb_file.files(folder))]
    subprocess.run(sync, cwd=tmp_path, check=True, capture_output=True)
    assert server.rows(run_id) == ROWS[:4]
    track(ONLINE, folder, 4)
    assert server.rows(run_id) == ROWS[:5]


# -- the server is away -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["refusing", "hung"])
def test_a_server_that_is_away_costs_seconds_and_stops_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    track(OFFLINE, tmp_path / "offline", 0)  # all imports are behind us
    with hung_server() as hung:
        url = hung if kind == "hung" else "http://127.0.0.1:9"
        monkeypatch.setenv("WANDB_BASE_URL", url)
        started = time.monotonic()
        with open_run(ONLINE, tmp_path / "run") as tracker:
            opened = time.monotonic()
            for row in ROWS:
                tracker.log(row, axis="meta_step")
            logged = time.monotonic()
        wandb_file.end()
        closed = time.monotonic()
    assert opened - started < (8 if kind == "hung" else 5)
    assert logged - opened < 1
    assert closed - logged < 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"leap-rl: tracking.wandb = online: {url} is out of reach (")
    assert f"`wandb sync {tmp_path}/run/wandb/offline-run-*`" in line
    (file,) = wandb_file.files(tmp_path / "run")
    assert wandb_file.rows(file) == ROWS


def test_a_server_that_answers_and_fails_is_away_too(
    tmp_path: Path,
    server: WandbServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.refuses = 500
    monkeypatch.setattr(sink, "INIT_TIMEOUT_S", 2.0)
    track(ONLINE, tmp_path / "run", 0)
    assert "is out of reach" in capsys.readouterr().err
    (file,) = wandb_file.files(tmp_path / "run")
    assert wandb_file.rows(file) == ROWS[:1]


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_refuses_the_key_stops_the_run_before_it_starts(
    status: int, tmp_path: Path, server: WandbServer
) -> None:
    server.refuses = status
    with pytest.raises(TrackingError, match=rf"^tracking.wandb = online: .*{status}.*; use offli"):
        track(ONLINE, tmp_path / "run", 0)


@pytest.mark.parametrize(
    ("key", "reason"),
    [("abc", ".*API key.*"), (None, r"no API key is configured \(see wandb login\)")],
)
def test_a_key_that_can_be_none_stops_the_run_before_it_starts(
    key: str | None,
    reason: str,
    tmp_path: Path,
    server: WandbServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", key) if key else monkeypatch.delenv("WANDB_API_KEY")
    says = f"^tracking.wandb = online: {reason}; use offline, then wandb sync$"
    with pytest.raises(TrackingError, match=says):
        track(ONLINE, tmp_path / "run", 0)
    assert server.requests == 0


def test_a_slow_disk_is_waited_for_and_nobody_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sink, "AWAY_TIMEOUT_S", 0.01)
    monkeypatch.setattr(sink, "_silence", None)  # not to be called
    track(OFFLINE, tmp_path / "run", 0, 1)
    assert wandb_file.rows(wandb_file.files(tmp_path / "run")[0]) == ROWS[:2]
    assert not capsys.readouterr().err


@pytest.mark.parametrize("leaves", ["nothing", "an upload"])
def test_a_server_that_goes_away_in_the_midst_holds_up_nothing(
    leaves: str,
    tmp_path: Path,
    initialization: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sink, "AWAY_TIMEOUT_S", 2.0)
    with serve() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        tracker = open_run(ONLINE, tmp_path / "run")
        tracker.log(ROWS[0], axis="meta_step")
    started = time.monotonic()
    tracker.log(ROWS[1], axis="meta_step")
    if leaves == "an upload":
        tracker.log_initialization(1, initialization, newest=True, metadata={})
    tracker.close()
    wandb.teardown()
    assert time.monotonic() - started < sink.FINISH_TIMEOUT_S  # which it did not wait for
    (line,) = capsys.readouterr().err.splitlines()
    assert "did not take everything" in line
    assert f"`leap-rl resume {tmp_path / 'run'}` uploads the rest" in line


@pytest.mark.slow
def test_the_death_of_wandbs_own_process_stops_nothing(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
import wandb
import psutil
from leap_rl.core.machine import kill_children_from
from tests.tracking.test_wandb import OFFLINE, ROWS, open_run
with open_run(OFFLINE, Path({str(tmp_path / "run")!r})) as tracker:
    tracker.log(ROWS[0], axis="meta_step")
    (process,) = psutil.Process().children()
    kill_children_from(Path(wandb.__file__).parent)
    process.wait()
    for row in ROWS[1:]:
        tracker.log(row, axis="meta_step")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        check=False,
        timeout=50,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("leap-rl: wandb has failed (")
    track(OFFLINE, tmp_path / "run")  # a resume with nothing to do
    assert wandb_file.rows(wandb_file.files(tmp_path / "run")[-1]) == ROWS


# -- artifacts, tables, pages -----------------------------------------------------------------


def test_an_initialization_is_a_version_of_the_runs_artifact(
    tmp_path: Path, initialization: Path
) -> None:
    folder = tmp_path / "run"
    with open_run(OFFLINE, folder) as tracker:
        tracker.log_initialization(10, initialization, newest=False, metadata={"method": "leap"})
        tracker.log_initialization(20, initialization, newest=True, metadata={"method": "leap"})
    wandb_file.end()
    (file,) = wandb_file.files(folder)
    sha256 = hashlib.sha256(initialization.read_bytes()).hexdigest()
    (first, said), (second, _) = wandb_file.artifacts(file)
    assert said == {"meta_step": 10, "sha256": sha256, "method": "leap"}
    assert (first.type, first.name) == ("initialization", f"initialization-{run_id_of(folder)}")
    assert [list(one.aliases) for one in (first, second)] == [
        ["meta-step-10"],
        ["meta-step-20", "latest"],
    ]
    assert not first.use_after_commit
    (content,) = first.manifest.contents
    assert (content.path, content.local_path) == (initialization.name, str(initialization))


def test_a_run_declares_the_initialization_that_it_starts_from(
    tmp_path: Path, initialization: Path
) -> None:
    folder = tmp_path / "run"
    elsewhere = tmp_path / "initialization.safetensors"
    elsewhere.write_bytes(initialization.read_bytes())
    wandb_folder.note_sources(folder, [initialization, elsewhere, "s3://bucket/x", "random"])
    for _ in range(2):  # and again by every process that goes on
        track(OFFLINE, folder)
    with open_run(OFFLINE, tmp_path / "parent") as tracker:
        tracker.log_initialization(12, initialization, newest=True, metadata={})
    wandb_file.end()
    ((made, _),) = wandb_file.artifacts(wandb_file.files(tmp_path / "parent")[0])
    for file in wandb_file.files(folder):
        ((used, said),) = wandb_file.artifacts(file)
        assert used.use_after_commit
        assert (used.name, used.digest) == (made.name, made.digest)
        assert said["meta_step"] == 12


def test_a_strangers_folder_makes_no_other_file_be_uploaded(
    tmp_path: Path, initialization: Path
) -> None:
    def noted(**changes: str) -> int:
        wandb_folder.note_sources(tmp_path / "run", [initialization])
        path = tmp_path / "run" / "wandb" / "sources.json"
        (source,) = json.loads(path.read_text())
        path.write_text(json.dumps([{**source, **changes}]))
        return len(wandb_folder.read_sources(tmp_path / "run"))

    secret = tmp_path / "secret" / "initialization.safetensors"
    secret.parent.mkdir()
    secret.write_text("a key")
    sha256 = hashlib.sha256(b"a key").hexdigest()
    link = tmp_path / "initialization.safetensors"
    link.symlink_to(initialization)
    assert noted() == 1
    assert noted(file=str(secret), sha256=sha256) == 0
    assert noted(file=str(link)) == 0
    assert noted(file="/etc/passwd") == 0
    assert noted(sha256=sha256) == 0
    assert noted(artifact="other/initialization:v0") == 0


def test_an_offline_run_asks_nobody_anything(tmp_path: Path) -> None:
    with serve() as server:
        program = f"""
from pathlib import Path
from tests.tracking.test_wandb import OFFLINE, track
track(OFFLINE, Path({str(tmp_path / "run")!r}), 0, 1)
"""
        environment = {**os.environ, "WANDB_BASE_URL": server.url}
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, env=environment)
        assert server.requests == 0


def test_the_machine_is_not_named(tmp_path: Path) -> None:
    track(OFFLINE, tmp_path / "run", 0)
    (file,) = wandb_file.files(tmp_path / "run")
    assert socket.gethostname().encode() not in file.read_bytes() or len(socket.gethostname()) < 4
    run, _ = wandb_file.run(file)
    assert (run.host, run.display_name) == ("", "run")
    assert os.environ["HOME"].encode() not in file.read_bytes()
