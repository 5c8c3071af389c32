"""Trainers on Ray, of one run or of several: started where there is room, replaced when they die.

Nodes may join and leave during a run. With a fixed number of trainers, those without room wait in
Ray's queue. Otherwise the pool follows the cluster: a trainer for each place that the nodes have,
but no more than the round has slots.
"""

from __future__ import annotations

import itertools
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from leap_rl.core.errors import RunFailedError, UnfitMachineError
from leap_rl.training.faults import FaultPoint, OnFaultPoint, no_fault
from leap_rl.training.run_spec import RunSpec
from leap_rl.training.runtime.ray.calls import Reference, actor, ask, first_line, result_of
from leap_rl.training.runtime.ray.trainer_actor import TrainerActor

LOOK_EVERY_S = 5.0
"""Seconds between two looks at the cluster's nodes."""

_NODE_ID = "ray.io/node-id"
"""A label that Ray gives to every node."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerResources:
    """What a trainer needs of a node."""

    cores: int
    """For itself and its environment processes."""
    gpus: float
    """A fraction below 1 (the GPU is shared), or a whole number."""

    def places(self, resources: Mapping[str, float]) -> int:
        """Return how many trainers a node with these resources has room for."""
        places = int(resources.get("CPU", 0)) // self.cores
        gpus = resources.get("GPU", 0)
        if self.gpus >= 1:
            return min(places, int(gpus / self.gpus))
        if self.gpus > 0:
            # Shares such as a third do not add up to a whole in binary; none spans two GPUs.
            return min(places, int(gpus) * int(1 / self.gpus + 1e-6))
        return places

    def check(self, nodes: Mapping[str, Mapping[str, float]]) -> None:
        """Refuse what no node has: Ray would wait for such a node for ever.

        Raises:
            RunFailedError: There are nodes with cores, and none has as many.
        """
        if not any(node.get("CPU") for node in nodes.values()):
            return  # a head alone, whose trainers' nodes are yet to come
        for name, option, needed in (
            ("CPU", "runtime.env_processes", self.cores),
            ("GPU", "runtime.gpus_per_trainer", self.gpus),
        ):
            most = max((node.get(name, 0.0) for node in nodes.values()), default=0.0)
            if needed > most:
                raise RunFailedError(
                    f"{option} = {needed:g}: no node of the cluster has as many {name}s; the most "
                    f"is {most:g}"
                )


def living_nodes() -> dict[str, Mapping[str, float]]:
    """Return the resources of each living node, by its id."""
    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: node["Resources"] for node in known if node["Alive"]}


@dataclass(frozen=True, slots=True)
class _Life:
    """One life of a trainer."""

    name: str
    actor: Any


@dataclass(kw_only=True)
class TrainerPool(ABC):
    """The living trainers, and those that wait for a node; the base of both kinds of pools."""

    resources: TrainerResources
    trainers: int | None
    """How many there are to be; none for as many as the cluster has room for."""
    max_attempts: int
    """As of `LeasePolicy`."""
    on_fault_point: OnFaultPoint = no_fault
    deaths_since_progress: int = 0
    _lives: dict[Reference, _Life] = field(default_factory=dict)
    _incarnations: Counter[str] = field(default_factory=Counter)
    _unfit_nodes: set[str] = field(default_factory=set)
    _room: int = 1
    """At the last look; 1 at first, so that "no room" is logged once."""
    _look_again_s: float = 0.0

    def fill(self, slots: int) -> None:
        """Start missing trainers: as many as were asked for, or have room, at most one a slot."""
        wanted = self.trainers
        if wanted is None:
            # One waits even where there is no room: for the first node that comes.
            wanted = max(1, min(self._look(), slots))
        while len(self._lives) < wanted:
            self._start()

    def wait(self, timeout_s: float) -> None:
        """Wait for trainers that end; a trainer's own error is raised.

        The slots of dead ones are free when this returns; `fill` replaces them.
        """
        if not self._lives:
            time.sleep(timeout_s)
            return
        ended, _ = ray.wait(list(self._lives), timeout=timeout_s)
        for reference in ended:
            life = self._lives.pop(reference)
            try:
                result_of(reference)
            except (RayError, ChildProcessError) as error:
                # It, its node or one of its environment processes is dead: not its own error.
                self._lose(life, error)
            except UnfitMachineError as error:
                self._dismiss(life, error)

    def kill(self) -> None:
        for life in self._lives.values():
            ray.kill(life.actor)
        self._lives.clear()

    def _start(self) -> None:
        taken = {life.name for life in self._lives.values()}
        names = (f"trainer-{index}" for index in itertools.count())
        name = next(name for name in names if name not in taken)
        self._incarnations[name] += 1
        options: dict[str, Any] = {
            "num_cpus": self.resources.cores,
            "num_gpus": self.resources.gpus,
        }
        if self._unfit_nodes:
            options["label_selector"] = {_NODE_ID: f"!in({','.join(sorted(self._unfit_nodes))})"}
        started, reference = self._begin(name, self._incarnations[name], options)
        self._lives[reference] = _Life(name, started)

    @abstractmethod
    def _begin(
        self, name: str, incarnation: int, options: Mapping[str, Any]
    ) -> tuple[Any, Reference]:
        """Start a trainer's actor with these options; return it and the call that it ends with."""

    @abstractmethod
    def _on_lost(self, name: str, cause: str) -> None:
        """Free what a dead trainer held."""

    def _look(self) -> int:
        now = time.monotonic()
        if now < self._look_again_s:
            return self._room
        self._look_again_s = now + LOOK_EVERY_S
        nodes = living_nodes()
        room = sum(self.resources.places(nodes[node]) for node in nodes.keys() - self._unfit_nodes)
        if room == 0 and self._room > 0:
            _log.warning("no node of the cluster has room for a trainer: waiting for one that has")
        self._room = room
        return room

    def _lose(self, life: _Life, error: Exception) -> None:
        self.on_fault_point(FaultPoint.DRIVER_REPLACING)
        ray.kill(life.actor)  # it may be alive but unreachable, and hold its core
        self.deaths_since_progress += 1
        in_vain = 2 * self.max_attempts * (len(self._lives) + 1)
        if self.deaths_since_progress > in_vain:
            raise RunFailedError(
                f"trainers die again and again, the last one {life.name}: {first_line(error)}"
            )
        self._on_lost(life.name, first_line(error))
        self._look_again_s = 0.0  # perhaps its node is gone too

    def _dismiss(self, life: _Life, error: UnfitMachineError) -> None:
        """Leave out a trainer that cannot compute the run's tasks, and its node."""
        with suppress(RayError):  # the node may be gone by now
            self._unfit_nodes.add(result_of(life.actor.node.remote()))
        self._look_again_s = 0.0
        if self._look() == 0:
            raise error
        _log.warning("%s", error)
        ray.kill(life.actor)


@dataclass(kw_only=True)
class RunPool(TrainerPool):
    """The trainers of one run."""

    run_spec: RunSpec
    server: Any
    """The parameter server's actor."""

    def _begin(
        self, name: str, incarnation: int, options: Mapping[str, Any]
    ) -> tuple[Any, Reference]:
        started = actor(TrainerActor, **options).remote()
        return started, started.run.remote(self.run_spec, name, incarnation, self.server)

    def _on_lost(self, name: str, cause: str) -> None:
        ask(self.server.trainer_lost, name, cause)
