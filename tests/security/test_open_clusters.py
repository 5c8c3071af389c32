"""A cluster elsewhere is joined only if it asks for a token."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from leap_rl.core.errors import RunFailedError
from leap_rl.training.runtime.ray.security import (
    is_loopback,
    refuse_open_cluster,
    refuse_without_token,
)
from tests.security.runs import lines_of, make

pytestmark = pytest.mark.usefixtures("without_plots")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        *(("127.0.0.1:6379", True), ("127.8.8.8:1", True), ("[::1]:6379", True)),
        *(("localhost:6379", True), ("10.77.0.1:6379", False), ("0.0.0.0:6379", False)),
        *(("[fe80::1]:6379", False), ("no-such-host.invalid:6379", False)),
    ],
)
def test_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) == expected


@pytest.mark.parametrize("mode", ["disabled", "", "Tokens"])
def test_a_cluster_elsewhere_is_not_joined_without_a_token(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    refuse_without_token("127.0.0.1:6379")
    ray = ["--runtime.kind", "ray", "--runtime.address", "10.77.0.1:6379"]
    assert make(tmp_path / "run", *ray) == 1
    (line,) = lines_of(capsys)
    assert line.startswith("leap-rl: runtime.address = 10.77.0.1:6379: RAY_AUTH_MODE is ")
    assert "RAY_AUTH_MODE=token" in line


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[grpc.StatusCode | None]]]:
    """The address of a pretended head, and what it answers to whoever has no token."""
    answers: list[grpc.StatusCode | None] = [None]

    def check_alive(request: bytes, context: grpc.ServicerContext) -> bytes:
        if answers[0] is not None:
            context.abort(answers[0], "no token")
        return b""  # a reply without fields

    method = grpc.unary_unary_rpc_method_handler(check_alive)
    service = "ray.rpc.NodeInfoGcsService"
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {"CheckAlive": method})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr("leap_rl.training.runtime.ray.security.is_loopback", lambda address: False)
    yield f"127.0.0.1:{port}", answers
    server.stop(None)


def test_a_cluster_elsewhere_that_asks_for_no_token_is_not_joined(
    head: tuple[str, list[grpc.StatusCode | None]],
) -> None:
    address, answers = head
    with pytest.raises(RunFailedError, match="the cluster asks for no token"):
        refuse_open_cluster(address)
    answers[0] = grpc.StatusCode.INTERNAL  # whatever that is, it is no question for a token
    with pytest.raises(RunFailedError, match="the cluster asks for no token"):
        refuse_open_cluster(address)
    answers[0] = grpc.StatusCode.UNAUTHENTICATED
    refuse_open_cluster(address)
