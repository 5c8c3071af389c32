"""The Ray runtime: the server and each trainer an actor, supervised by this process."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private.utils import estimate_available_memory
from ray.exceptions import AuthenticationError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from leap_rl.core.errors import RunFailedError
from leap_rl.core.machine import cores, descendants
from leap_rl.tracking.status import RunStatus
from leap_rl.training.faults import OF_RAY, FaultPoint
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.run_spec import RunSpec
from leap_rl.training.runtime.ray.calls import ANSWER_TIMEOUT_S, actor, ask, first_line
from leap_rl.training.runtime.ray.cluster_watch import watching
from leap_rl.training.runtime.ray.security import private_folder, refuse_open_cluster
from leap_rl.training.runtime.ray.server_actor import ServerActor
from leap_rl.training.runtime.ray.trainer_pool import RunPool, TrainerResources, living_nodes

SUPERVISE_EVERY_S = 0.25
WRITES_WITHIN_S = 2.0
SNAPSHOTS_WITHIN_S = 2.5
LEAST_STORE_BYTES = 512 * 2**20
STORE_BYTES_PER_TRAINER = 64 * 2**20
"""Room for the contribution that the server holds, the next one and a snapshot, of 20 MB each."""
SERVER_RESTARTS = 20
START_TRIES = 3
HANDLERS_EVERY_S = 0.002

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class RayRuntime:
    """Runs a run on a Ray cluster: one that it joins, or one of its own on this machine."""

    trainers: int | None
    """How many trainers; none for one a core, at most one a slot."""
    address: str | None
    """The cluster to join; none starts one here and ends it with the run."""
    resources: TrainerResources
    metrics_port: int | None
    """Of the Prometheus page of a cluster that is started; none for a free one."""
    interrupts: Interrupts
    namespace: str | None = None
    """Where the server has a name, by which trainers of another process find it, see
    `shared_trainers.py`; none for a server of trainers of its own."""

    def run(self, run_spec: RunSpec, report: Callable[[RunStatus], None]) -> None:
        # Ray's start has SIGTERM raise SystemExit.
        with self.interrupts, self.interrupts.explaining(SystemExit):
            try:
                self._run(run_spec, report)
            finally:
                # Ray's shutdown puts SIGTERM's default in place.
                self.interrupts.reinstall_handlers()

    def _run(self, run_spec: RunSpec, report: Callable[[RunStatus], None]) -> None:
        cores_wanted = (self.trainers or 0) * self.resources.cores
        with (
            cluster(self.address, cores_wanted, self.metrics_port, self.namespace, self.interrupts),
            watching(self.interrupts, own=self.address is None),
        ):
            self.interrupts.reinstall_handlers()
            self.resources.check(living_nodes())
            folder = Path(run_spec.run_dir).absolute()
            named = {} if self.namespace is None else {"name": f"{folder}@{run_spec.session}"}
            # On this node: the server writes the run's folder, which this process reads.
            here = NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            server = actor(
                ServerActor,
                num_cpus=0,
                scheduling_strategy=here,
                max_restarts=SERVER_RESTARTS,
                **named,
            ).remote(run_spec)
            pool = RunPool(
                run_spec=run_spec,
                server=server,
                resources=self.resources,
                trainers=0 if named else self.trainers,
                max_attempts=run_spec.lease_policy.max_attempts,
                on_fault_point=run_spec.on_fault_point,
            )
            try:
                _supervise(server, pool, report, self.interrupts)
            except RayError as error:
                raise RunFailedError(f"the parameter server died: {first_line(error)}") from None
            except KeyboardInterrupt:
                _take_snapshots(server)
                raise
            finally:
                pool.kill()
                _let_finish(server)
                ray.kill(server)


def _supervise(
    server: Any,
    pool: RunPool,
    report: Callable[[RunStatus], None],
    interrupts: Interrupts,
) -> None:
    progress = None
    while True:
        interrupts.check()
        status: RunStatus = ask(server.supervise)
        for point in (FaultPoint.DRIVER_SUPERVISING, *OF_RAY):
            pool.on_fault_point(point)
        report(status)
        if status.failure is not None:
            raise RunFailedError(status.failure)
        if status.finished:
            return
        reached = status.round, status.slots_complete, status.durable_segments
        if progress != reached:
            progress = reached
            pool.deaths_since_progress = 0
        pool.fill(status.slots_total)
        pool.wait(SUPERVISE_EVERY_S)


def _take_snapshots(server: Any) -> None:
    with suppress(RayError):
        answer = server.take_snapshots.remote(SNAPSHOTS_WITHIN_S)
        ray.wait([answer], timeout=SNAPSHOTS_WITHIN_S + 0.5)


def _let_finish(server: Any) -> None:
    """Wait a moment for what the server is writing: it answers one call after the other."""
    with suppress(RayError):
        ray.wait([server.supervise.remote()], timeout=WRITES_WITHIN_S)


@contextmanager
def cluster(
    address: str | None,
    cores_wanted: int,
    metrics_port: int | None = None,
    namespace: str | None = None,
    interrupts: Interrupts | None = None,
    object_store_bytes: int | None = None,
) -> Iterator[None]:
    """Join a cluster or start one; a connection that is there already is used and left alone.

    The object store is that of a cluster which is started; None: sized by its cores.
    """
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "namespace": namespace,
    }
    if address is None:
        if metrics_port is not None:
            _check_free(metrics_port)
        cpus = max(cores(), cores_wanted)
        _start(
            address="local",
            include_dashboard=False,
            num_cpus=cpus,
            object_store_memory=object_store_bytes or store_bytes(cpus),
            # One below it, as Ray opens the folder that it is given to everybody.
            _temp_dir=str(private_folder() / "r"),
            _metrics_export_port=metrics_port,
            **quiet,
        )
    else:
        if metrics_port is not None:  # of RAY_ADDRESS: with runtime.address it is refused before
            raise RunFailedError(
                f"runtime.metrics_port = {metrics_port}: the cluster of RAY_ADDRESS = {address} "
                "has pages of its own; leave the port out"
            )
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, AuthenticationError, RuntimeError, ValueError) as error:
            raise RunFailedError(
                f"runtime.address = {address}: no Ray cluster answers there, or it does not take "
                f"this user's token (RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token): "
                f"{first_line(error)}"
            ) from None
    try:
        if address is not None:
            refuse_open_cluster(ray.get_runtime_context().gcs_address)
        yield
    finally:
        _shut_down(interrupts)


def store_bytes(cpus: int, shared_memory: Path = Path("/dev/shm")) -> int:
    """Return the size of an object store for a trainer on each core, as far as memory has it.

    Ray delays each message to a full store by seconds, and does not start with one that leaves too
    little memory, which is not shared memory alone; it is taken as it is filled.
    """
    wanted = cpus * STORE_BYTES_PER_TRAINER
    shared = shutil.disk_usage(shared_memory).free if shared_memory.is_dir() else 0
    # What Ray's own check takes: unlike `core.machine.memory` it knows a container's limit.
    memory = int(estimate_available_memory())  # type: ignore[no-untyped-call]
    return max(LEAST_STORE_BYTES, min(wanted, shared * 9 // 10, memory * 3 // 10))


def _shut_down(interrupts: Interrupts | None) -> None:
    """End Ray; a signal meanwhile is raised once that is done.

    Ray's C++ puts SIGTERM's default in place, and then ends its processes, which takes seconds in
    which a signal would kill this one without a word.
    """
    if interrupts is None:
        ray.shutdown()
        return
    ending = threading.Thread(target=ray.shutdown, name="ray shutdown")
    with interrupts.held_back():
        ending.start()
        while ending.is_alive():
            interrupts.reinstall_handlers()
            ending.join(HANDLERS_EVERY_S)
    interrupts.check()


def _start(**options: Any) -> None:
    """Start a cluster on this machine; on a busy one Ray may need several tries.

    Raises:
        RunFailedError: It did not start in `START_TRIES` tries.
    """
    before = set(descendants(os.getpid()))
    for number in range(1, START_TRIES + 1):
        try:
            ray.init(**options)
            return
        except Exception as error:  # Ray raises just that where a busy machine takes too long
            # The next try has a session of its own. Of this one, Ray leaves what did start.
            ray.shutdown()
            for left in set(descendants(os.getpid())) - before:
                with suppress(OSError):
                    os.kill(left, signal.SIGKILL)
            if number == START_TRIES:
                raise RunFailedError(
                    f"Ray does not start on this machine, in {START_TRIES} tries "
                    f"({first_line(error)}); --runtime.kind local needs no Ray"
                ) from None
            _log.warning(
                "Ray did not start (%s); try %d of %d", first_line(error), number + 1, START_TRIES
            )


def _check_free(metrics_port: int) -> None:
    """Refuse a port that is taken: Ray would only report that it did not start in time."""
    try:
        with socket.socket() as page:
            page.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one just left is free
            page.bind(("127.0.0.1", metrics_port))
    except OSError as error:
        raise RunFailedError(
            f"runtime.metrics_port = {metrics_port}: cannot be listened on ({error.strerror}); "
            "name another, or null for any that is free"
        ) from None


def probe() -> float:
    """Start a cluster here, have an actor answer, end it; returns seconds until the answer."""

    class Echo:
        def answer(self) -> None: ...

    started = time.monotonic()
    with cluster(None, cores_wanted=1):
        ray.get(actor(Echo, num_cpus=0).remote().answer.remote(), timeout=ANSWER_TIMEOUT_S)
        return time.monotonic() - started
