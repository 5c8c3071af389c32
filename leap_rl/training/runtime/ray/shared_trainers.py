"""Trainers that serve several runs of one cluster: none waits while any run has a task.

One process owns the trainers. Each run has a driver of its own, which joins the cluster under the
same namespace and starts its server there, by name. Trainers find the servers by these names, take
tasks of any that has some, and stay with it as long as it has. A server that is gone takes its run
along; of a trainer that is gone all servers hear.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from leap_rl.core.determinism import configure_torch
from leap_rl.core.errors import UnfitMachineError
from leap_rl.training.config import Joined
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.runtime.ray.calls import (
    FIRST_PAUSE_S,
    Reference,
    actor,
    ask,
    first_line,
    result_of,
)
from leap_rl.training.runtime.ray.cluster_watch import watching
from leap_rl.training.runtime.ray.runtime import cluster
from leap_rl.training.runtime.ray.trainer_actor import RunTrainer, TrainerActor
from leap_rl.training.runtime.ray.trainer_pool import TrainerPool, TrainerResources, living_nodes

LOOK_EVERY_S = 1.0
"""After which a trainer without work looks for new runs."""

_log = logging.getLogger(__name__)


# -- a trainer --------------------------------------------------------------------------------


@dataclass(kw_only=True)
class SharedTrainer:
    """A trainer's work for all runs of its namespace."""

    name: str
    incarnation: int
    _runs: dict[str, RunTrainer] = field(default_factory=dict)
    """By their servers' names, the runs that may have tasks."""
    _ended: set[str] = field(default_factory=set)
    """Servers whose runs have none any more."""
    _polls: dict[Reference, str] = field(default_factory=dict)
    """By call, the server that answers it when it has work."""
    _idle_since_s: float = field(default_factory=time.monotonic)
    _look_again_s: float = 0.0

    def serve(self) -> None:
        """Train tasks of all runs, for ever.

        Raises:
            UnfitMachineError: This machine cannot compute a run's tasks.
            ChildProcessError: An environment process has died.
        """
        while True:
            self._look()
            if not self._polls:
                time.sleep(LOOK_EVERY_S)
                continue
            # In any order, so that not all go to the same run. No seed: no result depends on it.
            polls = random.SystemRandom().sample(list(self._polls), len(self._polls))
            for answer in ray.wait(polls, timeout=LOOK_EVERY_S)[0]:
                self._visit(self._polls.pop(answer), answer)

    def _look(self) -> None:
        """Find runs that are new."""
        if time.monotonic() < self._look_again_s:
            return
        self._look_again_s = time.monotonic() + LOOK_EVERY_S
        there = set(ray.util.list_named_actors())
        self._ended &= there
        for name in there - self._runs.keys() - self._ended:
            with suppress(ValueError):  # it has gone meanwhile
                server = ray.get_actor(name)
                with self._for(name, server):
                    self._runs[name] = RunTrainer.of(
                        ask(server.run_spec), self.name, self.incarnation, server, waits=False
                    )
                    self._await(name)

    def _await(self, name: str) -> None:
        self._polls[self._runs[name].client.server.await_work.remote()] = name

    def _visit(self, name: str, answer: Reference) -> None:
        """Train a run's tasks as long as it has some, if it answers that it has."""
        run = self._runs[name]
        with self._for(name, run.client.server):
            try:
                has_work = result_of(answer)
            except ActorUnavailableError:  # its server died, and Ray starts it again
                time.sleep(FIRST_PAUSE_S)
                has_work = False
            if has_work:
                run.trainer.idle_since_s = self._idle_since_s
                try:
                    ended = run.run()
                finally:
                    self._idle_since_s = run.trainer.idle_since_s
                if ended:
                    self._leave(name)
                    return
            self._await(name)

    def _leave(self, name: str) -> None:
        self._runs.pop(name, None)
        self._ended.add(name)

    @contextmanager
    def _for(self, name: str, server: Any) -> Iterator[None]:
        """Leave a run whose server is gone, or whose tasks fail: that ends this run alone."""
        try:
            yield
        except ActorDiedError:
            self._leave(name)
        except (UnfitMachineError, ChildProcessError):
            raise
        except Exception as error:
            _log.exception("a task of %s has failed", name)
            self._leave(name)
            with suppress(RayError):
                ask(server.fail, first_line(error))


class SharedTrainerActor(TrainerActor):
    """Runs a trainer of several runs in a process of its own."""

    def prepare(self) -> None:
        """Import what takes seconds."""
        configure_torch()

    def serve(self, name: str, incarnation: int) -> None:
        SharedTrainer(name=name, incarnation=incarnation).serve()


# -- their owner ------------------------------------------------------------------------------


@dataclass(kw_only=True)
class SharedPool(TrainerPool):
    """Trainers of all runs whose drivers join them."""

    joined: Joined
    """What these drivers need."""
    available_s: float = 0.0
    """Trainers' time so far, from when each could work, over all of them."""
    _starting: list[Reference] = field(default_factory=list)
    """Calls that end when a trainer can work, of those that cannot yet."""
    _tended_s: float = field(default_factory=time.monotonic)
    _done: float = 0.0

    @property
    def size(self) -> int:
        """How many trainers there are, or are about to be."""
        return self.trainers or max(1, self._look())

    def tend(self, done: float) -> None:
        """Start missing trainers, and replace dead ones; called often.

        Args:
            done: What all runs have done so far, in any unit: while it grows, trainers may die.

        Raises:
            RunFailedError: They die again and again, or no machine can compute the runs' tasks.
        """
        if done > self._done:
            self._done, self.deaths_since_progress = done, 0
        now = time.monotonic()
        self.available_s += (now - self._tended_s) * (len(self._lives) - len(self._starting))
        self._tended_s = now
        self.wait(0.0)
        self.fill(self.size)
        if self._starting:
            _, self._starting = ray.wait(self._starting, num_returns=len(self._starting), timeout=0)

    def _begin(
        self, name: str, incarnation: int, options: Mapping[str, Any]
    ) -> tuple[Any, Reference]:
        started = actor(SharedTrainerActor, **options).remote()
        self._starting.append(started.prepare.remote())
        return started, started.serve.remote(name, incarnation)

    def _on_lost(self, name: str, cause: str) -> None:
        for server in ray.util.list_named_actors():
            with suppress(ValueError, RayError):  # it has gone meanwhile
                ask(ray.get_actor(server).trainer_lost, name, cause)


@contextmanager
def shared_pool(
    *,
    trainers: int | None,
    address: str | None,
    resources: TrainerResources,
    max_attempts: int,
    metrics_port: int | None,
    namespace: str,
    interrupts: Interrupts,
) -> Iterator[SharedPool]:
    """Join a cluster or start one, with trainers for all who join it under the namespace."""
    cores_wanted = (trainers or 0) * resources.cores
    try:
        with (
            cluster(address, cores_wanted, metrics_port, namespace),
            watching(interrupts, own=address is None),
        ):
            interrupts.reinstall_handlers()
            resources.check(living_nodes())
            context = ray.get_runtime_context()
            pool = SharedPool(
                resources=resources,
                trainers=trainers,
                max_attempts=max_attempts,
                joined=Joined(address=context.gcs_address, namespace=context.namespace),
            )
            try:
                yield pool
            finally:
                pool.kill()
    finally:
        interrupts.reinstall_handlers()
