"""Runs that the tests of this folder attack: making, changing and reading them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leap_rl.cli import main
from leap_rl.storage.run_folder import RunFolder
from tests.commands import LOCALLY

BOWLS = ["--config", "debug", "--task.agent_steps", "20", *LOCALLY]
META_STEPS = 3


def make(run: Path, *options: str) -> int:
    argv = ["train", *BOWLS, "--meta.meta_steps", str(META_STEPS), *options]
    return main([*argv, "--run_dir", str(run)])


def rewrite_checkpoint(run: Path, changes: dict[str, Any], *, to: int = 2, **files: bytes) -> None:
    """Write checkpoint 2 with changes to its state and files, and with valid checksums."""
    stored, state = RunFolder(run).read_checkpoint(2)
    kept = {key: state[key] for key in state.keys() - {"schema", "number", "sha256"}}
    named = {f"{name}.safetensors": content for name, content in files.items()}
    RunFolder(run).write_checkpoint(to, {**stored, **named}, {**kept, **changes})


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = lines_of(capsys)
    return line


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("leap-rl: ") for line in lines), lines
    return lines


def files_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        try:
            if path.is_file() and not path.is_symlink():
                yield path, path.read_bytes()
        except OSError:
            continue
