"""A snapshot of a task between two updates: agent, environments, gradient path and records.

A task that is restored from it ends with the same bits and rows as one that was left alone.

A method whose agents are carried over from round to round takes another of each when its round is
over, without path and records: `agent_to_carry` takes it, `carry_over` restores it in a later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.errors import RunFailedError, UnfitSnapshotError
from leap_rl.learners.task import Task
from leap_rl.meta.gradient_path import GradientPath
from leap_rl.storage.checksummed_file import decode_arrays, encode_arrays
from leap_rl.training.messages import Bytes
from leap_rl.training.trainer.recorder import TaskRecorder

TRAIN_AGAIN = "delete the run's slots/*/*.snapshot to have open tasks trained from their start"
"""Advice in errors about unusable snapshots."""

_UNFIT: Final = (LookupError, TypeError, ValueError, AttributeError, RuntimeError)
"""What numpy, torch and environments raise for a state that is none of theirs."""


def take_snapshot(task: Task, path: GradientPath, recorder: TaskRecorder) -> Bytes:
    """Return a snapshot as uint8 [bytes]; changes nothing."""
    records, metrics = recorder.state()
    parts: dict[str, Mapping[str, NDArray[Any]]] = {
        "task": task.state(),
        "path": {name: part.cpu().numpy() for name, part in path.state_dict().items()},
        "records": records,
    }
    arrays = {f"{part}/{name}": array for part in parts for name, array in parts[part].items()}
    return np.frombuffer(encode_arrays(arrays, metrics), dtype=np.uint8)


def restore_snapshot(
    snapshot: Bytes, task: Task, path: GradientPath, recorder: TaskRecorder
) -> None:
    """Restore a snapshot into a freshly made task, path and recorder.

    Raises:
        UnfitSnapshotError: It does not fit them: another version of something made it.
    """
    try:
        arrays, metrics = decode_arrays(snapshot.data)
        parts: dict[str, dict[str, NDArray[Any]]] = {"task": {}, "path": {}, "records": {}}
        for key, array in arrays.items():
            part, _, name = key.partition("/")
            parts[part][name] = array
        task.restore(parts["task"])
        # Copies: an array may be an unaligned view of the file's contents.
        path.load_state_dict(
            {name: torch.from_numpy(np.array(part)) for name, part in parts["path"].items()}
        )
        recorder.restore(parts["records"], metrics)
    except RunFailedError:
        raise
    except _UNFIT as error:
        raise UnfitSnapshotError(
            f"the task's snapshot cannot be resumed from ({type(error).__name__}: {error}); "
            f"{TRAIN_AGAIN}"
        ) from error


def agent_to_carry(task: Task) -> Bytes:
    """Return a task at the end of its round, for `carry_over`, as uint8 [bytes].

    To be called before `Task.end_point`, whose batch the agent never learns from.
    """
    return np.frombuffer(encode_arrays(task.state(), {}), dtype=np.uint8)


def carry_over(agent: Bytes, task: Task, theta0: Tensor) -> None:
    """Begin a round from `theta0`, float32 [P], with a freshly made task and a carried agent.

    Raises:
        UnfitSnapshotError: It does not fit: another version of something made it, or it is damaged.
    """
    try:
        arrays, _ = decode_arrays(agent.data)
        task.carry_over(arrays, theta0)
    except RunFailedError:
        raise
    except _UNFIT as error:
        raise UnfitSnapshotError(
            f"the agent that was carried over cannot be resumed ({type(error).__name__}: {error}); "
            "fork the run to have all agents start from scratch"
        ) from error
