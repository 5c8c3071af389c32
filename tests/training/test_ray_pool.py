"""The pool follows the cluster: pretended nodes come and go. Ray is started again if it fails."""

from __future__ import annotations

import logging
import signal
import subprocess
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leap_rl.core.errors import RunFailedError, UnfitMachineError
from leap_rl.training.config import Joined
from leap_rl.training.faults import FaultPoint
from leap_rl.training.runtime.ray.environment import make_ray_runtime
from leap_rl.training.server.rounds import LeasePolicy
from tests.training.fakes import ray_module

if TYPE_CHECKING:
    from leap_rl.training.runtime.ray.trainer_pool import TrainerPool

JOB: Any = SimpleNamespace(
    lease_policy=LeasePolicy(lease_s=60.0, max_attempts=2), on_fault_point=lambda fault_point: None
)
SERVER = SimpleNamespace(trainer_lost="trainer_lost")


def pool_module() -> Any:
    return ray_module("trainer_pool")


@dataclass
class FakeCluster:
    """Ray as far as a pool sees it; a trainer's reference is its name and incarnation."""

    nodes: dict[str, dict[str, float]] = field(default_factory=dict)
    now_s: float = 1000.0
    started: list[str] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)
    ended: dict[str, Exception | None] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    node: str = "n0"
    """Where trainers are that say where they are."""

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None: ...

    def actor(self, cls: type, **options: Any) -> Any:
        def run(run_spec: object, name: str, incarnation: int, server: object) -> str:
            self.options.append(options)
            self.started.append(f"{name}/{incarnation}")
            return self.started[-1]

        handle = SimpleNamespace(
            run=SimpleNamespace(remote=run), node=SimpleNamespace(remote=lambda: "node?")
        )
        return SimpleNamespace(remote=lambda: handle)

    def wait(self, references: list[str], timeout: float) -> tuple[list[str], list[str]]:
        return [one for one in references if one in self.ended], []

    def kill(self, actor: object) -> None: ...

    def result_of(self, reference: str) -> str | None:
        if reference == "node?":
            return self.node
        error = self.ended.pop(reference)
        if error is not None:
            raise error
        return None

    def ask(self, method: str, trainer: str, cause: str) -> None:
        assert method == "trainer_lost"
        assert cause
        self.lost.append(trainer)

    def end(self, trainer: str, error: Exception | None = None) -> None:
        from ray.exceptions import ActorDiedError

        self.ended[trainer] = error or ActorDiedError()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster({"n0": {"CPU": 2.0}})
    for name in ("ray", "time"):
        monkeypatch.setattr(pool_module(), name, fake)
    for name in ("actor", "ask", "result_of"):
        monkeypatch.setattr(pool_module(), name, getattr(fake, name))
    monkeypatch.setattr(pool_module(), "living_nodes", lambda: dict(fake.nodes))
    return fake


def make_crew(trainers: int | None = None, cores: int = 1) -> TrainerPool:
    pool: TrainerPool = pool_module().RunPool(
        run_spec=JOB,
        server=SERVER,
        resources=pool_module().TrainerResources(cores=cores, gpus=0.0),
        trainers=trainers,
        max_attempts=JOB.lease_policy.max_attempts,
        on_fault_point=JOB.on_fault_point,
    )
    return pool


def replace_dead(pool: TrainerPool) -> None:
    pool.wait(0.0)
    pool.fill(4)


@pytest.mark.parametrize(
    ("cores", "gpus", "resources", "places"),
    [
        (1, 0.0, {"CPU": 4.0}, 4),
        (2, 0.0, {"CPU": 3.0}, 1),
        (1, 0.0, {"GPU": 4.0}, 0),
        (1, 0.5, {"CPU": 16.0}, 0),
        (1, 1 / 3, {"CPU": 16.0, "GPU": 1.0}, 3),
        (1, 0.4, {"CPU": 16.0, "GPU": 4.0}, 8),
        (1, 2.0, {"CPU": 16.0, "GPU": 5.0}, 2),
        (4, 1 / 16, {"CPU": 16.0, "GPU": 1.0}, 4),
    ],
)
def test_places_of_a_node(
    cores: int, gpus: float, resources: dict[str, float], places: int
) -> None:
    assert pool_module().TrainerResources(cores=cores, gpus=gpus).places(resources) == places


