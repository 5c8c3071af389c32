"""What `leap-rl doctor` says of a machine, in a line for each thing."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import leap_rl
from leap_rl.cli import doctor, main
from leap_rl.training.runtime.ray import environment as ray_environment


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that starts at once."""
    monkeypatch.setattr(ray_environment, "probe_own_cluster", lambda: 0.1)


def lines(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What it says of each thing; Ray is two, and the last one counts."""
    said = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    return {name: f"{verdict} {text}" for verdict, name, text in said}


def test_a_fit_machine_is_told_with_all_versions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "LEAST_DISK_GIB", 0)
    monkeypatch.setattr(doctor, "LEAST_MEMORY_GIB", 0)
    assert main(["doctor"]) == 0
    said = lines(capsys)
    assert all(text.startswith("ok ") for text in said.values())
    assert said["leap_rl"] == f"ok {leap_rl.__version__}"
    for package in ("torch", "ale-py", "numpy", "wandb", "av"):
        assert said[package] == f"ok {version(package)}"
    assert said["ray"] == "ok a cluster of our own started and answered in 0.1 s"
    assert "mypy" not in said


def test_what_is_wrong_is_told_with_the_way_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def installed(name: str) -> str:
        if name in ("scipy", "av"):
            raise PackageNotFoundError(name)
        return "0.0.1" if name == "wandb" else version(name)

    def fails() -> float:
        raise OSError("no shared memory")

    monkeypatch.setattr(doctor, "version", installed)
    monkeypatch.setattr(doctor, "LEAST_DISK_GIB", 10**6)
    monkeypatch.setattr(ray_environment, "probe_own_cluster", fails)
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 1
    said = lines(capsys)
    assert said["scipy"].startswith("BAD is not installed; pip install 'scipy")
    assert said["wandb"].startswith("BAD 0.0.1 is installed, ")
    assert re.search(r"is needed; pip install 'wandb[<>=~!.,0-9]+'$", said["wandb"])
    assert said["disk"].startswith("BAD ")
    assert said["ray"] == (
        "BAD no cluster could be started here (no shared memory); --runtime.kind local works "
        "without"
    )
    assert "av" not in said  # which nobody has to have
    assert {name for name, text in said.items() if text.startswith("BAD")} == {
        "scipy",
        "wandb",
        "disk",
        "ray",
    }


def test_a_copy_that_is_not_installed_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    for name in ("version", "requires"):
        monkeypatch.setattr(doctor, name, missing)
    assert main(["doctor"]) == 1
    said = lines(capsys)
    assert said["leap_rl"].startswith("BAD is a copy that is not installed")
    assert said["python"].startswith("ok ")
    assert "torch" not in said
