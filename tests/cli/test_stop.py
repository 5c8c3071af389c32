"""A run that is asked to stop, or whose driver is killed, can be resumed, or is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from leap_rl.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_STOPPED, EXIT_TERMINATED, main
from leap_rl.core.errors import ClusterLostError, RunFailedError
from leap_rl.core.machine import descendants
from leap_rl.runs import execution, monitor, resumption
from leap_rl.runs import header as reading
from leap_rl.runs.child import serve
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.header import LoadedRun, RunHeader
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.process import Request, supervise
from leap_rl.storage.checksummed_file import decode_arrays
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.live import read_live
from leap_rl.training.config import Joined
from tests.commands import BOWLS, LOCALLY, Process, start, wait_until

DEBUG = ["--config", "debug", "--tracking.tensorboard", "false"]
LONG = [*DEBUG, "--task.agent_steps", "4000", "--meta.meta_steps", "1000", "--run_dir", "run"]
LOCAL = ["--runtime.kind", "local"]
ALONE = [*LOCAL, "--runtime.trainers", "1", "--tracking.console", "quiet"]
RAY = ["--runtime.kind", "ray", "--runtime.trainers", "2"]

SPREAD = ["--task.kind", "gymnasium", "--task.games", '["CartPole-v1"]', "--meta.batch_size", "1"]
SPREAD += ["--task.num_envs", "2", "--runtime.env_processes", "2", "--run_dir", "run"]

HANGS = """
import sys, time
from leap_rl.cli import main
from leap_rl.training.runtime.local import LocalClient

def hang(self, message):
    print("hangs", flush=True)
    time.sleep(100)