@pytest.mark.parametrize(
    ("cores", "gpus", "says"),
    [
        (1, 0.25, None),
        (4, 0.0, None),
        (5, 0.0, "runtime.env_processes = 5: no node .* CPUs; the most is 4"),
        (1, 2.0, "runtime.gpus_per_trainer = 2: no node .* GPUs; the most is 1"),
    ],
)
def test_what_no_node_has_is_refused(cores: int, gpus: float, says: str | None) -> None:
    resources = pool_module().TrainerResources(cores=cores, gpus=gpus)
    nodes = {"head": {"CPU": 0.0}, "n0": {"CPU": 4.0}, "n1": {"CPU": 2.0, "GPU": 1.0}}
    with pytest.raises(RunFailedError, match=says) if says else nullcontext():
        resources.check(nodes)
    resources.check({"head": {"CPU": 0.0, "memory": 1e9}})  # nodes with cores are yet to come


@pytest.mark.parametrize(
    ("cpus", "cores", "slots", "count"),
    [
        (2.0, 1, 1, 1),
        (2.0, 1, 3, 3),
        (2.0, 1, 5, 4),
        (3.0, 2, 9, 2),  # each place is on one node: not the three that six cores would make
    ],
)
def test_there_are_as_many_as_there_are_places_and_slots(
    cluster: FakeCluster, cpus: float, cores: int, slots: int, count: int
) -> None:
    cluster.nodes = {"n0": {"CPU": cpus}, "n1": {"CPU": cpus}}
    make_crew(cores=cores).fill(slots)
    assert cluster.started == [f"trainer-{i}/1" for i in range(count)]


def test_a_node_that_joins_gets_trainers_soon(cluster: FakeCluster) -> None:
    pool = make_crew()
    pool.fill(4)
    cluster.nodes["n1"] = {"CPU": 1.0}
    cluster.now_s += pool_module().LOOK_EVERY_S - 0.1
    pool.fill(4)
    assert len(cluster.started) == 2  # it does not ask all the time
    cluster.now_s += 0.1
    pool.fill(4)
    assert cluster.started[2:] == ["trainer-2/1"]


def test_a_trainer_is_replaced_only_where_there_is_room(cluster: FakeCluster) -> None:
    cluster.nodes = {"n0": {"CPU": 1.0}, "n1": {"CPU": 1.0}}
    pool = make_crew()
    pool.fill(4)
    cluster.end("trainer-0/1")
    replace_dead(pool)
    assert cluster.lost == ["trainer-0"]
    assert cluster.started[2:] == ["trainer-0/2"]

    del cluster.nodes["n1"]
    cluster.end("trainer-1/1")
    replace_dead(pool)
    assert cluster.lost == ["trainer-0", "trainer-1"]
    assert len(cluster.started) == 3  # nobody waits for a node that is gone

    cluster.nodes["n2"] = {"CPU": 2.0}
    cluster.now_s += pool_module().LOOK_EVERY_S
    pool.fill(4)
    # The name is taken up again, in its next life: the server frees what the last one held.
    assert cluster.started[3:] == ["trainer-1/2", "trainer-2/1"]


def test_a_fixed_number_is_kept_with_or_without_room(cluster: FakeCluster) -> None:
    pool = make_crew(trainers=3)
    pool.fill(1)
    assert len(cluster.started) == 3
    cluster.nodes = {}
    cluster.end("trainer-1/1")
    pool.wait(0.0)
    pool.fill(1)
    assert cluster.started[3:] == ["trainer-1/2"]


def test_where_there_is_no_room_one_waits_and_it_is_said_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.nodes = {"head": {"CPU": 0.0}}
    pool = make_crew()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            pool.fill(4)
            cluster.now_s += pool_module().LOOK_EVERY_S
    assert cluster.started == ["trainer-0/1"]
    assert [record.message for record in caplog.records] == [
        "no node of the cluster has room for a trainer: waiting for one that has"
    ]


