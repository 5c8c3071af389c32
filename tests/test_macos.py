"""The commands on a system that has not what Linux alone has, by imitation."""

from __future__ import annotations

import builtins
import ctypes
import io
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import torch

from leap_rl.cli import main
from leap_rl.core import determinism
from leap_rl.core.determinism import has_bfloat16_units
from leap_rl.storage import run_lock
from leap_rl.training.runtime.ray.security import private_folder

PACKAGE = str(Path(run_lock.__file__).parents[1])

LINUX_ALONE: list[tuple[ModuleType | type, list[str]]] = [
    (os, ["sched_getaffinity", "sched_setaffinity", "posix_fadvise", "posix_fallocate"]),
    (os, ["copy_file_range", "eventfd", "memfd_create", "pidfd_open", "getrandom", "getxattr"]),
    (os, ["O_DIRECT", "O_NOATIME", "O_PATH", "POSIX_FADV_DONTNEED", "fdatasync"]),
    (signal, ["sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGPWR", "SIGSTKFLT"]),
    (select, ["epoll"]),
    (time, ["CLOCK_BOOTTIME", "CLOCK_TAI"]),
    (psutil.Process, ["cpu_affinity", "io_counters", "memory_maps", "rlimit"]),
]


@pytest.fixture
def without_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what psutil and others need as it is: it is leap_rl that looks elsewhere."""
    for owner, names in LINUX_ALONE:
        for name in names:
            monkeypatch.delattr(owner, name, raising=False)
    for owner, name in [(builtins, "open"), (io, "open"), (os, "open"), (os, "readlink")]:
        monkeypatch.setattr(owner, name, _without_proc(getattr(owner, name)))
    monkeypatch.setattr(ctypes, "CDLL", _without_glibc(ctypes.CDLL))
    monkeypatch.setattr(sys, "platform", "darwin")
    run_lock.boot_id.cache_clear()


def _without_proc(function: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(path: Any, *arguments: Any, **options: Any) -> Any:
        if str(path).startswith(("/proc", "/sys")) and _is_asked_by_leap_rl():
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return function(path, *arguments, **options)

    return refuse


def _is_asked_by_leap_rl() -> bool:
    """Whether the innermost caller that is no module of Python's own is of this package."""
    frame = sys._getframe(2)
    while frame.f_back is not None and "site-packages" not in frame.f_code.co_filename:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return True
        frame = frame.f_back
    return False


def _without_glibc(load: Callable[..., Any]) -> Callable[..., Any]:
    return lambda name, *rest, **options: object() if name is None else load(name, *rest, **options)


def train(folder: Path) -> bytes:
    """Meta-train for a moment; returns the initialization."""
    argv = ["train", "--config", "minatar", "--runtime.kind", "local", "--run_dir", str(folder)]
    tiny = {
        "meta.meta_steps": 1,
        "meta.batch_size": 1,
        "task.games": "MinAtar/Freeway-v1",
        "task.agent_steps": 160,
        "tracking.console": "plain",
    }
    words = [f"--{name}={value}" for name, value in tiny.items()]
    assert main([*argv, *words]) == 0
    (file,) = folder.glob("checkpoints/*1/initialization.safetensors")
    return file.read_bytes()


@pytest.fixture(scope="module")
def on_linux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of this system; with it every library is imported that is chosen by the system."""
    folder = tmp_path_factory.mktemp("linux") / "run"
    train(folder)
    assert main(["report", str(folder)]) == 0
    return folder


def test_a_run_needs_nothing_of_linux_alone(
    on_linux: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("without_linux")
    theirs = (on_linux / "checkpoints/000001/initialization.safetensors").read_bytes()
    assert train(tmp_path / "run") == theirs
    assert main(["resume", str(tmp_path / "run"), "--meta.meta_steps", "2"]) == 0
    assert main(["verify", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize("words", [["report", "RUN"], ["games"], ["watch", "RUN"]])
def test_a_command_needs_nothing_of_linux_alone(
    words: list[str], on_linux: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("without_linux")
    assert main([str(on_linux) if word == "RUN" else word for word in words]) == 0


def test_the_processor_is_named_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[1:] == ["-n", "machdep.cpu.brand_string"]
        return subprocess.CompletedProcess(command, 0, stdout="Apple M4\n")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", answer)
    determinism.processor_kind.cache_clear()
    assert determinism.processor_kind().startswith("Apple M4, ")
    determinism.processor_kind.cache_clear()


@pytest.mark.parametrize("capabilities", [{"neon": True, "bf16": True}, None])
def test_there_are_no_units_for_bfloat16(
    capabilities: dict[str, bool] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if capabilities is None:  # an older torch
        monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    else:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert not has_bfloat16_units()


@pytest.mark.parametrize(("system", "parent"), [("linux", "/private/tmp"), ("darwin", "/tmp")])
def test_the_paths_of_rays_sockets_are_short_enough(
    system: str, parent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/private/tmp")
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix, dir: f"{dir}/{prefix}x")
    assert private_folder.__wrapped__().parent == Path(parent)
