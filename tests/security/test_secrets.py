"""Keys, passwords and signed URLs are neither kept nor shown."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leap_rl.cli import EXIT_USAGE, main
from leap_rl.core.machine import descendants
from leap_rl.core.urls import redacted
from leap_rl.storage.run_folder import RunFolder
from tests.commands import contents
from tests.security.runs import BOWLS, files_below, make

pytestmark = pytest.mark.usefixtures("without_plots")


SECRETS = {
    "WANDB_API_KEY": "c0ffee" * 6 + "c0de",
    "RAY_AUTH_TOKEN": "5ec2e7" * 10 + "beef",
    "AWS_SECRET_ACCESS_KEY": "5ec2e7AWS/canary+0123456789abcdefghijklm",
}


def leaks(where: str, content: bytes, secrets: dict[str, str]) -> set[str]:
    return {f"{name} in {where}" for name, value in secrets.items() if value.encode() in content}


@pytest.mark.parametrize("runtime", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_secrets_of_the_environment_go_nowhere(runtime: str, tmp_path: Path) -> None:
    steps = {"local": "40", "ray": "40000"}[runtime]  # the time to look around
    words = ["train", *BOWLS, "--runtime.kind", runtime, "--task.agent_steps", steps]
    words += ["--tracking.wandb", "offline", "--tracking.tensorboard", "true"]
    words += ["--tracking.console", "plain", "--run_dir", str(tmp_path / "run")]
    output = tmp_path / "output"
    with open(output, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "leap_rl", *words],
            cwd=tmp_path,
            env={**os.environ, **SECRETS},
            stdout=log,
            stderr=log,
        )
    secrets, found, seen = dict(SECRETS), set(), set()
    while process.poll() is None:
        for folder in Path("/tmp").glob(f"leap_rl-{process.pid}-*"):
            for path, content in files_below(folder):
                if path == folder / "token":
                    secrets["own token"] = content.decode() or "not written yet"
                    continue
                seen.add(path.name)
                found |= leaks(str(path), content, secrets)
        for pid in (process.pid, *descendants(process.pid)):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            seen.add(line.split(b"\0")[0].decode())
            found |= leaks(f"command line {line!r}", line, secrets)
        time.sleep(0.2)
    assert process.returncode == 0, output.read_text()
    for path, content in files_below(tmp_path):
        seen.add(path.suffix)
        found |= leaks(str(path), content, secrets)
    assert not found
    assert {".wandb", ".jsonl", ".yaml", ".safetensors"} <= seen
    if runtime == "ray":
        assert "own token" in secrets
        assert {"raylet.out", "gcs_server.out", "ray::ServerActor"} <= {
            name.partition(".run")[0] if name.startswith("ray::") else name for name in seen
        }, seen


SECRET = "c0ffee5ec2e7"
PASSWORD = f"http://me:{SECRET}@127.0.0.1:9/x"


@pytest.mark.parametrize(
    "words",
    [
        ["resume", PASSWORD],
        ["watch", PASSWORD],
        ["report", PASSWORD],
        ["report", "RUN", "--out", PASSWORD],
        ["fork", PASSWORD, "--at", "1"],
        ["fork", "RUN", "--at", "1", "--run_dir", PASSWORD],
        ["fork", "RUN", "--at", "1", "--meta.init", PASSWORD],
        ["resume", "RUN", "--meta.init", PASSWORD],
        ["train", *BOWLS, "--run_dir", PASSWORD],
        ["train", *BOWLS, "--run_dir", f"s3://me:{SECRET}@bucket/mine"],
        ["train", *BOWLS, "--run_dir", f"s3://{SECRET}@bucket/mine"],
        ["train", *BOWLS, "--meta.init", PASSWORD],
        ["train", *BOWLS, "--meta.init", f"http://me:{SECRET}/1@127.0.0.1:9/x"],
        ["train", *BOWLS, "--meta.init", f"simplecache::{PASSWORD}"],
        ["train", *BOWLS, "--runtime.address", PASSWORD],
        ["learn", "--init", PASSWORD],
        ["evaluate", "--init", PASSWORD],
        ["evaluate", "--init", f"{PASSWORD}.safetensors"],
        ["evaluate", "--init", f"s3://me:{SECRET}@bucket/mine@12"],
    ],
    ids=lambda words: " ".join(words[:1] + words[-2:]).replace(SECRET, "..."),
)
def test_a_url_with_a_password_is_refused_and_not_shown(
    words: list[str],
    stopped: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = contents(stopped)
    assert main([str(stopped) if word == "RUN" else word for word in words]) == EXIT_USAGE
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
    assert len(told.err.splitlines()) == 1
    assert "...@" in told.err
    assert not list(tmp_path.iterdir())
    assert contents(stopped) == before


@pytest.fixture
def presigned(stopped: Path) -> Iterator[str]:
    """A URL that is served to whoever has the secret in its query."""
    content = (stopped / "checkpoints/000002/initialization.safetensors").read_bytes()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == f"/a.safetensors?X-Amz-Signature={SECRET}"
            self.send_response(200 if known else 403)
            self.send_header("Content-Length", str(len(content) if known else 0))
            self.end_headers()
            if known and self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a.safetensors?X-Amz-Signature={SECRET}"
        server.shutdown()


@pytest.mark.parametrize("wrong", [False, True])
def test_the_secret_of_a_presigned_url_is_neither_kept_nor_shown(
    wrong: bool, presigned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if wrong:
        presigned = presigned.replace("/a.", "/b.")
    shown = ["--tracking.tensorboard", "true", "--tracking.wandb", "offline"]
    status = make(tmp_path / "run", "--meta.meta_steps", "1", "--meta.init", presigned, *shown)
    assert status == (EXIT_USAGE if wrong else 0)
    if not wrong:
        assert RunFolder(tmp_path / "run").read_config()["meta"]["init"] == (
            presigned.partition("?")[0] + "?..."
        )
        assert main(["resume", str(tmp_path / "run"), "--meta.meta_steps", "2"]) == 0
        assert main(["report", str(tmp_path / "run")]) == 0
        assert main(["resume", str(tmp_path / "run"), "--meta.init", presigned]) == EXIT_USAGE
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
    found = [path for path, content in files_below(tmp_path) if SECRET.encode() in content]
    assert not found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://h/x?X-Amz-Signature=a#b", "https://h/x?..."),
        ("a 'https://h/x?sig=a' b", "a 'https://h/x?...' b"),
        ("https://h/x#a", "https://h/x?..."),
        ("https://u:p@h/x", "https://...@h/x"),
        ("https://u:p/q@h/x", "https://...@h/x"),
        ("https://u@h:8/x", "https://...@h:8/x"),
        ("https://h:8/x@12", "https://h:8/x@12"),
        ("s3://b/mine@12", "s3://b/mine@12"),
        ("s3://b/mine?region=eu-west-1", "s3://b/mine?region=eu-west-1"),
        ("s3://b/mine?X-Amz-Signature=a", "s3://b/mine?..."),
        ("s3://b/mine?endpoint_override=http://u:p@h", "s3://b/mine?..."),
        ("simplecache::https://u:p@h/x?a", "simplecache::https://...@h/x?..."),
        ("zip://x::https://u:p@h/x?a=b", "zip://x::https://...@h/x?..."),
        ("zip://x::https://h:80/x@12", "zip://x::https://h:80/x@12"),
        ("runs/mine?a", "runs/mine?a"),
    ],
)
def test_what_is_shown_of_a_url(text: str, expected: str) -> None:
    assert redacted(text) == expected
    assert redacted(expected) == expected
