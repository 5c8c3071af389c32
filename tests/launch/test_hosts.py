"""Clusters as `launch/` starts them: runs are submitted from outside, and they grow and shrink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.harness.differences import differences
from leap_rl.cli import main
from leap_rl.storage.run_folder import RunFolder
from tests.launch.manifests import read
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


# -- clusters that grow, on machines that Ray fakes -----------------------------------------------

HEAD = "f" * 51 + "00000"
FAKE = {
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": HEAD,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
}

LOOK = """
import sys, time, ray

ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
hold = ray.remote(lambda: time.sleep(600))
wanted = [hold.remote() for _ in range(int(sys.argv[2]))]  # a core each
deadline, most = time.monotonic() + 200, 0
while True:
    cores = [int(one["Resources"].get("CPU", 0)) for one in ray.nodes() if one["Alive"]]
    machines = sum(number > 0 for number in cores)
    most = max(most, machines)
    if machines == int(sys.argv[1]) or time.monotonic() > deadline:
        break
    time.sleep(0.5)
time.sleep(float(sys.argv[3]))  # does it stay so?
cores = [int(one["Resources"].get("CPU", 0)) for one in ray.nodes() if one["Alive"]]
print(sorted(number for number in cores if number), most)
"""


def faked(config: dict[str, Any], address: str) -> dict[str, Any]:
    """The same cluster, on processes instead of machines."""
    config["provider"] = {
        "type": "external",
        "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
        "launch_multiple": True,
        "head_node_id": HEAD,
        "gcs_address": address,
    }
    types = config["available_node_types"]
    for node_type in types.values():
        node_type["node_config"] = {}
    config["head_node_type"] = "ray.head.default"  # which Ray's fake takes for granted
    types["ray.head.default"] = types.pop("head")
    config["idle_timeout_minutes"] = 0.2
    config["file_mounts"] = {}
    config["cluster_synced_files"] = []  # as `ray up` fills it in
    return config


@pytest.fixture(params=["ray/aws.yaml", "ray/gcp.yaml"])
def head(request: pytest.FixtureRequest) -> Iterator[Host]:
    with hosts(1) as (host,):
        folder = Path(host.environment["RAY_AUTH_TOKEN_PATH"]).parent
        os.chmod(folder / "token", 0o600)
        path = folder / "cluster.yaml"
        path.write_text(yaml.safe_dump(faked(read(request.param), f"{host.address}:6379")))
        host.environment.update(FAKE)
        start_node(host, folder, "head", f"--autoscaling-config={path}")
        yield host


def machines(host: Host, count: int, cores: int = 0, wait_s: float = 0.0) -> str:
    """Wait until the cluster has so many machines; returns the cores of each, and the most seen."""
    done = on(host, sys.executable, "-c", LOOK, str(count), str(cores), str(wait_s))
    assert done.returncode == 0, done.stderr
    (said,) = (line for line in done.stdout.splitlines() if line.startswith("["))  # not Ray
    return said


def test_it_grows_for_a_runs_trainers_within_its_bounds_and_shrinks_again(
    head: Host, tmp_path: Path
) -> None:
    assert machines(head, 0) == "[] 0"
    words = [sys.executable, "-m", "leap_rl", "train", "--run_dir", str(tmp_path / "run")]
    words += ["--config", "debug", "--task.agent_steps", "200000"]
    words += ["--runtime.trainers", "5", "--runtime.address", f"{head.address}:6379"]
    with subprocess.Popen(head.words(*words), env=head.environment, cwd=tmp_path) as run:
        assert machines(head, 2) == "[4, 4] 2"
        assert run.wait(timeout=400) == 0
    state = json.loads((tmp_path / "run/checkpoints/000003/state.json").read_text())
    assert state
    assert machines(head, 0).startswith("[]")
    assert machines(head, 4, cores=40, wait_s=15) == "[4, 4, 4, 4] 4"
