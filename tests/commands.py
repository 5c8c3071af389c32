"""Commands as tests give them: options of small runs, processes of their own, what runs leave."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from leap_rl.cli import main
from leap_rl.core.parsing import config_parser, parse
from leap_rl.runs import header
from leap_rl.storage.run_folder import RunFolder

QUIET = ["--tracking.tensorboard", "false", "--tracking.console", "quiet"]
LOCALLY = ["--runtime.kind", "local", *QUIET]
BOWLS = ["--config", "debug", "--task.agent_steps", "40", *LOCALLY]

CATCH = ["--task.kind", "catch", "--task.games", "all", "--task.num_envs", "2"]
# As many agent steps as each environment takes for an episode.
CATCH += ["--agent.lr", "0.003", "--task.agent_steps", "120"]
META = ["--meta.batch_size", "2", "--meta.meta_steps", "2"]

C = TypeVar("C")
Process = subprocess.Popen[str]
Refused = Callable[..., str]
"""Runs a command that must be refused in one line, and returns the line; see conftest.py."""


def parsed(config: type[C], *words: str | Path) -> C:
    """The config that a command line asks for."""
    return parse(config_parser(config, program="test"), config, [*map(str, words)])


def undisturbed(folder: Path, *options: str) -> RunFolder:
    """A run of meta-training, made here and not disturbed."""
    argv = ["train", *options, "--run_dir", str(folder), "--runtime.kind", "local"]
    assert main(argv) == 0
    return RunFolder(folder)


def start(
    *words: str | Path, cwd: Path, program: Sequence[str] = ("-m", "leap_rl"), **options: Any
) -> Process:
    """A command in a process of its own, and of a group of its own, as in a terminal."""
    return subprocess.Popen(
        [sys.executable, *program, *map(str, words)],
        cwd=cwd,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def wait_until(condition: Callable[[], object], process: Process, within_s: float = 120.0) -> None:
    """Wait for something to come true while a process lives."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def sums(run: Path, number: int) -> dict[str, str]:
    """The SHA-256 of a checkpoint's files, by name."""
    return dict(RunFolder(run).read_state(number)["sha256"])


def contents(folder: Path) -> dict[str, bytes | None]:
    """What is in a folder: the bytes of each file, and none for folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def make_older(folder: RunFolder, *names: str) -> None:
    """Make a run one of an older leap_rl, which did not know some options."""
    run = header.read_run(folder)
    options = folder.read_config()
    fingerprint = header.fingerprint(run.config, run.header.init_sha256, without=names)
    for name in names:
        group, _, last = name.partition(".")
        options.get(group, {}).pop(last, None)
    options["fingerprint"] = fingerprint
    options["made_by"][0]["leap_rl"] = "0.0.9"
    folder.write_config(options)
    for number in folder.checkpoints():  # which are of that run
        files, state = folder.read_checkpoint(number)
        if state.get("fingerprint"):
            for key in ("schema", "number", "sha256"):
                del state[key]
            folder.write_checkpoint(number, files, {**state, "fingerprint": fingerprint})