def test_a_node_that_cannot_compute_the_run_is_left_alone(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.nodes["n1"] = {"CPU": 1.0}
    pool = make_crew()
    pool.fill(4)
    cluster.node = "n1"
    cluster.end("trainer-2/1", UnfitMachineError("trainer-2 cannot join: no units"))
    replace_dead(pool)
    assert len(cluster.started) == 3
    assert cluster.lost == []
    assert "cannot join: no units" in caplog.text
    cluster.end("trainer-0/1")
    replace_dead(pool)
    assert cluster.started[3:] == ["trainer-0/2"]
    assert cluster.options[2].keys() == {"num_cpus", "num_gpus"}
    assert cluster.options[3]["label_selector"] == {"ray.io/node-id": "!in(n1)"}

    cluster.node = "n0"
    cluster.end("trainer-1/1", UnfitMachineError("trainer-1 cannot join: no units"))
    with pytest.raises(UnfitMachineError, match="trainer-1 cannot join"):
        pool.wait(0.0)  # there is no other node


def test_an_end_is_no_death(cluster: FakeCluster) -> None:
    pool = make_crew()
    pool.fill(2)
    cluster.ended["trainer-0/1"] = None  # the run has no more work
    pool.wait(0.0)
    assert cluster.lost == []
    assert pool.deaths_since_progress == 0


def test_its_own_error_stops_the_run(cluster: FakeCluster) -> None:
    pool = make_crew()
    pool.fill(2)
    cluster.end("trainer-0/1", RunFailedError("the numbers went bad"))
    with pytest.raises(RunFailedError, match="the numbers went bad"):
        pool.wait(0.0)


def test_trainers_that_die_again_and_again_stop_the_run(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault_points: list[FaultPoint] = []
    monkeypatch.setattr(JOB, "on_fault_point", fault_points.append)
    pool = make_crew(trainers=2)
    for life in range(1, 9):
        pool.fill(2)
        cluster.end(f"trainer-0/{life}")
        pool.wait(0.0)
    pool.fill(2)
    cluster.end("trainer-0/9")  # more than twice 2 attempts of 2 trainers
    with pytest.raises(RunFailedError, match="die again and again, the last one trainer-0"):
        pool.wait(0.0)
    assert fault_points == [FaultPoint.DRIVER_REPLACING] * 9


# -- the start of a cluster -----------------------------------------------------------------------

RAYLET = "The current node timed out during startup: raylet failed to startup\nand more"


class FailingRay:
    """Stands for Ray, whose first starts fail."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls: list[str] = []
        self.left: list[subprocess.Popen[bytes]] = []

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        self.calls.append(f"init {options['address']}")
        if self.calls.count(self.calls[-1]) <= self.failures:
            self.left.append(subprocess.Popen(["sleep", "60"]))
            raise ConnectionError(RAYLET)

    def shutdown(self) -> None:
        self.calls.append("shutdown")


def start(
    ray: FailingRay,
    address: str | None,
    monkeypatch: pytest.MonkeyPatch,
    metrics_port: int | None = None,
) -> None:
    runtime = ray_module("runtime")
    monkeypatch.setattr(runtime, "ray", ray)
    with runtime.cluster(address, 1, metrics_port):
        ray.calls.append("run")


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_start_that_fails_is_tried_again(
    failures: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    ray = FailingRay(failures)
    start(ray, None, monkeypatch)
    assert ray.calls == ["init local", "shutdown"] * failures + ["init local", "run", "shutdown"]
    assert [process.wait(timeout=5) for process in ray.left] == [-signal.SIGKILL] * failures
    told = "Ray did not start (The current node timed out during startup: raylet failed to startup)"
    assert caplog.messages == [f"{told}; try {number} of 3" for number in range(2, 2 + failures)]


def test_the_third_failure_stops_the_run_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FailingRay(3)
    with pytest.raises(RunFailedError, match=r"in 3 tries \(.* raylet failed to startup\); --run"):
        start(ray, None, monkeypatch)
    assert ray.calls == ["init local", "shutdown"] * 3


def test_a_cluster_that_is_joined_takes_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FailingRay(0)
    with pytest.raises(RunFailedError, match=r"metrics_port = 9464: the cluster of RAY_ADDRESS ="):
        start(ray, "10.0.0.1:6379", monkeypatch, metrics_port=9464)
    assert ray.calls == []


def test_a_run_of_shared_trainers_has_no_port_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    joined = Joined(address="127.0.0.1:6379", namespace="study")
    runtime: Any = make_ray_runtime(trainers=2, address=None, metrics_port=9464, joined=joined)
    assert (runtime.address, runtime.metrics_port) == (joined.address, None)


def test_of_an_actor_that_could_not_be_made_the_reason_is_told() -> None:
    lines = [
        "The actor died because of an error raised in its creation task, \x1b[36mray::It\x1b[39m",
        "RuntimeError: The actor could not be imported",
        "\x1b[31mModuleNotFoundError: No module named 'mine'\x1b[39m\n",
    ]
    calls = ray_module("calls")
    told = "ModuleNotFoundError: No module named 'mine'"
    assert calls.first_line(RuntimeError("\n".join(lines))) == told
    assert calls.first_line(RuntimeError("\n".join(lines[1:]))) == lines[1]


def test_a_cluster_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FailingRay(1)
    with pytest.raises(RunFailedError, match="no Ray cluster answers there"):
        start(ray, "10.0.0.1:6379", monkeypatch)
    assert ray.calls == ["init 10.0.0.1:6379"]
    assert [process.poll() for process in ray.left] == [None], "it is not this run's"
    ray.left[0].kill()
    ray.left[0].wait()