LocalClient.complete = hang
sys.exit(main(sys.argv[1:]))
"""


def end(process: Process, *, status: int, within_s: float) -> str:
    """What the process says when it ends, as is hoped for."""
    started = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    assert time.monotonic() - started < within_s
    assert "Traceback" not in err
    assert out == ""
    return err.splitlines()[-1]


def check_resumable(cwd: Path) -> None:
    """The run can go on: here to the end of the meta-step that it is in."""
    folder = RunFolder(cwd / "run")
    latest = folder.latest()
    assert latest is not None
    argv = ["--meta.meta_steps", str(latest + 1), *ALONE, "--runtime.stop_after_s", "null"]
    assert main(["resume", str(folder.path), *argv]) == 0
    assert folder.latest() == latest + 1


@pytest.mark.parametrize(
    ("runtime", "number", "status"),
    [
        (LOCAL, signal.SIGINT, EXIT_INTERRUPTED),
        # SIGTERM is below, and test_same_bits.py has Ray's Ctrl-C.
        pytest.param(RAY, signal.SIGTERM, EXIT_TERMINATED, marks=pytest.mark.chaos),
    ],
    ids=["local INT", "ray TERM"],
)
def test_a_signal_to_all_processes_leaves_a_resumable_run(
    runtime: list[str], number: signal.Signals, status: int, tmp_path: Path
) -> None:
    process = start("train", *LONG, *runtime, cwd=tmp_path)
    wait_until(RunFolder(tmp_path / "run").slot(0, 0).exists, process)
    os.killpg(process.pid, number)
    last = end(process, status=status, within_s=10)
    assert last.startswith("stopped; continue with: ")
    assert last.endswith("resume run")
    if runtime is LOCAL:  # it was not left at once, but stopped by itself
        assert (tmp_path / "run/.lock").read_bytes() == b""
    check_resumable(tmp_path)


@pytest.mark.parametrize("tasks", [LONG, SPREAD])
def test_a_run_that_is_asked_to_stop_leaves_a_snapshot(tasks: list[str], tmp_path: Path) -> None:
    # Tasks that last: none ends between the look and the signal.
    lasting = ["--task.agent_steps", "40000000"]
    seldom = ["--runtime.snapshot_every_s", "1000"]
    process = start("train", *tasks, *LOCAL, *lasting, *seldom, cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")

    def is_at_work() -> bool:
        live = read_live(folder.path)
        return live is not None and any(task.agent_steps > 100 for task in live.status.running)

    wait_until(is_at_work, process)
    os.killpg(process.pid, signal.SIGTERM)  # its environments' processes get it too
    last = end(process, status=EXIT_TERMINATED, within_s=10)
    assert last.startswith("stopped; continue with: ")
    assert last.endswith("resume run")
    assert (folder.path / ".lock").read_bytes() == b""
    (snapshot,) = folder.slots(0).glob("*.snapshot")
    assert decode_arrays(snapshot.read_bytes())[1]["content"]["n"] > 0


def test_a_second_ctrl_c_leaves_a_run_that_hangs(tmp_path: Path) -> None:
    process = start("train", *LONG, *LOCAL, cwd=tmp_path, program=("-c", HANGS))
    assert process.stdout is not None
    assert process.stdout.readline() == "hangs\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert end(process, status=EXIT_INTERRUPTED, within_s=2).endswith("resume run")
    check_resumable(tmp_path)


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_a_cluster_at_once(tmp_path: Path) -> None:
    process = start("train", *LONG, *RAY, cwd=tmp_path)
    wait_until(RunFolder(tmp_path / "run").slot(0, 0).exists, process)
    below = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    time.sleep(0.4)  # it ends its cluster, which takes longer
    process.send_signal(signal.SIGINT)
    assert end(process, status=EXIT_INTERRUPTED, within_s=2).endswith("resume run")
    deadline = time.monotonic() + 10
    while any(map(is_running, below)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not list(Path("/tmp").glob(f"leap_rl-{process.pid}-*")), "Ray's files are left behind"
    check_resumable(tmp_path)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_stops_when_its_time_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    timed = [*LOCAL, "--runtime.stop_after_s", "2", "--run_dir", str(tmp_path / "run")]
    assert main(["train", *LONG, *timed]) == EXIT_STOPPED
    assert time.monotonic() - started >= 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("stopped; continue with: ")
    check_resumable(tmp_path)


def test_what_fails_because_the_run_is_to_stop_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A batch system ends a run's processes together; this one may hear of it last.
    def run(*_: object, **__: object) -> None:
        raise RunFailedError("the parameter server died")

    monkeypatch.setattr(execution, "_run_rounds", run)
    argv = ["train", *DEBUG, *LOCAL, "--run_dir"]
    assert main([*argv, str(tmp_path / "alone")]) == EXIT_FAILED
    assert "the parameter server died" in capsys.readouterr().err

    def run_and_hear(*_: object, **__: object) -> None:
        subprocess.Popen(["sh", "-c", f"sleep 0.1; kill -TERM {os.getpid()}"])
        run()

    monkeypatch.setattr(execution, "_run_rounds", run_and_hear)
    assert main([*argv, str(tmp_path / "together")]) == EXIT_TERMINATED
    assert "stopped; continue with" in capsys.readouterr().err


def test_no_write_is_torn_in_the_local_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The signal comes in the middle of every write: each is finished before the run stops.
    calls: list[int] = []
    fsync = os.fsync

    def interrupt_and_sync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == which:
            os.kill(os.getpid(), signal.SIGINT)
        fsync(descriptor)

    short = [*BOWLS, "--meta.meta_steps", "2"]
    monkeypatch.setattr(os, "fsync", interrupt_and_sync)
    which, run = 0, tmp_path / "calm"
    assert main(["train", *short, "--run_dir", str(run)]) == 0
    created = 10  # the writes that make the folder; Python's own handler is at work there
    for which in range(created, len(calls), 3):
        calls.clear()
        run = tmp_path / str(which)
        assert main(["train", *short, "--run_dir", str(run)]) in (0, EXIT_INTERRUPTED)
        assert not list(run.glob("**/*.tmp")), which


# -- drivers that are killed ----------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
TRAIN = ["train", "--config", "debug", *LOCALLY, "--task.agent_steps", "400"]
TRAIN += ["--meta.meta_steps", "3", "--run_dir"]


def test_a_driver_that_is_killed_is_started_again(tmp_path: Path) -> None:
    calm = RunFolder(tmp_path / "calm")
    assert main([*TRAIN, str(calm.path)]) == 0
    process = start(*TRAIN, "run", "--runtime.max_driver_restarts", "1", cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")
    wait_until(lambda: (folder.latest() or 0) >= 1, process)
    (driver,) = descendants(process.pid)
    os.kill(driver, signal.SIGKILL)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert err.splitlines() == [
        "leap-rl: the driver was killed (SIGKILL); resuming run, restart 1 of 1"
    ]
    assert out.count("Meta-trained for 3 meta-steps.") == 1
    assert folder.read_state(3)["sha256"] == calm.read_state(3)["sha256"]


def test_a_driver_that_is_being_started_is_told_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_process = subprocess.Popen

    def start_as_the_signal_comes(words: list[str], **options: Any) -> subprocess.Popen[bytes]:
        signal.raise_signal(signal.SIGTERM)
        return start_process([sys.executable, "-c", "import time; time.sleep(60)"], **options)

    config = TrainConfig.from_yaml("debug", {"runtime.max_driver_restarts": 5})
    header = RunHeader(fingerprint="", init_sha256=None, made_by=())
    run = LoadedRun(folder=RunFolder(tmp_path), header=header, config=config)
    monkeypatch.setattr(subprocess, "Popen", start_as_the_signal_comes)
    status = supervise(run, Invocation(started_s=time.monotonic()))
    assert status == 128 + signal.SIGTERM


def test_a_restarted_driver_has_the_time_of_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not `runtime.stop_after_s` from its own start."""
    start_process, asked = subprocess.Popen, tmp_path / "asked"
    dies = f"import os, sys; open({str(asked)!r}, 'a').write(sys.stdin.read() + '\\n'); "
    dies += "os.kill(os.getpid(), 9)"
    words = [sys.executable, "-c", dies]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **given: start_process(words, **given))
    config = TrainConfig.from_yaml("debug", {"runtime.max_driver_restarts": 1})
    header = RunHeader(fingerprint="", init_sha256=None, made_by=())
    run = LoadedRun(folder=RunFolder(tmp_path), header=header, config=config)
    started_s = time.monotonic() - 100
    assert supervise(run, Invocation(started_s=started_s)) == 128 + signal.SIGKILL
    requests = [Request(**json.loads(line)["request"]) for line in asked.read_text().splitlines()]
    assert [request.started_s for request in requests] == [started_s, started_s]

    calls: list[Invocation] = []

    def note(_: LoadedRun, call: Invocation, **__: object) -> execution.Outcome:
        calls.append(call)
        return execution.Outcome(status=0)

    monkeypatch.setattr(execution, "carry_out", note)
    monkeypatch.setattr(resumption, "prepare", lambda *_, **__: run)
    monkeypatch.setattr(reading, "read_run", lambda *_: run)
    serve(requests[1], lambda row: None, started_s=time.monotonic())
    assert [call.started_s for call in calls] == [started_s]


