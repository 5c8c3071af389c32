"""The Ray runtime: the server and each trainer an actor, supervised by this process."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import (
    ActorUnavailableError,
    AuthenticationError,
    RayError,
    RayTaskError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from leap_rl.messages import ServerStatus
from leap_rl.training.errors import RunFailedError, UnfitMachineError
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.phases import Phase
from leap_rl.training.ray_actors import (
    ANSWER_TIMEOUT_S,
    Reference,
    ServerActor,
    TrainerActor,
    pauses,
)
from leap_rl.training.ray_environment import private_folder
from leap_rl.training.runtime import Job

SUPERVISE_EVERY_S = 0.25
WRITES_WITHIN_S = 2.0
OBJECT_STORE_BYTES = 512 * 2**20

SERVER_RESTARTS = 20
"""Deaths of the server that a run survives; a server that dies again and again is told."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Life:
    """One life of a trainer."""

    name: str
    incarnation: int
    actor: Any


class RayRuntime:
    """Runs a job on a Ray cluster: one that it joins, or one of its own on this machine.

    Args:
        trainers: How many trainers; none for one a core, at most one a slot.
        address: The cluster to join; none starts one here and ends it with the run.
        trainer_cores: Cores that a trainer takes.
        trainer_gpus: GPUs that a trainer takes.
        interrupts: What may ask the run to stop.
    """

    def __init__(
        self,
        *,
        trainers: int | None,
        address: str | None,
        trainer_cores: int,
        trainer_gpus: float,
        interrupts: Interrupts | None = None,
    ) -> None:
        self._trainers = trainers
        self._address = address
        self._trainer_cores = trainer_cores
        self._trainer_gpus = trainer_gpus
        self._interrupts = interrupts or Interrupts()

    def run(self, job: Job, report: Callable[[ServerStatus], None]) -> None:
        """Run ``job`` to its end.

        Raises:
            RunFailedError: The job cannot go on, or there is no cluster.
            RunFolderError: The run's folder is damaged.
        """
        cores_wanted = (self._trainers or 0) * self._trainer_cores
        with self._interrupts, cluster(self._address, cores_wanted):
            self._interrupts.insist()
            # On this node: the server writes the run's folder, which this process reads.
            here = NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            server = _actor(
                ServerActor, num_cpus=0, scheduling_strategy=here, max_restarts=SERVER_RESTARTS
            ).remote(job)
            share = {"num_cpus": self._trainer_cores, "num_gpus": self._trainer_gpus}
            crew = _Crew(job, server, share)
            try:
                slots = _ask(server.slots)
                resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
                self._check_nodes()
                count = self._trainers or min(self._at_once(resources), slots)
                for index in range(count):
                    crew.start(f"trainer-{index}", incarnation=1)
                _supervise(server, crew, report, self._interrupts)
            except RayError as error:
                raise RunFailedError(f"the parameter server died: {_first_line(error)}") from None
            finally:
                crew.kill()
                _let_finish(server)
                ray.kill(server)

    def _at_once(self, resources: Mapping[str, float]) -> int:
        """Return how many trainers the cluster has room for; at least one, which may wait."""
        room = int(resources.get("CPU", 1)) // self._trainer_cores
        if self._trainer_gpus > 0:
            # Shares such as a third do not add up to a whole in binary.
            room = min(room, int(resources.get("GPU", 0) / self._trainer_gpus + 1e-6))
        return max(1, room)

    def _check_nodes(self) -> None:
        """Refuse what no node has: Ray would wait for such a node for ever."""
        known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        nodes = [node["Resources"] for node in known if node["Alive"]]
        for name, option, needed in (
            ("CPU", "runtime.env_processes", self._trainer_cores),
            ("GPU", "runtime.gpus_per_trainer", self._trainer_gpus),
        ):
            most = max((node.get(name, 0.0) for node in nodes), default=0.0)
            if needed > most:
                raise RunFailedError(
                    f"{option} = {needed:g}: no node of the cluster has as many {name}s; the most "
                    f"is {most:g}"
                )


