from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tracking import wandb_file


@pytest.fixture(autouse=True)
def _private_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keeps wandb off the user's settings and credentials, and lets no test see another's."""
    wandb_file.end()  # or the address of an earlier test's service would be restored afterwards
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_API_KEY", wandb_file.KEY)
    yield
    wandb_file.end()
