"""Stand-ins that check the contract: tasks whose numbers say where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.choices import OnDivergence
from leap_rl.learners.task import EpisodeEnd, Observe, Progress, TaskSpec, TaskState
from leap_rl.meta.gradient_path import Point
from leap_rl.networks.parameters import Layout, Leaf
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training import messages
from leap_rl.training.rounds.plan import (
    ClosedRound,
    DroppedSlot,
    FilledRound,
    FilledSlot,
    LoggedRow,
)
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.server.rounds import LeasePolicy, Rounds

SIZE = 16
FINGERPRINT = "f" * 64


class FakeClock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def ray_module(name: str) -> Any:
    """A module of the Ray runtime; Ray's environment comes before its import."""
    make_ray_runtime(trainers=1, address=LOCAL)
    return import_module(f"leap_rl.training.runtime.ray.{name}")


@dataclass
class FakePlan:
    """Rounds that keep what they were closed with; θ⁰ of round r is r everywhere."""

    rounds: int = 2
    batch: int = 3
    saves_agents: bool = False
    validating: int = 0
    """So many slots, the first ones, validate."""
    opened: int = 0
    closed: list[tuple[int, list[FilledSlot]]] = field(default_factory=list)
    dropped: list[DroppedSlot] = field(default_factory=list)

    def theta0(self, start_index: int = 0) -> messages.FloatVector:
        return np.full(SIZE, self.opened, dtype=np.float32)

    def open(self, round_number: int) -> list[TaskSpec]:
        self.opened = round_number
        return [
            TaskSpec(
                game=f"game_{slot}",
                seed=100 * round_number + slot,
                validates=slot < self.validating,
            )
            for slot in range(self.batch)
        ]

    def close(self, filled: FilledRound) -> ClosedRound:
        self.dropped += filled.dropped
        self.closed.append((filled.number, list(filled.slots)))
        rows = [LoggedRow(axis="meta_step", values={"meta_step": filled.number})]
        return ClosedRound(rows=rows, files={"total.bin": _total(filled.slots)})


def _total(slots: Sequence[FilledSlot]) -> bytes:
    return b"".join(np.asarray(slot.contribution).tobytes() for slot in slots)


def make_server(
    folder: RunFolder,
    plan: FakePlan | None = None,
    clock: FakeClock | None = None,
    *,
    max_attempts: int = 3,
    close_after_s: float | None = None,
    on_divergence: OnDivergence = "stop",
    trainers_live: bool = False,
    session: str = "driver",
    keep_checkpoints: int | None = None,
) -> ParameterServer:
    """A server over a fresh or used folder."""
    if folder.latest() is None:
        folder.write_checkpoint(0, {}, {})
    rounds = Rounds(
        folder=folder,
        fingerprint=FINGERPRINT,
        plan=plan or FakePlan(),
        lease_policy=LeasePolicy(
            lease_s=60.0, max_attempts=max_attempts, close_after_s=close_after_s
        ),
        session=session,
        keep_checkpoints=keep_checkpoints,
        trainers_live=trainers_live,
        clock=clock or FakeClock(),
    )
    return ParameterServer(rounds=rounds, on_divergence=on_divergence)


def newest_sum(server: ParameterServer, slot: int) -> tuple[int, messages.FloatVector | None]:
    """A slot's number of segments and its newest sum in the open round."""
    found = server.rounds.open_round.slots[slot]
    return found.n, found.contribution


def claim(trainer: str = "a", number: int = 1, incarnation: int = 1) -> messages.Claim:
    return messages.Claim(trainer=trainer, incarnation=incarnation, number=number)


def contribution(slot: int, n: int) -> messages.FloatVector:
    """A sum that says which slot it belongs to and how many segments it holds."""
    return np.full(SIZE, 1000 * slot + n, dtype=np.float32)


def stream(
    ticket: messages.Ticket, n: int, values: messages.FloatVector | None = None
) -> messages.Stream:
    return messages.Stream(
        ticket=ticket,
        n=n,
        contribution=contribution(ticket.slot, n) if values is None else values,
        progress=messages.TaskProgress(agent_steps=n, agent_steps_per_s=1.0),
    )


def with_snapshot(ticket: messages.Ticket, n: int, fill: int | None = None) -> messages.Stream:
    """A stream with a snapshot that says how many segments are behind it."""
    snapshot = np.full(7, n if fill is None else fill, dtype=np.uint8)
    return replace(stream(ticket, n), snapshot=snapshot)