class _Crew:
    """The living trainers."""

    def __init__(self, job: Job, server: Any, share: Mapping[str, float]) -> None:
        self._job = job
        self._server = server
        self._share = share
        self._lives: dict[Reference, _Life] = {}
        self.deaths_since_progress = 0
        self.on_phase = job.on_phase

    def start(self, name: str, *, incarnation: int) -> None:
        """Start a trainer's next life."""
        actor = _actor(TrainerActor, **self._share).remote()
        reference = actor.run.remote(self._job, name, incarnation, self._server)
        self._lives[reference] = _Life(name, incarnation, actor)

    def wait(self, timeout_s: float) -> None:
        """Wait for trainers that end; the dead are started anew, the failed raise their error."""
        if not self._lives:
            time.sleep(timeout_s)
            return
        ended, _ = ray.wait(list(self._lives), timeout=timeout_s)
        for reference in ended:
            life = self._lives.pop(reference)
            try:
                _get(reference)
            except (RayError, ChildProcessError) as error:
                # It, its node or one of its environment processes is dead: not its own error.
                self._replace(life, error)
            except UnfitMachineError as error:
                if not self._lives:
                    raise
                _log.warning("%s", error)  # and the others go on without it

    def kill(self) -> None:
        """End all of them at once; what counts is with the server."""
        for life in self._lives.values():
            ray.kill(life.actor)
        self._lives.clear()

    def _replace(self, life: _Life, error: Exception) -> None:
        self.on_phase(Phase.DRIVER_REPLACING)
        ray.kill(life.actor)  # it may live on, out of reach, and hold its core
        self.deaths_since_progress += 1
        if self.deaths_since_progress > 2 * self._job.patience.max_attempts * (
            len(self._lives) + 1
        ):
            raise RunFailedError(
                f"trainers die again and again, the last one {life.name}: {_first_line(error)}"
            )
        _ask(self._server.trainer_lost, life.name, _first_line(error))
        self.start(life.name, incarnation=life.incarnation + 1)


def _supervise(
    server: Any,
    crew: _Crew,
    report: Callable[[ServerStatus], None],
    interrupts: Interrupts,
) -> None:
    """Keep trainers alive and the user informed until the run is finished."""
    progress = None
    while True:
        interrupts.check()
        status: ServerStatus = _ask(server.supervise)
        crew.on_phase(Phase.DRIVER_SUPERVISING)
        report(status)
        if status.failure is not None:
            raise RunFailedError(status.failure)
        if status.finished:
            return
        reached = status.round, status.slots_complete, status.durable_segments
        if progress != reached:
            progress = reached
            crew.deaths_since_progress = 0
        crew.wait(SUPERVISE_EVERY_S)


def _let_finish(server: Any) -> None:
    """Wait a moment for what the server is writing: it answers one call after the other."""
    with suppress(RayError):
        ray.wait([server.supervise.remote()], timeout=WRITES_WITHIN_S)


def _actor(cls: type, **options: Any) -> Any:
    """Return the class as an actor that Ray starts once, if not told otherwise, and never calls
    twice."""
    return ray.remote(cls).options(**{"max_restarts": 0, "max_task_retries": 0, **options})


def _ask(method: Any, *arguments: Any) -> Any:
    """Return what a method of the server answers, however often it dies meanwhile."""
    for pause_s in pauses():
        try:
            return _get(method.remote(*arguments))
        except ActorUnavailableError as error:
            _log.warning("the parameter server is out of reach: %s", _first_line(error))
            time.sleep(pause_s)
    raise AssertionError


def _get(reference: Reference) -> Any:
    """Return a call's result, or raise what the call itself raised."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        cause: BaseException = error
        while isinstance(cause, RayTaskError) and cause.cause is not None:
            cause = cause.cause
        raise cause from error


@contextmanager
def cluster(address: str | None, cores_wanted: int) -> Iterator[None]:
    """Join a cluster or start one; a connection that is there already is used and left alone."""
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        cores = len(os.sched_getaffinity(0))
        try:
            ray.init(
                address="local",
                include_dashboard=False,
                num_cpus=max(cores, cores_wanted),
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=str(private_folder()),
                **quiet,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise RunFailedError(
                f"Ray does not start on this machine ({_first_line(error)}); "
                "--runtime.kind local needs no Ray"
            ) from None
    else:
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, AuthenticationError, RuntimeError, ValueError) as error:
            raise RunFailedError(
                f"runtime.address = {address}: no Ray cluster answers there, or it does not take "
                f"this user's token (RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token): "
                f"{_first_line(error)}"
            ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def probe() -> float:
    """Start a cluster here, have an actor answer, end it; returns seconds until the answer."""

    class Echo:
        def answer(self) -> None: ...

    started = time.monotonic()
    with cluster(None, cores_wanted=1):
        ray.get(_actor(Echo, num_cpus=0).remote().answer.remote(), timeout=ANSWER_TIMEOUT_S)
        return time.monotonic() - started
