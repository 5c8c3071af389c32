"""A task frozen between two updates: agent, environments, gradient path and records.

Whoever thaws it goes on to the same bits and the same rows as whoever froze it would have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from leap_rl.messages import Bytes
from leap_rl.meta.gradient_path import GradientPath
from leap_rl.sealed import SealError, seal, unseal
from leap_rl.tasks.task import Task
from leap_rl.training.errors import RunFailedError
from leap_rl.training.recorder import TaskRecorder


def freeze(task: Task, path: GradientPath, recorder: TaskRecorder) -> Bytes:
    """Return a snapshot as uint8 [bytes]; a pure read."""
    records, figures = recorder.state()
    parts: dict[str, Mapping[str, NDArray[Any]]] = {
        "task": task.state(),
        "path": {name: part.cpu().numpy() for name, part in path.state_dict().items()},
        "records": records,
    }
    arrays = {f"{part}/{name}": array for part in parts for name, array in parts[part].items()}
    return np.frombuffer(seal(arrays, figures), dtype=np.uint8)


def thaw(snapshot: Bytes, task: Task, path: GradientPath, recorder: TaskRecorder) -> None:
    """Go on from a snapshot with a freshly made task, path and recorder.

    Raises:
        RunFailedError: It does not fit them: another version of something made it.
    """
    try:
        arrays, figures = unseal(snapshot.data)
        parts: dict[str, dict[str, NDArray[Any]]] = {"task": {}, "path": {}, "records": {}}
        for key, array in arrays.items():
            part, _, name = key.partition("/")
            parts[part][name] = array
        task.restore(parts["task"])
        # Copies: an array may be a view of the file's contents, and not even aligned.
        path.load_state_dict(
            {name: torch.from_numpy(np.array(part)) for name, part in parts["path"].items()}
        )
        recorder.restore(parts["records"], figures)
    except (SealError, ValueError, KeyError, TypeError) as error:
        raise RunFailedError(
            f"the task's snapshot cannot be gone on from ({type(error).__name__}: {error}); "
            "delete the run's slots/*/*.snapshot to have open tasks trained from their start"
        ) from error