def episodes(count: int = 1) -> messages.Episodes:
    return messages.Episodes(
        agent_steps=np.arange(1, count + 1, dtype=np.int64),
        returns=np.full(count, 2.5),
        lengths=np.full(count, 7, dtype=np.int64),
    )


def complete(
    ticket: messages.Ticket,
    next_claim: messages.Claim,
    n: int = 10,
    values: messages.FloatVector | None = None,
) -> messages.Complete:
    return messages.Complete(
        ticket=ticket,
        n=n,
        contribution=contribution(ticket.slot, n) if values is None else values,
        record=messages.TaskRecord(
            trainer=next_claim.trainer,
            processor="test",
            updates=n,
            agent_steps=n,
            losses={"total": 1.0},
            path={"energy": 2.0},
            curve=(),
            working_s=1.0,
            waiting_s=0.5,
        ),
        episodes=episodes(),
        claim=next_claim,
    )


def assigned(work: object) -> messages.Assignment:
    assert isinstance(work, messages.Assignment), work
    return work


def fill_round(server: ParameterServer) -> messages.Work:
    """Fill the open round by one trainer; returns the work that its last answer brought."""
    opened = server.status().round
    number = 1 + 10 * opened
    work = server.claim(claim("filler", number=number))
    while server.status().round == opened:
        number += 1
        answer = server.complete(complete(assigned(work).ticket, claim("filler", number=number)))
        assert isinstance(answer, messages.Counted)
        work = answer.next
    return work


def pass_time(server: ParameterServer, clock: FakeClock, seconds: float) -> None:
    """Let time pass as a driver does, telling the server now and then."""
    while seconds > 0:
        clock.now_s += min(seconds, 5.0)
        seconds -= 5.0
        server.tick()


class FakeTask:
    """K updates whose gradient encodes the task and the update: seed + update everywhere."""

    def __init__(self, spec: TaskSpec, updates: int = 5, bad_update: int | None = None) -> None:
        self.spec = spec
        self.updates = updates
        self.bad_update = bad_update
        self.done_updates = 0
        self.closed = False

    @property
    def done(self) -> bool:
        return self.done_updates >= self.updates

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def agent_steps_total(self) -> int:
        return 10 * self.updates

    def start(self, shared: Tensor) -> None:
        self.theta = shared.clone()

    def advance(self, observe: Observe) -> Progress:
        loss, grad = self._loss_and_grad()
        observe(Point(theta=self.theta, loss=loss, grad=grad))
        self.theta = self.theta - 0.01 * grad  # not in place: the last point stays readable
        self.done_updates += 1
        return Progress(
            updates=self.done_updates,
            agent_steps=10 * self.done_updates,
            losses={"total": float(loss)},
            episodes=[EpisodeEnd(10 * self.done_updates, float(self.done_updates), 3)],
            rewards=0.5,
        )

    def end_point(self, *, with_grad: bool) -> Point:
        loss, grad = self._loss_and_grad()
        return Point(theta=self.theta, loss=loss, grad=grad if with_grad else None)

    def state(self) -> TaskState:
        return {"theta": self.theta.numpy().copy(), "done": np.array(self.done_updates)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.theta = torch.from_numpy(state["theta"].copy())
        self.done_updates = int(state["done"])

    def carry_over(self, state: Mapping[str, NDArray[Any]], shared: Tensor) -> None:
        self.start(shared)
        self.done_updates = 0

    def named_parameters(self) -> dict[str, Tensor]:
        return {"theta": self.theta.clone()}

    def close(self) -> None:
        self.closed = True

    def _loss_and_grad(self) -> tuple[Tensor, Tensor]:
        value = float(self.spec.seed % 7 + self.done_updates + 1)
        if self.done_updates == self.bad_update:
            value = float("nan")
        return torch.tensor(10.0 / value), torch.full((SIZE,), value)


@dataclass
class FakeTasks:
    """Makes fake tasks and remembers them."""

    updates: int = 5
    bad_update: int | None = None
    made: list[FakeTask] = field(default_factory=list)
    frames_per_agent_step: int = 0
    make: type[FakeTask] = FakeTask

    def __call__(self, spec: TaskSpec) -> FakeTask:
        self.made.append(self.make(spec, self.updates, self.bad_update))
        return self.made[-1]

    def restores(self, game: str) -> bool:
        return True

    def check_machine(self) -> None: ...

    def shared_layout(self) -> Layout:
        return Layout((Leaf("theta", (SIZE,), 0),), SIZE)

    def random_initialization(self, seed: int) -> Tensor:
        return torch.full((SIZE,), float(seed % 3))
