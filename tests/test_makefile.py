"""`make setup` makes .venv again for another Python, and for nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """With a .venv of Python 3.11.9 that is set up, and with three commands."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    for path, version in [
        (".venv/bin/python", "3.11.9"),
        ("python3", "3.12.1"),
        ("python3.11", "3.11.9"),
        ("python3.13", "3.13.5"),
    ]:
        command = tmp_path / path
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(f"#!/bin/sh\necho Python {version}\n")
        command.chmod(0o755)
    (tmp_path / ".venv/bin/pip").touch()
    (tmp_path / ".venv/.installed").touch()
    return tmp_path


def commands_of_setup(checkout: Path, *arguments: str, **variables: str) -> str:
    ours = ("PYTHON", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL")  # of `make test`
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        ["make", "--dry-run", "setup", *arguments],
        cwd=checkout,
        env={**environment, "PATH": f"{checkout}:{environment['PATH']}", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_it_does_nothing_where_all_is_set_up(checkout: Path) -> None:
    assert "pip install" not in commands_of_setup(checkout)
    assert "pip install" not in commands_of_setup(checkout, "PYTHON=python3.11")


def test_a_python_that_is_named_replaces_the_venv_of_another_one(checkout: Path) -> None:
    for made in (
        commands_of_setup(checkout, "PYTHON=python3.13"),
        commands_of_setup(checkout, PYTHON="python3.13"),
    ):
        assert "python3.13 -m venv --clear .venv" in made
        assert "pip install" in made


def test_new_locked_versions_go_into_the_venv_that_is_there(checkout: Path) -> None:
    later = (checkout / ".venv/.installed").stat().st_mtime + 1
    os.utime(checkout / "requirements.lock", (later, later))
    made = commands_of_setup(checkout)
    assert "pip install" in made
    assert "-m venv" not in made


def test_a_venv_that_is_not_whole_is_made_again(checkout: Path) -> None:
    (checkout / ".venv/.installed").unlink()
    (checkout / ".venv/bin/pip").unlink()
    assert "python3 -m venv --clear .venv" in commands_of_setup(checkout)
