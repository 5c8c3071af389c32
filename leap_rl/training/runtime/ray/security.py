"""Keeps others out: refuses clusters without a token, and makes a folder for Ray's own files.

Ray runs what it is sent; its one guard is a token that all nodes of a cluster share. A node that
joins a cluster without one is as open as that: its machine, and the run's folder.
"""

from __future__ import annotations

import atexit
import ipaddress
import os
import shutil
import socket
import sys
import tempfile
from functools import cache
from pathlib import Path

from leap_rl.core.errors import RunFailedError

MODE = "RAY_AUTH_MODE"
ANSWER_WITHIN_S = 10.0

BELOW_BYTES = 93
"""What `/leap_rl-PID-XXXXXXXX/r` and Ray's session and socket names take of a socket's path."""

_WAY_OUT = (
    "start its nodes with RAY_AUTH_MODE=token and the same ~/.ray/auth_token (`ray get-auth-token "
    "--generate` makes one), or give the run a cluster of its own by leaving the address out"
)


def refuse_without_token(address: str) -> None:
    """Raise a RunFailedError for a cluster beyond this machine unless RAY_AUTH_MODE is token."""
    mode = os.environ.get(MODE, "")
    if mode.lower() != "token" and not is_loopback(address):
        raise RunFailedError(
            f"runtime.address = {address}: {MODE} is {mode or 'not set'} here, and whoever reaches "
            f"a cluster without tokens can run code on its nodes; {_WAY_OUT}"
        )


def refuse_open_cluster(address: str) -> None:
    """Raise a RunFailedError for a cluster beyond this machine that asks for no token."""
    refuse_without_token(address)
    if not is_loopback(address) and not asks_for_token(address):
        raise RunFailedError(
            f"runtime.address = {address}: the cluster asks for no token, and whoever reaches it "
            f"can run code on its nodes; {_WAY_OUT}"
        )


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address, given as host:port."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)


def asks_for_token(address: str) -> bool:
    """Whether the head of a Ray cluster refuses a call that carries no token.

    So does one that speaks TLS alone, as far as this goes: it asks for a certificate instead.
    """
    import grpc

    with grpc.insecure_channel(address) as channel:
        is_alive = channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive")
        try:
            is_alive(b"", timeout=ANSWER_WITHIN_S)  # a message without fields is no bytes
        except grpc.RpcError as error:
            tls = os.environ.get("RAY_USE_TLS", "0") == "1"
            unavailable: bool = error.code() is grpc.StatusCode.UNAVAILABLE
            refused: bool = error.code() is grpc.StatusCode.UNAUTHENTICATED
            return refused or (tls and unavailable)
    return False


@cache
def private_folder() -> Path:
    """Return this process's own folder for Ray's files and token, removed when it ends.

    Ray puts sockets below it, whose paths must not exceed 107 bytes, on macOS 103: a long TMPDIR is
    not used.
    """
    parent = tempfile.gettempdir()
    longest = 103 if sys.platform == "darwin" else 107
    if len(os.fsencode(parent)) > longest - BELOW_BYTES:
        parent = "/tmp"
    owner = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix=f"leap_rl-{owner}-", dir=parent))  # for this user alone

    def remove() -> None:
        if os.getpid() == owner:  # not in a forked child
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
