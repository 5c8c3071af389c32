"""Addresses that a stranger's config names: no program is run, and no server asked, for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from fsspec import available_protocols

from leap_rl.core import urls
from leap_rl.core.urls import (
    check_address,
    check_addresses,
    local_path,
    redacted,
    refuse_password,
)
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.initializations import find_group
from leap_rl.storage.object_store import ObjectStore, read_file
from leap_rl.storage.open_run import open_run
from tests.commands import CATCH, LOCALLY, QUIET, Refused, parsed
from tests.security.runs import BOWLS

SECRET = "hf_SECRET"
CHAINS = ["reference://a::{url}/leak.safetensors", "simplecache::{url}/leak.safetensors"]
SCHEMES = ["github://me/you/x.safetensors", "ftp://127.0.0.1/x.safetensors", "S3://bucket/x"]


class Listener(ThreadingHTTPServer):
    """A stranger's server, which notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        template = {"u": f"{self.server.url}/stolen-{{{{c}}}}"}
        body = json.dumps({"version": 1, "templates": template, "refs": {"a": ["{{u(c='x')}}"]}})
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body.encode())

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with Listener() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


DOORS = {
    "meta.init": ["train", *BOWLS, "--meta.init", "HERE", "--run_dir", "NEW"],
    "config": ["train", *BOWLS, "--config", "CONFIG", "--run_dir", "NEW"],
    "run_dir": ["train", *BOWLS, "--run_dir", "HERE"],
    "learn": ["learn", *CATCH, *LOCALLY, "--init", "HERE", "--run_dir", "NEW"],
    "evaluate": ["evaluate", *CATCH, *QUIET, "--init", "HERE", "--run_dir", "NEW"],
    "evaluate a group": ["evaluate", *CATCH, *QUIET, "--init", "a=HERE", "--run_dir", "NEW"],
    "resume": ["resume", "HERE"],
    "fork": ["fork", "RUN", "--at", "1", "--run_dir", "HERE"],
    "verify": ["verify", "HERE"],
    "report": ["report", "RUN", "HERE"],
    "watch": ["watch", "HERE", "--once"],
    "export": ["export", "HERE", "--out", "NEW"],
    "push": ["push", "HERE", "me/mine"],
    "study": ["study", "STUDY", "--out", "NEW"],
}


def test_of_all_schemes_that_fsspec_knows_ours_alone_are_opened() -> None:
    ours = {"file", "http", "https", "s3", "gs", "hf"}
    assert {*urls.SCHEMES} == ours
    others = {*available_protocols()} - ours - {"memory"}
    assert {"reference", "github", "ssh"} <= others
    for scheme in others:
        with pytest.raises(ValueError, match="must be a path or one address"):
            check_address(f"{scheme}://a/b")


@pytest.mark.parametrize(
    ("check", "given"),
    [
        (local_path, "file://elsewhere/srv/runs/mine"),
        (refuse_password, "https://host/a?next=https%3A%2F%2Fme%3Asecret%40other%2Fb"),
        (check_addresses, {"run_dir": "simplecache::/srv/runs/mine"}),
    ],
)
def test_what_no_address_may_be(check: Callable[[Any], object], given: object) -> None:
    with pytest.raises(ValueError, match="must "):
        check(given)


@pytest.mark.parametrize("address", [*CHAINS, *SCHEMES])
@pytest.mark.parametrize("door", DOORS)
def test_no_door_opens_an_address_that_runs_code(
    door: str, address: str, run: Path, tmp_path: Path, listener: Listener, refused: Refused
) -> None:
    here = address.format(url=listener.url)
    config, study = tmp_path / "config.yaml", tmp_path / "study.yaml"
    config.write_text(yaml.dump({"meta": {"init": here}}))
    arms = {"leap": {}, "theirs": {"meta.init": here}}
    options: dict[str, Any] = {"games": ["CartPole-v1"], "held_out": ["Acrobot-v1"], "arms": arms}
    study.write_text(yaml.dump({**options, "task": {"gymnasium": {"pad": "zeros"}}, "quick": True}))
    named = {"NEW": tmp_path / "new", "CONFIG": config, "STUDY": study, "RUN": run}
    words = [str(named.get(word, word)) for word in DOORS[door]]
    line = refused(*[word.replace("HERE", here) for word in words])
    assert "begins with file://, http://, https://, s3://, gs://, hf://" in line
    assert SECRET not in line
    assert listener.requests == []
    assert not (tmp_path / "new" / "checkpoints").exists()


