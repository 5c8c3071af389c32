"""Options of the runtime: where and how a run is computed. None changes a bit of its results."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

RuntimeKind = Literal["local", "ray"]

ADDRESSES: Final = "host:port, as 10.0.0.5:6379 of ray start, ray://host:port, auto or local"


def is_cluster_address(text: str) -> bool:
    """Whether a cluster may be joined there; http:// is where jobs are handed in."""
    return re.fullmatch(r"auto|local|(ray://)?[^/\s]+:[0-9]{1,5}", text) is not None


@dataclass(frozen=True)
class RuntimeConfig:
    """Where trainers and server run; no field changes what is learned."""

    kind: RuntimeKind = "ray"
    """ray: trainers and server are Ray actors. local: everything in this process, one task after
    another, for debuggers and small things."""

    trainers: int | Literal["auto"] = "auto"
    """Trainers, each of which trains one task at a time on one core. auto: one for each core of
    this machine or cluster, but no more than a round has slots."""

    env_processes: int | Literal["auto"] = 1
    """Processes that each trainer spreads its emulators over. More than 1 pays where cores would
    otherwise be idle, since a round has fewer tasks than there are cores. auto: one; on
    Ray, trainers that a round has no task left for lend their cores to the tasks that still run on
    their machine, but for studies, where they serve other runs."""

    gpus_per_trainer: float | Literal["auto"] = "auto"
    """Share of a GPU that Ray sets aside for each trainer. auto: a sixteenth if agent.device is
    cuda, so that sixteen trainers share one; otherwise none."""

    address: str | None = None
    """A running Ray cluster to join, as host:port or `auto`. None starts one on this machine, or
    joins the one that RAY_ADDRESS names (as inside `ray job submit`)."""

    metrics_port: int | None = None
    """Port of 127.0.0.1 for the Prometheus page of a cluster that the run starts itself. None: any
    that is free. One that it joins has pages of its own."""

    stream_every_s: float = 2.0
    """Seconds between two streams of a task's sum so far."""

    snapshot_every_s: float = 60.0
    """Seconds between two snapshots of a task, from which another trainer resumes when this one is
    lost: the most work that a death costs."""

    lease_s: float = 60.0
    """A slot whose trainer was not heard of for this many seconds is given to another."""

    max_attempts: int = 3
    """A slot that lost its trainer this many times, and got no further meanwhile, stops the
    run."""

    keep_checkpoints: int | None = None
    """Keep the parameters of so many of the newest checkpoints, and always of the first one and of
    the best in validation; rows and records stay of all. In an object store they all stay. None:
    keep all."""

    max_driver_restarts: int = 0
    """Watch over the driver from a process of its own, and resume the run when the driver is
    killed, as for want of memory, or loses its Ray cluster, so many times at most. 0: a supervisor
    such as Kubernetes or compose does so, or nobody."""

    stop_after_s: float | None = None
    """Stop the run like Ctrl-C this many seconds after the command started, with exit status 75:
    for batch systems, whose time is limited. None: when it is done."""

    def __post_init__(self) -> None:
        """Raise a ValueError for a field that is out of range, or does not go with another."""
        if self.kind not in get_args(RuntimeKind):
            raise ValueError(f"runtime.kind = {self.kind!r}: must be local or ray")
        enough = self.trainers == "auto" or self.trainers >= 1
        self._require("trainers", enough, "must be at least 1, or auto")
        self._require("env_processes", self.own_env_processes >= 1, "must be at least 1, or auto")
        self._require("max_attempts", self.max_attempts >= 1, "must be at least 1")
        for name in ("stream_every_s", "snapshot_every_s", "lease_s"):
            self._require(name, getattr(self, name) > 0, "must be greater than 0")
        self._require("max_driver_restarts", self.max_driver_restarts >= 0, "must be at least 0")
        keep, stop, port = self.keep_checkpoints, self.stop_after_s, self.metrics_port
        self._require("keep_checkpoints", keep is None or keep >= 1, "must be at least 1, or null")
        finite = stop is None or 0 < stop < math.inf
        self._require("stop_after_s", finite, "must be greater than 0 and finite, or null")
        is_port = port is None or 1 <= port <= 65535
        self._require("metrics_port", is_port, "must be between 1 and 65535, or null")
        at = self.address
        self._require("address", at is None or is_cluster_address(at), f"must be {ADDRESSES}")
        share = self.gpus_per_trainer
        self._require(
            "gpus_per_trainer",
            share == "auto" or 0 <= share <= 1 or (share > 1 and float(share).is_integer()),
            "must be auto, between 0 and 1, or a whole number",
        )
        self._require(
            "lease_s",
            self.lease_s > 2 * self.stream_every_s,
            f"must be more than twice runtime.stream_every_s = {self.stream_every_s}, since "
            "streams renew the lease",
        )
        if self.kind == "local":
            for name, holds, rule in (
                ("trainers", self.trainers in (1, "auto"), "has one trainer"),
                ("address", self.address is None, "joins no cluster"),
                ("metrics_port", port is None, "shows no metrics"),
            ):
                self._require(name, holds, f"runtime.kind = local {rule}; use runtime.kind = ray")
        self._require(
            "metrics_port",
            port is None or self.address is None,
            "the cluster of runtime.address has pages of its own; give the port to its nodes, as "
            "in ray start --metrics-export-port, and null here",
        )

    @property
    def lends_cores(self) -> bool:
        """Whether trainers without a task lend their cores."""
        return self.env_processes == "auto"

    @property
    def own_env_processes(self) -> int:
        """Environment processes of each trainer, lent cores aside."""
        return 1 if self.env_processes == "auto" else self.env_processes

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ValueError(f"runtime.{name} = {getattr(self, name)}: {rule}")


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A Ray cluster with trainers that serve all runs of a namespace."""

    address: str
    """As host:port."""
    namespace: str
