"""Computes in the tests as in a run: one thread, the same bits."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leap_rl.cli import EXIT_USAGE, main
from leap_rl.core.determinism import configure_torch, prepare_environment

prepare_environment()
configure_torch()
# Ray's workers are nice by default (15), and starve beside another test process on two cores.
os.environ.setdefault("RAY_worker_niceness", "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files: two workers that take a file at a time then end together."""
    items.sort(key=lambda item: "training" not in item.path.parts)


def pytest_collection_finish() -> None:
    """See that no test module imports Ray: what it finds in the environment then holds for good."""
    assert "ray" not in sys.modules, "import Ray in the test, after make_ray_runtime"


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    """Leave out fsync, a fifth of the time of a small run.

    No test here pulls the plug: tests/training/test_power_cut.py has a model of a disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which raises if it is no descriptor
        yield


@pytest.fixture(scope="module")
def without_plots() -> Iterator[None]:
    """Leave the plots out of reports; tests/evaluation and tests/cli/test_report.py draw them."""

    def write(panels: object, path: Path, **_: object) -> list[Path]:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_name(f"{path.name}.svg")
        file.write_text("<svg/>")
        return [file]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leap_rl.evaluation.report_plots.draw", write)
        yield


@pytest.fixture(scope="module")
def coarse_plots() -> Iterator[None]:
    """Draw plots of few pixels, which take most of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leap_rl.evaluation.plots.DPI", 30)
        yield


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that is refused, and returns the one line that is all it says."""

    def run(*words: object, status: int = EXIT_USAGE) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == status, words
        said = capsys.readouterr()
        assert said.out == ""
        (line,) = said.err.splitlines()
        assert line.startswith("leap-rl: ")
        return line

    return run


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes of pools from one that has imported what they need: seconds for each.

    Those of the commands in tests/benchmarks/test_experiment.py and tests/cli/test_bench.py import
    it themselves.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["benchmarks.harness.cells", "leap_rl.bench.worker_pool", "torch"]
    )
    monkeypatch.setattr("benchmarks.harness.cells.multiprocessing.get_context", lambda _: context)
    monkeypatch.setattr("leap_rl.bench.worker_pool.get_context", lambda _: context)


@pytest.fixture(autouse=True)
def _no_wandb_left() -> Iterator[None]:
    """End wandb's own process, whose address later tests would find in the environment."""
    yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()
        os.environ.pop("WANDB_SERVICE", None)


@pytest.fixture(autouse=True)
def _rays_environment() -> Iterator[None]:
    """Leave what Ray reads from the environment as it was: a run prepares it for its own cluster.

    A cluster that is joined gets a second to answer; one of our own may take several to start.
    """
    before = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    yield
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    os.environ.update(before)
