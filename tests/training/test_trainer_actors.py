"""Trainers in actors: those of several runs go where work is, and those that hang or exit end."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest

from leap_rl.core.errors import RunFailedError, UnfitMachineError
from leap_rl.meta.gradient_path import NoMethod
from leap_rl.training.run_spec import RunSpec
from leap_rl.training.server.rounds import LeasePolicy
from leap_rl.training.trainer.trainer import StreamSchedule
from tests.training.fakes import FakePlan, FakeTasks, ray_module

Visit = Callable[[], bool]


class OverError(Exception):
    """Nothing is left to do: no trainer would end by itself."""


@dataclass
class FakeRay:
    """Servers by name, each with what a trainer's visits there are: they return or raise."""

    visits: dict[str, list[Visit]]
    visited: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    now_s: float = 0.0

    @property
    def util(self) -> FakeRay:
        return self

    def list_named_actors(self) -> list[str]:
        return list(self.visits)

    def get_actor(self, name: str) -> Any:
        return SimpleNamespace(
            run_spec=lambda: name,
            await_work=SimpleNamespace(remote=lambda: f"poll {name}"),
            fail=lambda reason: self.failed.update({name: reason}),
            trainer_lost=lambda trainer, cause: self.lost.update({name: f"{trainer}: {cause}"}),
        )

    def wait(self, polls: list[str], timeout: float) -> tuple[list[str], list[str]]:
        self.now_s += timeout
        return sorted(polls)[:1], []

    def result_of(self, poll: str) -> bool:
        from ray.exceptions import ActorDiedError

        if poll.endswith("dead"):
            raise ActorDiedError
        return True

    def ask(self, method: Callable[..., Any], *arguments: Any) -> Any:
        return method(*arguments)

    def run_trainer(self, spec: str, *_: object, **__: object) -> Any:
        def run() -> bool:
            self.visited.append(spec)
            return self.visits[spec].pop(0)()

        trainer = SimpleNamespace(idle_since_s=None)
        client = SimpleNamespace(server=self.get_actor(spec))
        return SimpleNamespace(run=run, trainer=trainer, client=client)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        raise OverError


