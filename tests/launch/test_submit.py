"""What `launch/submit` sends and refuses; tests/launch/test_hosts.py submits to a real cluster."""

from __future__ import annotations

import io
import logging
import re
import runpy
import shlex
import socket
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime
from tests.launch.job_server import TOKEN, JobServer, job_server

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "launch/submit"))
main: Callable[[list[str]], int] = SCRIPT["main"]

DEMO = ["train", "--config", str(ROOT / "configs/demo.yaml"), "--run_dir", "/srv/runs/demo"]
ID = "leap-rl-demo-a480df61"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[JobServer]:
    """A job server whose address and token this user has."""
    make_ray_runtime(trainers=1, address=LOCAL)  # what Ray must find when it is imported
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # which is not to be sent the token
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "elsewhere")
    # Ray's logger writes to the stderr of the test that imported it first, which is closed by now.
    monkeypatch.setattr(logging, "raiseExceptions", False)
    # Both remember what they found first: a token, and a proxy.
    monkeypatch.setattr(urllib.request, "_opener", None)
    from ray._private.authentication_test_utils import reset_auth_token_state

    reset_auth_token_state()
    with job_server() as served:
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", served.address)
        yield served
    reset_auth_token_state()


def error_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a refusal says."""
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("launch/submit: ")
    assert said.count("\n") == 1
    return said


def test_a_config_goes_along_and_the_rest_of_the_command_as_it_is(server: JobServer) -> None:
    assert main([*DEMO, "--task.games", '["pong", "carnival"]']) == 0
    (job,) = server.submitted
    assert job["submission_id"] == f"{ID}-1"
    assert job["entrypoint"] == (
        "leap-rl train --config demo.yaml --run_dir /srv/runs/demo "
        """--task.games '["pong", "carnival"]'"""
    )
    assert job["runtime_env"]["env_vars"] == {"RAY_JOB_STOP_WAIT_TIME_S": "30"}
    (package,) = server.packages
    with zipfile.ZipFile(io.BytesIO(package)) as packed:
        assert packed.namelist() == ["demo.yaml"]
        assert packed.read("demo.yaml") == (ROOT / "configs/demo.yaml").read_bytes()
    assert TOKEN not in str(job)


def test_configs_of_one_name_are_both_sent(server: JobServer, tmp_path: Path) -> None:
    words = ["train", "--run_dir", "/srv/runs/demo"]
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        (tmp_path / f"{number}/config.yaml").write_text(f"seed: {number}\n")
        words += ["--config", str(tmp_path / f"{number}/config.yaml")]
    assert main(words) == 0
    sent = shlex.split(server.submitted[0]["entrypoint"])
    with zipfile.ZipFile(io.BytesIO(server.packages[0])) as packed:
        texts = [packed.read(sent[i + 1]) for i, word in enumerate(sent) if word == "--config"]
    assert texts == [b"seed: 0\n", b"seed: 1\n", b"seed: 2\n"]


@pytest.mark.parametrize(
    "words",
    [["resume", "/srv/runs/demo/", "--meta.meta_steps", "9"], ["resume", "s3://bucket/runs/demo"]],
)
def test_a_command_without_files_takes_none_along(server: JobServer, words: list[str]) -> None:
    assert main(words) == 0
    (job,) = server.submitted
    # The run's, however its folder is spelled.
    assert words[1].startswith("s3:") or job["submission_id"] == f"{ID}-1"
    assert job["entrypoint"] == " ".join(["leap-rl", *words])
    assert "working_dir" not in job["runtime_env"]
    assert server.packages == []


def test_submitting_a_running_command_again_starts_nothing(
    server: JobServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(DEMO) == main(DEMO) == 0
    assert len(server.submitted) == 1
    assert f"{ID}-1: runs already: leap-rl train" in capsys.readouterr().out


def test_a_job_submitted_meanwhile_counts_as_this_one(
    server: JobServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add(f"{ID}-1", "PENDING", "leap-rl resume /srv/runs/demo")
    monkeypatch.setattr(
        server,
        "get",
        lambda path: (200, []) if path == "/api/jobs/" else JobServer.get(server, path),
    )
    assert main(["resume", "/srv/runs/demo"]) == 0
    assert server.submitted == []


def test_a_command_that_has_ended_is_submitted_under_the_next_number(server: JobServer) -> None:
    server.add(f"{ID}-1", "FAILED", "leap-rl train")
    server.add(f"{ID}-2", "STOPPED", "leap-rl resume /srv/runs/demo")
    server.add("leap-rl-demo-00000000-3", "RUNNING", "leap-rl resume /elsewhere/demo")
    assert main(["resume", "/srv/runs/demo"]) == 0
    assert [job["submission_id"] for job in server.submitted] == [f"{ID}-3"]


def test_another_command_on_a_run_that_is_at_work_is_refused(
    server: JobServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add(f"{ID}-1", "RUNNING", "leap-rl train --run_dir /srv/runs/demo")
    said = error_of(["resume", "/srv/runs/demo"], capsys)
    assert f"ray job stop {ID}-1" in said
    assert server.submitted == []


@pytest.mark.parametrize(
    ("variables", "server_says", "expected"),
    [
        ({"RAY_AUTH_TOKEN": "wr0ng"}, {}, ["does not take this token"]),
        (
            {"RAY_AUTH_TOKEN_PATH": "/nowhere/token"},
            {},
            ["/nowhere/token: no token there", "launch/make-token"],
        ),
        ({}, {"mode": "disabled"}, ["asks for no token"]),
        (
            {},
            {"refuses": "Traceback (most ...):\n  File ...\nValueError: no room\n\n"},
            ["Ray does not take the job: ", "no room"],
        ),
    ],
)
def test_each_refusal_is_one_line_that_does_not_show_the_token(
    variables: dict[str, str],
    server_says: dict[str, str],
    expected: list[str],
    server: JobServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name, value in server_says.items():
        setattr(server, name, value)
    said = error_of(DEMO, capsys)
    assert all(part in said for part in expected), said
    assert "wr0ng" not in said
    assert server.submitted == []


def test_without_a_job_server_the_tunnel_is_explained(
    server: JobServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert "ssh -N -L 8265" in error_of(["--address", address, *DEMO], capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--address", "10.0.0.1:8265", *DEMO], "must be a URL"),
        (["--address", "http://10.0.0.1:8265", *DEMO], "cross the network in clear"),
        (["train"], "--run_dir: missing"),
        (["train", "--run_dir", "runs/demo"], "must be absolute, as /srv/runs/demo"),
        (["train", "--run_dir=runs/demo"], "must be absolute"),
        (["evaluate", "--init", "/srv/runs/demo"], "--out: missing"),
        (["evaluate", "--out", "runs/eval"], "--out runs/eval: must be absolute"),
        (["evaluate", "--run_dir", "runs/eval"], "--run_dir runs/eval: must be absolute"),
        (["resume"], "RUN: missing"),
        (["resume", "--meta.meta_steps", "9"], "RUN: missing"),
        (["train", "--config", "none.yaml", "--run_dir", "/srv/demo"], "no such file here"),
        (["train", "--config=none.yaml", "--run_dir", "/srv/demo"], "no such file here"),
    ],
)
def test_invalid_arguments_are_refused(
    server: JobServer, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in error_of(words, capsys)
    assert server.submitted == []


def test_the_ids_in_the_documents_are_those_that_come_out() -> None:
    text = (ROOT / "docs/launch.md").read_text()
    ids = set(re.findall(r"leap-rl-paper-[0-9a-f]+-[0-9]+", text))
    assert ids == {f"{SCRIPT['run_name']('/srv/runs/paper')}-1"}
