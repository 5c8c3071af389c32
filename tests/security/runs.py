"""Runs that the tests of this folder attack: how they are made, and what they leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leap_rl.cli import main

QUIET = ["--runtime.kind", "local", "--tracking.tensorboard", "false"]
QUIET += ["--tracking.console", "quiet"]
BOWLS = ["--config", "debug", "--task.agent_steps", "20", *QUIET]
META_STEPS = 3


def make(run: Path, *options: str) -> int:
    argv = ["train", *BOWLS, "--meta.meta_steps", str(META_STEPS), *options]
    return main([*argv, "--run_dir", str(run)])


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("leap-rl: ") for line in lines), lines
    return lines


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def files_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        try:
            if path.is_file() and not path.is_symlink():
                yield path, path.read_bytes()
        except OSError:
            continue