def serve(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ray_module("shared_trainers")
    for name in ("ray", "time"):
        monkeypatch.setattr(module, name, fake)
    monkeypatch.setattr(module, "RunTrainer", SimpleNamespace(of=fake.run_trainer))
    for name in ("ask", "result_of"):
        monkeypatch.setattr(module, name, getattr(fake, name))
    module.SharedTrainer(name="trainer-0", incarnation=1).serve()


def raises(error: Exception) -> Visit:
    def visit() -> bool:
        raise error

    return visit


def test_it_serves_all_runs_to_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay({"a": [], "b": [], "dead": []})

    def begins_another() -> bool:
        fake.visits["c"] = [lambda: True]
        return False  # no slot is free for now

    fake.visits["a"] = [begins_another, lambda: True]
    fake.visits["b"] = [raises(ValueError("a game is broken\nand more"))]
    with pytest.raises(OverError):
        serve(fake, monkeypatch)
    assert fake.visited == ["a", "a", "b", "c"]
    assert fake.failed == {"b": "a game is broken"}  # the others have not heard of it


@pytest.mark.parametrize("error", [ChildProcessError("killed"), UnfitMachineError("no bfloat16")])
def test_what_is_wrong_with_its_process_or_machine_ends_it(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRay({"a": [raises(error)], "b": [lambda: True]})
    with pytest.raises(type(error)):
        serve(fake, monkeypatch)
    assert fake.failed == {}


def spec_of(**given: Any) -> RunSpec:
    return RunSpec(
        run_dir="",
        fingerprint="",
        method=NoMethod(),
        make_task=FakeTasks(),
        make_plan=lambda folder: FakePlan(),
        stream_every_s=2.0,
        snapshot_every_s=60.0,
        lease_policy=LeasePolicy(lease_s=60.0, max_attempts=3),
        **given,
    )


def test_a_machine_with_other_packages_does_not_join() -> None:
    def join(**packages: str) -> None:
        spec_of(packages=packages).make_trainer(name="t", incarnation=1, server=server)

    server: Any = None
    numpy, torch = version("numpy"), version("torch").partition("+")[0]
    join(numpy=numpy, torch=f"{torch}+cu999")  # another build of the same
    with pytest.raises(UnfitMachineError, match=f"t cannot join: it has numpy {numpy}, and .* 1.0"):
        join(torch=torch, numpy="1.0")
    with pytest.raises(UnfitMachineError, match="it has leap_no_such none"):
        join(leap_no_such="1.0")


def test_a_trainer_that_serves_other_runs_lends_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ray_module("trainer_actor")
    context = SimpleNamespace(get_node_id=lambda: "here")
    monkeypatch.setattr(module, "ray", SimpleNamespace(get_runtime_context=lambda: context))
    nodes = []
    for lends, waits in ((True, True), (True, False), (False, True)):
        run_spec = spec_of(lends_cores=lends)
        nodes.append(module.RunTrainer.of(run_spec, "t", 1, None, waits=waits).trainer.node)
    assert nodes == ["here", None, None]


def test_trainers_may_die_as_often_as_they_will_while_the_study_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ray_module("shared_trainers")
    pool = module.SharedPool(resources=None, trainers=2, max_attempts=3, joined=None)
    for name in ("wait", "fill"):
        monkeypatch.setattr(pool, name, lambda number: None)
    deaths = []
    for done in (1.0, 1.0, 2.0):
        pool.tend(done)
        deaths.append(pool.deaths_since_progress)
        pool.deaths_since_progress += 5
    assert deaths == [0, 5, 0]


def test_of_a_trainer_that_died_every_run_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay({"a": [], "b": []})
    module = ray_module("shared_trainers")
    monkeypatch.setattr(module, "ray", fake)
    monkeypatch.setattr(module, "ask", fake.ask)
    pool = module.SharedPool(resources=None, trainers=2, max_attempts=3, joined=None)
    pool._on_lost("trainer-1", "its node is gone")
    assert fake.lost == dict.fromkeys("ab", "trainer-1: its node is gone")


@dataclass
class FakeTrainer:
    """A trainer at its server, with a lease of 80 ms, whose end is noted."""

    monkeypatch: pytest.MonkeyPatch
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.module = ray_module("trainer_actor")
        calls = SimpleNamespace(remote=lambda *_: None)
        self.monkeypatch.setattr(self.module, "ray", SimpleNamespace(get=lambda *_, **__: True))
        self.monkeypatch.setattr(self.module, "_end_process", self.ended.set)
        server = SimpleNamespace(heartbeat=calls, is_stopping=calls, diverged=calls)
        schedule = StreamSchedule(stream_every_s=60.0, snapshot_every_s=60.0)
        self.client = self.module.RayClient(server, schedule)

    def run(self, work: Callable[[], bool]) -> bool:
        trainer = SimpleNamespace(name="trainer-0", incarnation=1, run=lambda waits: work())
        ended: bool = self.module.RunTrainer(self.client, trainer, 0.08).run()
        return ended


def test_a_trainer_whose_task_hangs_ends_and_one_that_slept_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = FakeTrainer(monkeypatch)

    def sleeps() -> bool:  # no heartbeat meanwhile: to the first one the last update is long ago
        trainer.client._updated_s = time.monotonic() - 1000.0
        time.sleep(0.05)
        trainer.client.due(restorable=True)
        return trainer.ended.is_set()

    def hangs() -> bool:
        trainer.client.due(restorable=True)
        return trainer.ended.wait(10.0)

    assert not trainer.run(sleeps)
    assert trainer.run(hangs)


def test_a_sigterm_before_the_first_update_ends_a_trainer_whatever_catches_exceptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = FakeTrainer(monkeypatch)

    def imports() -> bool:
        signal.raise_signal(signal.SIGTERM)  # a SystemExit would fail this test
        return trainer.ended.is_set()

    def asks(*_: object, **__: object) -> bool:  # what is on its way to the server may arrive
        trainer.ended.clear()
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        return trainer.ended.is_set()

    assert trainer.run(imports)
    monkeypatch.setattr(trainer.module, "ask", asks)
    assert not trainer.run(lambda: trainer.client.diverged(None))


def test_a_task_that_calls_exit_is_no_death_of_its_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunFailedError, match=r"^a task called sys\.exit\(0\)$"):
        FakeTrainer(monkeypatch).run(lambda: sys.exit(0))


class PairError(Exception):
    """One that cannot be unpickled."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"odd {a} {b}")


def test_an_error_that_cannot_be_unpickled_is_the_tasks_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ray_module("calls")
    from ray.exceptions import RayError, RayTaskError

    text = "Traceback (most recent call last):\n  File x\nPairError: odd 1 2"
    raised = RayTaskError("run", text, PairError(1, 2), proctitle="p", pid=1, ip="1.2.3.4")  # type: ignore[no-untyped-call]

    def get(reference: object, timeout: float | None) -> None:
        raise RayError.from_bytes(raised.to_bytes())  # type: ignore[no-untyped-call]

    monkeypatch.setattr(module, "ray", SimpleNamespace(get=get))
    with pytest.raises(RunFailedError, match=r"^PairError: odd 1 2$"):
        module.result_of(None)
