"""A run as its processes get it: what makes its server and its trainers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from leap_rl.core.choices import OnDivergence
from leap_rl.core.errors import UnfitMachineError
from leap_rl.learners.task import TaskFactory
from leap_rl.meta.gradient_path import Method
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.faults import OnFaultPoint, no_fault
from leap_rl.training.rounds.plan import RoundPlanFactory
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.server.rounds import LeasePolicy, Rounds
from leap_rl.training.trainer.trainer import ServerClient, StreamSchedule, Trainer


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """What a server and its trainers are made from; small and picklable."""

    run_dir: str
    """The run's folder, which holds at least its first checkpoint."""
    fingerprint: str
    """SHA-256 of the defining config."""
    method: Method
    make_task: TaskFactory
    make_plan: RoundPlanFactory
    stream_every_s: float
    snapshot_every_s: float
    lease_policy: LeasePolicy
    keep_checkpoints: int | None = None
    lends_cores: bool = False
    """Whether trainers without a task lend their cores to those of their machine that have one."""
    session: str = field(default_factory=lambda: secrets.token_hex(8))
    """Identifies this driver in the leases of its trainers."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of packages on which the run's bits depend, as its driver has them."""
    on_divergence: OnDivergence = "stop"
    on_fault_point: OnFaultPoint = no_fault
    """Fault-injection callback of all processes; must be picklable."""

    def make_server(self, *, trainers_live: bool = False) -> ParameterServer:
        """Make the run's server; with ``trainers_live`` in place of one that died.

        Raises:
            RunFolderError: The folder lacks something, or what it holds is damaged.
        """
        folder = RunFolder(self.run_dir)
        rounds = Rounds(
            folder=folder,
            fingerprint=self.fingerprint,
            plan=self.make_plan(folder),
            lease_policy=self.lease_policy,
            keep_checkpoints=self.keep_checkpoints,
            session=self.session,
            trainers_live=trainers_live,
            on_fault_point=self.on_fault_point,
        )
        return ParameterServer(rounds=rounds, on_divergence=self.on_divergence)

    def _check_packages(self) -> None:
        """Raise ValueError for a machine with other versions; builds of one, as of CUDA, differ."""
        for name, wanted in self.packages.items():
            try:
                found = version(name)
            except PackageNotFoundError:
                found = "none"
            if found.partition("+")[0] != wanted.partition("+")[0]:
                raise ValueError(
                    f"it has {name} {found}, and the run's driver {wanted}, which computes other "
                    "bits; install the same on every machine"
                )

    def make_schedule(self) -> StreamSchedule:
        return StreamSchedule(
            stream_every_s=self.stream_every_s,
            snapshot_every_s=self.snapshot_every_s,
        )

    def make_trainer(
        self, *, name: str, incarnation: int, server: ServerClient, node: str | None = None
    ) -> Trainer:
        """Make a trainer that reaches the server by ``server``; ``node`` as of `messages.Claim`.

        Raises:
            UnfitMachineError: This machine cannot compute the run's tasks.
        """
        try:
            self._check_packages()
            self.make_task.check_machine()
        except ValueError as error:
            raise UnfitMachineError(f"{name} cannot join: {error}") from None
        return Trainer(
            name=name,
            incarnation=incarnation,
            server=server,
            make_task=self.make_task,
            method=self.method,
            node=node,
            on_fault_point=self.on_fault_point,
        )
