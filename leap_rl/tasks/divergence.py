"""What becomes of a task that diverged."""

from __future__ import annotations

from typing import Literal

OnDivergence = Literal["stop", "restart_task", "drop_task"]
"""What happens when a task's numbers are no longer finite."""
