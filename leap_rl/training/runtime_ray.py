"""The Ray runtime: the server and each trainer an actor, supervised by this process.

Ray's own retries are off: they execute a call twice and reorder calls. What is sent may be lost or
late; trainers repeat it until they are answered, and the server takes every message any number of
times.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import ray
from ray.exceptions import (
    ActorUnavailableError,
    AuthenticationError,
    GetTimeoutError,
    RayError,
    RayTaskError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from leap_rl.determinism import configure_torch
from leap_rl.messages import (
    Abandon,
    Assignment,
    Claim,
    Complete,
    Continue,
    Counted,
    FloatVector,
    ServerStatus,
    Stream,
    Ticket,
    Wait,
    Work,
)
from leap_rl.training.errors import RunFailedError, UnfitMachineError
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.parameter_server import ParameterServer
from leap_rl.training.ray_environment import private_folder
from leap_rl.training.runtime import Job, StreamSchedule

LONG_POLL_S = 10.0
"""A claim that finds no free slot is held this long before it is answered with Wait."""

ANSWER_TIMEOUT_S = 60.0
"""A call unanswered for this long is sent again."""

BEATS_A_LEASE = 4
RETRY_PAUSE_S = 0.5
SUPERVISE_EVERY_S = 0.25
WRITES_WITHIN_S = 2.0
OBJECT_STORE_BYTES = 512 * 2**20

_log = logging.getLogger(__name__)

Reference: TypeAlias = "ray.ObjectRef[Any]"

_NOTHING = np.empty(0, dtype=np.float32)


class ServerActor:
    """Serves the parameter server to many trainers.

    All methods run on one thread, the actor's event loop: the server itself needs no lock, and
    while a claim waits for a free slot the others are served.
    """

    def __init__(self, job: Job) -> None:
        self._job = job

    async def start(self) -> int:
        """Make the server on the thread that will run it; returns the open round's slots."""
        configure_torch()
        self._server: ParameterServer = self._job.make_server()
        self._changed = asyncio.Event()
        self._theta0: FloatVector | None = None
        self._theta0_ref: Reference | None = None
        return self._server.status().slots_total

    async def claim(self, claim: Claim) -> tuple[Work, Reference | None]:
        """Answer a claim, at once or when a slot is free."""
        deadline = time.monotonic() + LONG_POLL_S
        while True:
            work = self._server.claim(claim)
            left_s = deadline - time.monotonic()
            if not isinstance(work, Wait) or left_s <= 0:
                return self._by_reference(work)
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                continue

    async def stream(self, message: Stream) -> Continue | Abandon:
        """Take in a sum so far."""
        return self._server.stream(message)

    async def complete(self, message: Complete) -> tuple[Counted | Abandon, Reference | None]:
        """Take in a whole sum."""
        answer = self._server.complete(message)
        self._changed.set()
        if isinstance(answer, Abandon):
            return answer, None
        work, reference = self._by_reference(answer.next)
        return Counted(next=work), reference

    async def beat(self, trainer: str, incarnation: int) -> None:
        """Hear that a trainer lives."""
        self._server.beat(trainer, incarnation)

    async def trainer_lost(self, trainer: str) -> None:
        """Free what a dead trainer held."""
        self._server.trainer_lost(trainer)
        self._changed.set()

    async def supervise(self) -> ServerStatus:
        """Look after leases and return where the run stands."""
        self._server.tick()
        status = self._server.status()
        if status.slots_total > status.slots_complete + len(status.running):
            self._changed.set()
        return status

    def _by_reference(self, work: Work) -> tuple[Work, Reference | None]:
        """Replace θ⁰ by a reference to it: it goes into the object store once a version."""
        if not isinstance(work, Assignment):
            return work, None
        if self._theta0 is not work.theta0:
            self._theta0, self._theta0_ref = work.theta0, ray.put(work.theta0)
        return replace(work, theta0=_NOTHING), self._theta0_ref