@pytest.mark.parametrize("address", CHAINS)
def test_the_readers_themselves_open_no_chain(address: str, listener: Listener) -> None:
    for read in (read_file, open_run, find_group, ObjectStore):
        with pytest.raises(ValueError, match="none within another"):
            read(address.format(url=listener.url))
    assert listener.requests == []
    assert read_file(f"{listener.url}/leak.safetensors").startswith(b'{"version"')
    assert set(listener.requests) == {"/leak.safetensors"}


@pytest.mark.parametrize(
    ("address", "scheme"),
    [
        ("runs/mine@12", "file"),
        ("pretrained:minatar-leap", "file"),
        ("file:///srv/runs/a", "file"),
        ("https://h/x.safetensors?X-Amz-Signature=a", "https"),
        ("http://[::1]:80/x.safetensors", "http"),
        ("s3://bucket/mine?region=eu-west-1", "s3"),
        ("gs://bucket/mine", "gs"),
        ("hf://me/mine@v1", "hf"),
        ("memory://x/y", "memory"),
    ],
)
def test_addresses_that_are_opened(address: str, scheme: str) -> None:
    assert check_address(address) == scheme


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("reference::/srv/a.json", "none within another"),
        ("file:///a::file:///b", "none within another"),
        ("zip://x::memory://a", "none within another"),
        ("memory://a::memory://b", "none within another"),
        ("local:///etc/passwd", "leap_rl opens no others"),
        ("abfs://a/b", "leap_rl opens no others"),
        ("://x", "leap_rl opens no others"),
        ("HTTP://h/x", "leap_rl opens no others"),
        ("https://me:secret@h/x", "no password"),
        ("runs/mi\0ne", "must hold no NUL"),
        ("gs://bucket/mine?endpoint_override=127.0.0.1:9", "would send your token"),
        ("gs://bucket/mine?scheme=http", "would send your token"),
    ],
)
def test_addresses_that_are_not(address: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refusal:
        check_address(address)
    assert "\n" not in str(refusal.value)
    assert "\0" not in str(refusal.value)
    assert "secret" not in str(refusal.value)


MEGABYTE = 2**20


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", ["y", "y@", "://", "a://", "://a:b", "https://a:b", "a+", "[1"])
def test_long_texts_are_looked_through_at_once(part: str) -> None:
    text = part * (MEGABYTE // len(part))
    assert len(redacted(text)) <= len(text)
    for check in (check_address, refuse_password):
        with suppress(ValueError):
            check(text)


def test_addresses_within_one_another_are_redacted_so_far() -> None:
    chain = "zip://" * 100 + "https://me:secret@h/x?key=secret"
    assert redacted(chain) == "zip://" * 100 + "https://...@h/x?..."
    assert redacted(f"zip://{chain} is there") == "zip://... is there"
    with pytest.raises(ValueError, match=r"^zip://\.\.\.: must hold at most 100 addresses"):
        refuse_password(f"zip://{chain}")
    longest = "a" * 60 + "://me:secret@h/x?key=secret"
    assert redacted(longest) == "a" * 60 + "://...@h/x?..."


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["{long}: 1", "seed: {long}", "meta: {{init: '{chain}'}}"])
def test_a_config_of_a_long_word_is_one_short_line(
    text: str, tmp_path: Path, refused: Refused
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text.format(long="y" * 10**6, chain="a://" * 2000))
    assert len(refused("train", "--config", config, "--run_dir", tmp_path / "new")) < 1000


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("tracking.wandb_project", "https://me:hf_SECRET@h/x", "must hold no password"),
        ("tracking.wandb_tags", '["a", "https://me:hf_SECRET@h/x"]', "must hold no password"),
        ("run_dir", "reference::/srv/a.json", "none within another"),
        ("meta.init", "local:///etc/passwd", "leap_rl opens no others"),
    ],
)
def test_addresses_are_checked_where_a_config_is_read(option: str, value: str, says: str) -> None:
    with pytest.raises(ValueError, match=rf"^{option} = .*{says}") as refusal:
        parsed(TrainConfig, f"--{option}={value}")
    assert SECRET not in str(refusal.value)