ENDED = (
    "import json, os, sys; pipe = json.load(sys.stdin)['events']; "
    "os.write(pipe, (json.dumps({'event': 'Ended', 'status': 1, 'error': 'ERROR', 'message': "
    "'Ray is gone; stopped'}) + '\\n').encode()); sys.exit(1)"
)
LOST = ENDED.replace("ERROR", ClusterLostError.__name__)


@pytest.mark.parametrize(
    ("child", "joined", "runs", "told"),
    [
        (LOST, None, 3, "Ray is gone; resuming"),
        (
            "import sys; sys.exit(1)",
            None,
            3,
            "the driver ended without a word (exit status 1); res",
        ),
        ("import os; os._exit(0)", None, 3, "without a word (exit status 0); resuming"),
        (ENDED.replace("ERROR", RunFailedError.__name__), None, 1, ""),
        ("import os; os._exit(143)", None, 1, ""),  # asked to stop, twice
        (LOST, Joined(address="there", namespace="study"), 1, ""),  # with all of the study
    ],
)
def test_a_driver_is_restarted_where_something_ended_it(
    child: str,
    joined: Joined | None,
    runs: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    start_process, started = subprocess.Popen, list[None]()

    def start_child(_: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(None)
        return start_process([sys.executable, "-c", child], **options)

    monkeypatch.setattr(subprocess, "Popen", start_child)
    config = TrainConfig.from_yaml("debug", {"runtime.max_driver_restarts": 2})
    header = RunHeader(fingerprint="", init_sha256=None, made_by=())
    run = LoadedRun(folder=RunFolder(tmp_path), header=header, config=config)
    call = Invocation(started_s=time.monotonic(), joined=joined)
    if "Ended" in child:
        with pytest.raises(RunFailedError, match="Ray is gone; stopped"):
            supervise(run, call)
    else:
        assert supervise(run, call) == (143 if "143" in child else 1)
    assert len(started) == runs
    lines = capsys.readouterr().err.splitlines()
    assert sum(told in line for line in lines) == (runs - 1 if told else 0)


@pytest.mark.slow
def test_no_more_restarts_than_allowed_and_none_after_a_stop(tmp_path: Path) -> None:
    long = [*TRAIN, "run", "--task.agent_steps", "400000", "--runtime.max_driver_restarts", "1"]
    process = start(*long, cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")
    for life in (1, 2):
        lease = folder.slot(0, 0).with_suffix(".lease")
        wait_until(lambda: lease.exists() and folder.worker() is not None, process)  # noqa: B023
        os.kill(folder.worker().pid, signal.SIGKILL)  # type: ignore[union-attr]
        if life == 1:
            lease.unlink()
    _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGKILL
    assert "once more than 1 times, as runtime.max_driver_restarts allows" in err.splitlines()[-1]

    process = start("resume", "run", "--runtime.max_driver_restarts", "5", cwd=tmp_path)
    # The command itself works in the folder before it starts the driver.
    wait_until(lambda: (worker := folder.worker()) and worker.pid != process.pid, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == EXIT_TERMINATED, err
    assert "resuming" not in err


def test_the_container_that_compose_restarts_resumes_its_run(tmp_path: Path) -> None:
    """launch/docker-compose.yml says `restart: on-failure`; test_start.py has Kubernetes."""
    text = (ROOT / "launch/container/node").read_text()
    assert "rm -rf /tmp/ray\n" in text
    # What is removed there is the container's own; here it may be somebody's.
    node = tmp_path / "node"
    node.write_text(text.replace("/tmp/ray", f"{tmp_path}/ray"))
    for name, lines in (
        ("start-node", "exit 0"),
        ("leap-rl", f'echo "$@" >> {tmp_path}/calls; mkdir -p {tmp_path}/run; '
                    f"touch {tmp_path}/run/config.yaml; kill -KILL $$"),
    ):  # fmt: skip
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["sh", str(node), "head", str(tmp_path / "run"), "--config", "x.yaml"]
    for _ in range(2):
        done = subprocess.run(words, env=environment, check=False)
        assert done.returncode == -signal.SIGKILL
    address = "--runtime.address auto"
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"train --run_dir {tmp_path}/run {address} --config x.yaml",
        f"resume {tmp_path}/run {address}",
    ]


def test_a_run_tells_of_a_task_that_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(monitor, "BEGINS_WITHIN_S", 0.0)
    short = [*DEBUG, *LOCAL, "--task.agent_steps", "400", "--meta.meta_steps", "1"]
    argv = [*short, "--tracking.console", "plain", "--run_dir", str(tmp_path / "run")]
    assert main(["train", *argv]) == 0
    assert "(slot 0, trainer-0) has had no update for 0 minutes" in capsys.readouterr().err
