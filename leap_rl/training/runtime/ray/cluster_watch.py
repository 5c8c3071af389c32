"""Watches a run's cluster: without its control service (GCS) or this node's raylet a run ends.

Ray itself ends the process of a driver that has not reached the GCS for a minute, from C++ and
without a word to Python. This notices it earlier, and asks the run to stop.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import ray

from leap_rl.training.interrupts import Interrupts

LOOK_EVERY_S: Final = 0.25
ANSWER_WITHIN_S: Final = 2.0
_RECONNECT: Final = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""Ray's setting of how long a driver waits for a GCS that may come back; a minute by default."""
_SHARE = 2 / 3
"""Of Ray's patience: this one ends before it."""


@dataclass(kw_only=True)
class Service:
    """A process of the cluster that listens on a port."""

    name: str
    address: str
    """As host:port."""
    refused_s: float
    """It is gone when it has refused connections for so long: 0 if none takes its place."""
    silent_s: float
    """It is gone when it could not be reached for so long, as over a cut network."""
    _away_since_s: float | None = None

    def is_gone(self) -> bool:
        """Look, and say whether it has been away for too long."""
        host, _, port = self.address.rpartition(":")
        patience_s = self.silent_s
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_WITHIN_S).close()
            self._away_since_s = None
            return False
        except ConnectionRefusedError:
            patience_s = self.refused_s
        except OSError:
            pass
        now = time.monotonic()
        if self._away_since_s is None:
            self._away_since_s = now
        return now - self._away_since_s >= patience_s


@contextmanager
def watching(interrupts: Interrupts, *, own: bool) -> Iterator[None]:
    """Ask the run to stop when the cluster that this process has joined is gone.

    Args:
        interrupts: Asked to stop.
        own: Whether this process has started the cluster, whose GCS then never comes back.
    """
    ended = threading.Event()
    services = _services(own=own)

    def watch() -> None:
        while not ended.wait(LOOK_EVERY_S):
            for service in services:
                if service.is_gone() and not ended.is_set():
                    interrupts.lose(f"Ray's {service.name} at {service.address} is gone")
                    return

    threading.Thread(target=watch, name="cluster watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _services(*, own: bool) -> list[Service]:
    reconnect_s = float(os.environ.get(_RECONNECT, "60"))
    silent_s = _SHARE * reconnect_s
    context = ray.get_runtime_context()
    found = [
        Service(
            name="control service (GCS)",
            address=context.gcs_address,
            refused_s=0.0 if own else silent_s,
            silent_s=silent_s,
        )
    ]
    here = context.get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    for node in nodes:
        if node["NodeID"] == here:
            address = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
            found.append(Service(name="raylet", address=address, refused_s=0.0, silent_s=silent_s))
    return found
