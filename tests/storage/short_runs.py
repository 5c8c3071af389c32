"""Short runs, and what tells two of them apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from leap_rl.storage.run_folder import RunFolder

BOWLS = ["--config", "debug", "--task.agent_steps", "40"]
BOWLS += ["--runtime.kind", "local", "--tracking.console", "quiet"]

Become = Callable[[str], Path]


def sums(folder: RunFolder, number: int) -> dict[str, str]:
    return dict(folder.read_state(number)["sha256"])
