"""What can be set about where and how a run is carried out. Nothing here changes a bit of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

RuntimeKind = Literal["local", "ray"]


@dataclass(frozen=True)
class RuntimeConfig:
    """Where trainers and server run; no field changes what is learned."""

    kind: RuntimeKind = "ray"
    """ray: trainers and server are Ray actors. local: everything in this process, one task after
    another, for debuggers and small things."""

    trainers: int | Literal["auto"] = "auto"
    """Trainers, each of which trains one task at a time on one core. auto: one for each core of
    this machine or cluster, but no more than a round has slots."""

    env_processes: int = 1
    """Processes that each trainer spreads its emulators over. More than 1 pays where cores would
    otherwise be idle, since a round has fewer tasks than there are cores."""

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
    """Seconds between two snapshots of a task, from which another trainer goes on when this one is
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
    killed, as for want of memory, so many times at most. 0: a supervisor such as Kubernetes or
    compose does so, or nobody."""

    stop_after_s: float | None = None
    """Stop the run like Ctrl-C this many seconds after the command started, with exit status 75:
    for batch systems, whose time is limited. None: when it is done."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range.
        """
        if self.kind not in get_args(RuntimeKind):
            raise ValueError(f"runtime.kind = {self.kind!r}: must be local or ray")
        if self.trainers != "auto" and self.trainers < 1:
            raise ValueError(f"runtime.trainers = {self.trainers}: must be at least 1, or auto")
        if self.kind == "local" and self.trainers not in (1, "auto"):
            raise ValueError(
                f"runtime.trainers = {self.trainers}: runtime.kind = local has one trainer; "
                "use runtime.kind = ray for more"
            )
        if self.kind == "local" and self.address is not None:
            raise ValueError(
                f"runtime.address = {self.address}: runtime.kind = local joins no cluster; "
                "use runtime.kind = ray"
            )
        self._check_metrics_port()
        if self.env_processes < 1:
            raise ValueError(f"runtime.env_processes = {self.env_processes}: must be at least 1")
        share = self.gpus_per_trainer
        if share != "auto" and not (0 <= share <= 1 or (share > 1 and float(share).is_integer())):
            raise ValueError(
                f"runtime.gpus_per_trainer = {share}: must be auto, between 0 and 1, or a whole "
                "number"
            )
        for name in ("stream_every_s", "snapshot_every_s", "lease_s"):
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"runtime.{name} = {value}: must be greater than 0")
        if self.lease_s <= 2 * self.stream_every_s:
            raise ValueError(
                f"runtime.lease_s = {self.lease_s}: must be more than twice "
                f"runtime.stream_every_s = {self.stream_every_s}, since streams renew the lease"
            )
        if self.stop_after_s is not None and not 0 < self.stop_after_s < math.inf:
            raise ValueError(
                f"runtime.stop_after_s = {self.stop_after_s}: must be greater than 0 and finite, "
                "or null"
            )
        if self.keep_checkpoints is not None and self.keep_checkpoints < 1:
            raise ValueError(
                f"runtime.keep_checkpoints = {self.keep_checkpoints}: must be at least 1, or null"
            )
        if self.max_driver_restarts < 0:
            raise ValueError(
                f"runtime.max_driver_restarts = {self.max_driver_restarts}: must be at least 0"
            )
        if self.max_attempts < 1:
            raise ValueError(f"runtime.max_attempts = {self.max_attempts}: must be at least 1")

    def _check_metrics_port(self) -> None:
        if self.metrics_port is None:
            return
        what = f"runtime.metrics_port = {self.metrics_port}"
        if not 1 <= self.metrics_port <= 65535:
            raise ValueError(f"{what}: must be between 1 and 65535, or null")
        if self.kind == "local":
            raise ValueError(
                f"{what}: runtime.kind = local shows no metrics; use runtime.kind = ray"
            )
        if self.address is not None:
            raise ValueError(
                f"{what}: the cluster of runtime.address has pages of its own; give the port to "
                "its nodes, as in ray start --metrics-export-port, and null here"
            )
