"""The clusters of `launch/ray` grow and shrink: their bounds, on machines that Ray fakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.launch.manifests import read
from tests.launch.test_hosts import on, start_node
from tests.training.hosts import Host, hosts, why_not

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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(why_not() is not None, reason=f"{why_not()}"),
]


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
