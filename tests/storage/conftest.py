"""Machines that share an object store, and an undisturbed run."""

from __future__ import annotations

import logging
import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from moto.server import ThreadedMotoServer

from leap_rl.cli import main
from leap_rl.storage import run_lock, store_lock
from leap_rl.storage.run_folder import RunFolder
from tests.storage.short_runs import BOWLS


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Become another machine, by its name; returns where its working copies are."""
    monkeypatch.setattr(store_lock, "SETTLE_S", 0.0)

    def become(name: str) -> Path:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        monkeypatch.setattr(socket, "gethostname", lambda: name)
        monkeypatch.setattr(run_lock, "boot_id", lambda: name)
        return tmp_path / name

    become("first")
    return become


@pytest.fixture
def url(machine: object) -> str:
    """Where no run is yet, in the memory of this process."""
    return f"memory://{uuid4().hex}/mine"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of a server that speaks S3."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it names each request
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def s3_url(s3_server: str, machine: object, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where no run is yet, on that server, as programs of the cloud find it."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "mine",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = f"b{uuid4().hex}"
    urllib.request.urlopen(urllib.request.Request(f"{s3_server}/{bucket}", method="PUT")).close()
    return f"s3://{bucket}/runs/mine"


@pytest.fixture(params=["memory", "s3"])
def any_url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("url" if request.param == "memory" else "s3_url")
    return found


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Three meta-steps on a disk."""
    run = tmp_path_factory.mktemp("straight") / "run"
    assert main(["train", *BOWLS, "--meta.meta_steps", "3", "--run_dir", str(run)]) == 0
    return RunFolder(run)