class RayLink:
    """A trainer's way to the server actor."""

    def __init__(self, server: Any, *, stream_every_s: float) -> None:
        self._server = server
        self._schedule = StreamSchedule(stream_every_s, time.monotonic)
        self._in_flight: tuple[Ticket, Reference, float] | None = None
        self._updated_s: float | None = None

    def claim(self, claim: Claim) -> Work:
        """Ask for work until there is an answer."""
        self._updated_s = None
        return _with_theta0(*self._call(self._server.claim, claim))

    def stream_due(self) -> bool:
        """Whether a stream is to be sent now; called after every update."""
        self._updated_s = time.monotonic()
        return self._schedule.due()

    def is_alive(self, within_s: float) -> bool:
        """Whether the task is still starting, or had an update within the last seconds."""
        updated_s = self._updated_s
        return updated_s is None or time.monotonic() - updated_s < within_s

    def stream(self, message: Stream) -> Continue | Abandon | None:
        """Send a stream, unless the last one is still on its way."""
        self._schedule.start_over()
        answer = None
        if self._in_flight is not None:
            ticket, reference, sent_s = self._in_flight
            if ray.wait([reference], timeout=0)[0]:
                if ticket == message.ticket:
                    answer = self._answer(reference)
            elif time.monotonic() - sent_s < ANSWER_TIMEOUT_S:
                return None
            self._in_flight = None
        if not isinstance(answer, Abandon):
            sent = self._server.stream.remote(message)
            self._in_flight = message.ticket, sent, time.monotonic()
        return answer

    def complete(self, message: Complete) -> Counted | Abandon:
        """Send a whole sum until there is an answer."""
        self._updated_s = None
        answer, reference = self._call(self._server.complete, message)
        if isinstance(answer, Abandon):
            return answer
        return Counted(next=_with_theta0(answer.next, reference))

    def _call(self, method: Any, message: Claim | Complete) -> Any:
        while True:
            try:
                return ray.get(method.remote(message), timeout=ANSWER_TIMEOUT_S)
            except (GetTimeoutError, ActorUnavailableError):
                # Perhaps it was executed, perhaps not: the server knows the message by its
                # numbers, so the same message goes out again.
                time.sleep(RETRY_PAUSE_S)

    @staticmethod
    def _answer(reference: Reference) -> Continue | Abandon | None:
        try:
            answer: Continue | Abandon = ray.get(reference)
        except ActorUnavailableError:
            return None  # a lost stream costs nothing: the next one carries the sum so far
        return answer


def _with_theta0(work: Work, reference: Reference | None) -> Work:
    if not isinstance(work, Assignment):
        return work
    assert reference is not None, "an assignment comes with its initialization"
    return replace(work, theta0=ray.get(reference))


class TrainerActor:
    """Runs a trainer in a process of its own."""

    def run(self, job: Job, name: str, incarnation: int, server: Any) -> None:
        """Train until the run has no more work."""
        configure_torch()
        link = RayLink(server, stream_every_s=job.stream_every_s)
        trainer = job.make_trainer(name=name, incarnation=incarnation, link=link)
        ended = threading.Event()

        def beat() -> None:
            # A task of many emulators takes longer to start than a lease lasts, and streams come
            # between updates only.
            while not ended.wait(job.lease_s / BEATS_A_LEASE):
                if link.is_alive(job.lease_s):  # a task that hangs must lose its slot
                    server.beat.remote(name, incarnation)

        threading.Thread(target=beat, name="beat", daemon=True).start()
        try:
            trainer.run()
        finally:
            ended.set()


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
            RunFailedError: The server died, trainers die again and again, or there is no cluster.
            TaskFailedError: A task's numbers went bad.
            RunFolderError: The run's folder is damaged.
        """
        cores_wanted = (self._trainers or 0) * self._trainer_cores
        with self._interrupts, cluster(self._address, cores_wanted):
            self._interrupts.insist()
            # On this node: the server writes the run's folder, which this process reads.
            here = NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            server = _actor(ServerActor, num_cpus=0, scheduling_strategy=here).remote(job)
            share = {"num_cpus": self._trainer_cores, "num_gpus": self._trainer_gpus}
            crew = _Crew(job, server, share)
            try:
                slots = _get(server.start.remote())
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
        ray.kill(life.actor)  # it may live on, out of reach, and hold its core
        self.deaths_since_progress += 1
        if self.deaths_since_progress > 2 * self._job.max_attempts * (len(self._lives) + 1):
            raise RunFailedError(
                f"trainers die again and again, the last one {life.name}: {_first_line(error)}"
            )
        _get(self._server.trainer_lost.remote(life.name))
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
        try:
            status: ServerStatus = _get(server.supervise.remote())
        except ActorUnavailableError:  # out of reach for a moment; if it died, Ray says so next
            time.sleep(RETRY_PAUSE_S)
            continue
        report(status)
        if status.failure is not None:
            raise RunFailedError(status.failure)
        if status.finished:
            return
        if progress != (status.round, status.slots_complete):
            progress = (status.round, status.slots_complete)
            crew.deaths_since_progress = 0
        crew.wait(SUPERVISE_EVERY_S)


def _let_finish(server: Any) -> None:
    """Wait a moment for what the server is writing: it answers one call after the other."""
    with suppress(RayError):
        ray.wait([server.supervise.remote()], timeout=WRITES_WITHIN_S)


def _actor(cls: type, **options: Any) -> Any:
    """Return the class as an actor that Ray neither restarts nor calls twice."""
    return ray.remote(cls).options(max_restarts=0, max_task_retries=0, **options)


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
