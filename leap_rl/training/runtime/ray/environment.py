"""The environment that Ray reads when it is imported: quiet, private, quick to fail.

A cluster of our own listens on loopback alone, asks for a token, and keeps its files in a folder
that only this user can enter. One that is joined has its own token, which Ray finds in
RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from leap_rl.core.errors import RunFailedError
from leap_rl.training.config import ADDRESSES, Joined, is_cluster_address
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.runtime.ray.security import private_folder, refuse_without_token

if TYPE_CHECKING:
    from leap_rl.training.runtime.local import Runtime
    from leap_rl.training.runtime.ray.shared_trainers import SharedPool

_ALWAYS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Even with log_to_driver=False Ray prints its daemons' errors to stdout; this skips them all.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
}

_OWN_CLUSTER = {
    "RAY_AUTH_MODE": "token",
    # The one setting that makes every port of a local cluster bind to 127.0.0.1.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}

# Defaults: what the user has set for his cluster stays.
_JOINED_CLUSTER = {
    "RAY_AUTH_MODE": "token",
    # Fail within seconds, not many minutes, where there is no cluster.
    "RAY_NUM_REDIS_GET_RETRIES": "1",
    "RAY_py_gcs_connect_timeout_s": "3",
    "RAY_gcs_rpc_server_connect_timeout_s": "1",
}

LOCAL = "local"
"""An address that always starts a cluster of our own."""

AUTO = "auto"
"""The address of the cluster that a node of this machine belongs to."""


def make_ray_runtime(
    *,
    trainers: int | None,
    address: str | None,
    trainer_cores: int = 1,
    trainer_gpus: float = 0.0,
    metrics_port: int | None = None,
    interrupts: Interrupts | None = None,
    joined: Joined | None = None,
) -> Runtime:
    """Prepare the environment, import Ray, and return the runtime.

    Arguments are as of `RayRuntime` and `TrainerResources`. Without an address the run joins the
    cluster in RAY_ADDRESS, or else starts one of its own. With ``joined`` it has the trainers
    there.

    Raises:
        RunFailedError: The cluster is beyond this machine, and RAY_AUTH_MODE turns tokens off; or
            RAY_ADDRESS is none.
    """
    interrupts = interrupts or Interrupts()
    address = _prepare(joined.address if joined else address, interrupts)

    from leap_rl.training.runtime.ray.runtime import RayRuntime
    from leap_rl.training.runtime.ray.trainer_pool import TrainerResources

    return RayRuntime(
        trainers=trainers,
        address=address,
        resources=TrainerResources(cores=trainer_cores, gpus=trainer_gpus),
        metrics_port=None if joined else metrics_port,  # of the cluster of those trainers
        interrupts=interrupts,
        namespace=joined.namespace if joined else None,
    )


def share_trainers(
    *,
    trainers: int | None,
    address: str | None,
    trainer_cores: int,
    trainer_gpus: float,
    max_attempts: int,
    metrics_port: int | None,
    interrupts: Interrupts,
) -> AbstractContextManager[SharedPool]:
    """Prepare the environment, import Ray, and have trainers for several runs.

    Arguments are as of `make_ray_runtime`; a run joins them by the pool's `joined`.

    Raises:
        RunFailedError: As of `make_ray_runtime`; or there is no such cluster.
    """
    address = _prepare(address, interrupts)

    from leap_rl.training.runtime.ray.shared_trainers import shared_pool
    from leap_rl.training.runtime.ray.trainer_pool import TrainerResources

    return shared_pool(
        trainers=trainers,
        address=address,
        resources=TrainerResources(cores=trainer_cores, gpus=trainer_gpus),
        max_attempts=max_attempts,
        metrics_port=metrics_port,
        namespace=f"leap_rl-{secrets.token_hex(8)}",
        interrupts=interrupts,
    )


def _prepare(address: str | None, interrupts: Interrupts) -> str | None:
    """Set the environment; return the address of the cluster to join, none for one of our own."""
    if not is_cluster_address(where := cluster_address(address)):
        raise RunFailedError(
            f"RAY_ADDRESS = {where}: must be {ADDRESSES}; or give --runtime.address, or unset it "
            "for a cluster of this machine's own"
        )
    address = where
    os.environ.update(_ALWAYS)
    if address == LOCAL:
        os.environ.update(_OWN_CLUSTER)
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(_token_file(private_folder()))
        os.environ.pop("RAY_AUTH_TOKEN", None)
        os.environ.pop("RAY_ADDRESS", None)
        interrupts.on_leaving(partial(shutil.rmtree, private_folder(), ignore_errors=True))
    else:
        for name, value in _JOINED_CLUSTER.items():
            os.environ.setdefault(name, value)
        if address != AUTO:  # which is known only when it is joined
            refuse_without_token(address)
    return None if address == LOCAL else address


def cluster_address(address: str | None) -> str:
    """Return the address of the cluster to join, or `local` for one of our own."""
    return address or os.environ.get("RAY_ADDRESS") or LOCAL


def probe_own_cluster() -> float:
    """Start a cluster of our own and end it; returns the seconds until an actor answers."""
    make_ray_runtime(trainers=1, address=LOCAL)
    from leap_rl.training.runtime.ray.runtime import probe

    return probe()


def _token_file(folder: Path) -> Path:
    path = folder / "token"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32), encoding="ascii")
    return path
