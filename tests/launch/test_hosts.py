"""A cluster of hosts as `launch/` starts it, and a run that is submitted from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from benchmarks.harness.differences import differences
from leap_rl.cli import main
from leap_rl.storage.run_folder import RunFolder
from tests.training.hosts import ROOT, Host, hosts, why_not

PORT = 8265
RAY = str(Path(sys.executable).parent / "ray")
SHORT = ["--task.games", '["pong", "carnival"]', "--task.agent_steps", "1600"]
SHORT += ["--meta.meta_steps", "2", "--meta.batch_size", "2"]
DEMO = ["--config", "demo", *SHORT]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(why_not() is not None, reason=f"{why_not()}"),
]


def start_node(host: Host, folder: Path, *words: str) -> None:
    """Start a node as the documents say, on a host with several addresses."""
    command = [str(ROOT / "launch/ray/start-node"), *words]
    command += [f"--node-ip-address={host.address}", f"--temp-dir={folder}/{host.address}"]
    host.start_node(command, folder / f"{host.address}.log")


@contextmanager
def tunnel(near: Host, far: Host, path: Path) -> Iterator[None]:
    """Let 127.0.0.1:8265 of one host be that of another."""
    script = str(Path(__file__).with_name("tunnel.py"))
    with ExitStack() as stack:
        for host, end in ((far, "far"), (near, "near")):
            words = host.words(sys.executable, script, end, str(path), str(PORT))
            process = stack.enter_context(subprocess.Popen(words))
            stack.callback(process.kill)
        time.sleep(1)
        yield


def on(host: Host, *words: str, timeout: float = 500) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        host.words(*words),
        env={**host.environment, "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{PORT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def submit(host: Host, *words: str) -> subprocess.CompletedProcess[str]:
    return on(host, sys.executable, str(ROOT / "launch/submit"), *words)


def listens_beyond_loopback(host: Host) -> set[str]:
    listening = on(host, "ss", "-Htln").stdout.splitlines()
    return {
        line.split()[3].rpartition(":")[2]
        for line in listening
        if not line.split()[3].startswith(("127.", "[::1]"))
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host, Host]]:
    """A head, a node for trainers, and a third host that is no node and has a tunnel."""
    with hosts(3) as (head, trainers, outside):
        folder = Path(head.environment["RAY_AUTH_TOKEN_PATH"]).parent
        os.chmod(folder / "token", 0o600)
        start_node(head, folder, "head")
        start_node(trainers, folder, "trainers", head.address, "--num-cpus=2")
        with tunnel(outside, head, folder / "tunnel"):
            yield head, trainers, outside


def test_a_submitted_run_comes_to_the_bits_of_this_machine(
    cluster: tuple[Host, Host, Host], tmp_path: Path
) -> None:
    _, trainers, outside = cluster
    run = tmp_path / "cluster"
    done = submit(outside, "--follow", "train", *DEMO, "--run_dir", str(run))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Meta-trained for 2 meta-steps." in done.stdout
    assert done.stderr == ""
    assert trainers.processes("ray::TrainerActor") == []  # they leave with the run
    alone = tmp_path / "alone"
    assert main(["train", *DEMO, "--run_dir", str(alone), "--runtime.kind", "local"]) == 0
    assert list(differences(RunFolder(alone), RunFolder(run))) == []


def test_a_job_that_is_stopped_ends_whole_and_is_resumed(
    cluster: tuple[Host, Host, Host], tmp_path: Path
) -> None:
    _, _, outside = cluster
    run = tmp_path / "run"
    long = [*DEMO, "--task.agent_steps", "16000"]
    started = submit(outside, "train", *long, "--run_dir", str(run))
    assert started.returncode == 0, started.stderr
    job = started.stdout.partition(":")[0]
    again = submit(outside, "train", *long, "--run_dir", str(run))
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith(f"{job}: runs already")
    deadline = time.monotonic() + 200
    while not list(run.glob("slots/*/*.lease")):
        assert time.monotonic() < deadline, on(outside, RAY, "job", "logs", job).stdout
        time.sleep(0.5)
    stopped = on(outside, RAY, "job", "stop", job)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    log = on(outside, RAY, "job", "logs", job).stdout
    assert "stopped; continue with: leap-rl resume" in log
    shorter = submit(outside, "--follow", "resume", str(run), "--meta.meta_steps", "1")
    assert shorter.returncode == 0, shorter.stdout
    assert shorter.stdout.startswith(f"{job[:-1]}2: submitting")


def test_nobody_reaches_the_job_server_but_through_the_tunnel(
    cluster: tuple[Host, Host, Host],
) -> None:
    head, _, outside = cluster
    assert str(PORT) not in listens_beyond_loopback(head)
    done = submit(outside, "--address", f"http://{head.address}:{PORT}", "resume", "/srv/runs/x")
    assert done.returncode == 2
    asked = on(
        outside, "curl", "-sm5", "-o/dev/null", "-w%{http_code}", f"127.0.0.1:{PORT}/api/jobs/"
    )
    assert asked.stdout == "401"
