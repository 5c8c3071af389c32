from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RAY = """#!/bin/sh
env | grep ^RAY_
printf '%s\\n' "$@"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A checkout whose `ray` prints what it is given, and a token."""
    scripts = tmp_path / "leap_rl" / "launch" / "ray"
    scripts.mkdir(parents=True)
    shutil.copy(ROOT / "launch/ray/start-node", scripts)
    ray = tmp_path / "leap_rl" / ".venv" / "bin" / "ray"
    ray.parent.mkdir(parents=True)
    ray.write_text(RAY)
    ray.chmod(0o755)
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("0" * 64)
    token.chmod(0o600)
    return tmp_path


def start_node(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(home / "leap_rl/launch/ray/start-node"), *words],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", **more},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_head_shows_its_dashboard_to_itself_alone_and_has_no_trainers(home: Path) -> None:
    done = start_node(home, "head", "--node-ip-address=10.0.0.1")
    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert said[said.index("start") :] == [
        "start",
        "--disable-usage-stats",
        "--object-store-memory=500000000",
        "--head",
        "--port=6379",
        "--num-cpus=0",
        "--dashboard-host=127.0.0.1",
        "--dashboard-port=8265",
        "--include-dashboard=true",
        "--node-ip-address=10.0.0.1",
    ]
    assert {
        "RAY_AUTH_MODE=token",
        "RAY_USAGE_STATS_ENABLED=0",
        "RAY_health_check_period_ms=2000",
        "RAY_health_check_failure_threshold=3",
        "RAY_grpc_client_keepalive_timeout_ms=10000",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=10",
    } <= set(said)


@pytest.mark.parametrize(
    ("address", "joined"), [("10.0.0.1", "10.0.0.1:6379"), ("head:6400", "head:6400")]
)
def test_a_node_for_trainers_joins_the_head(home: Path, address: str, joined: str) -> None:
    done = start_node(home, "trainers", address, "--num-cpus=8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [f"--address={joined}", "--num-cpus=8"]


def test_tokens_cannot_be_turned_off_and_what_else_is_set_stays(home: Path) -> None:
    done = start_node(home, "head", RAY_AUTH_MODE="disabled", RAY_health_check_period_ms="9000")
    assert {"RAY_AUTH_MODE=token", "RAY_health_check_period_ms=9000"} <= set(
        done.stdout.splitlines()
    )


def test_a_cluster_without_a_token_is_not_started(home: Path) -> None:
    token = home / ".ray/auth_token"
    token.unlink()
    done = start_node(home, "head")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no token there; make one with launch/make-token" in done.stderr
    token.touch(mode=0o600)  # empty
    assert start_node(home, "head").returncode == 2


def test_a_token_that_others_can_read_is_refused(home: Path) -> None:
    token = home / ".ray/auth_token"
    token.chmod(0o640)
    done = start_node(home, "trainers", "10.0.0.1")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"chmod 600 {token}" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "usage"),
        (["worker"], "must be head or trainers"),
        (["trainers"], "the head's address is missing"),
        (["trainers", "--num-cpus=2"], "the head's address is missing"),
    ],
)
def test_what_cannot_be_meant_is_refused(home: Path, words: list[str], said: str) -> None:
    done = start_node(home, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_without_ray_it_says_so(home: Path) -> None:
    shutil.rmtree(home / "leap_rl/.venv")
    done = start_node(home, "head")
    assert done.returncode == 2
    assert "source .venv/bin/activate" in done.stderr


def test_help_says_what_is_open_to_whom(home: Path) -> None:
    done = start_node(home, "--help")
    assert done.returncode == 0
    assert "through SSH" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nfs4"], "takes the kind"),
        (["nfs4", "fs-EDIT.efs.us-west-2.amazonaws.com:/"], "name your file system"),
        (["nfs", "EDIT:/runs"], "name your file system"),
    ],
)
def test_a_file_system_that_was_not_named_is_not_mounted(words: list[str], said: str) -> None:
    done = subprocess.run(
        [str(ROOT / "launch/ray/mount-runs"), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr
