"""Somebody else's files run no code, write nowhere else, and get one clear line."""

from __future__ import annotations

import http.server
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from leap_rl.cli import EXIT_USAGE, main
from leap_rl.compute.machine import descendants
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.sealed import seal
from leap_rl.storage.state_file import CHECKSUM, checksum
from leap_rl.storage.urls import redacted
from leap_rl.training.errors import RunFailedError
from leap_rl.training.runtime.ray.security import (
    is_loopback,
    refuse_open_cluster,
    refuse_without_token,
)
from leap_rl.training.server.parameter_server import ParameterServer

pytestmark = pytest.mark.usefixtures("without_plots")

QUIET = ["--runtime.kind", "local", "--tracking.tensorboard", "false"]
QUIET += ["--tracking.console", "quiet"]
BOWLS = ["--config", "debug", "--task.agent_steps", "20", *QUIET]
META_STEPS = 3
FLOATS = np.zeros(32, dtype=np.float32).tobytes()


class Attack:
    """Creates a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.canary), "w")


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that must not come to be."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists(), "code was run"


def make(run: Path, *options: str) -> int:
    argv = ["train", *BOWLS, "--meta.meta_steps", str(META_STEPS), *options]
    return main([*argv, "--run_dir", str(run)])


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The sums of what an undisturbed run comes to."""
    run = tmp_path_factory.mktemp("calm") / "run"
    assert make(run) == 0
    return dict(RunFolder(run).read_state(META_STEPS)["sha256"])


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in its third meta-step: a slot is complete, another has a snapshot."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    stream = ParameterServer.stream

    def stop(self: ParameterServer, message: Any) -> object:
        answer = stream(self, message)
        ticket, saved = message.ticket, message.snapshot is not None and message.n > 0
        if ticket.round == 2 and ticket.slot == 1 and saved:
            raise KeyboardInterrupt
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParameterServer, "stream", stop)
        assert make(run, "--meta.meta_steps", "2") == 0
        often = ["--runtime.stream_every_s", "1e-6", "--runtime.snapshot_every_s", "1e-6"]
        assert main(["resume", str(run), "--meta.meta_steps", str(META_STEPS), *often]) == 130
    names = {path.name for path in RunFolder(run).slots(2).iterdir()}
    assert names >= {"000.safetensors", "001.lease", "001.snapshot"}
    return run


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it that is somebody else's."""
    shutil.copytree(stopped, tmp_path / "run")
    return tmp_path / "run"


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("leap-rl: ") for line in lines), lines
    return lines


# -- files that are not what their names say --------------------------------------------------


def safetensors(header: object, body: bytes = FLOATS) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def theta(**changes: object) -> dict[str, object]:
    entry = {"dtype": "F32", "shape": [32], "data_offsets": [0, 128]}
    return {"theta": {**entry, **changes}}


def pickled(canary: Path) -> bytes:
    return pickle.dumps(Attack(canary))


def pickled_array(canary: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Attack(canary)], dtype=object), allow_pickle=True)
    return file.getvalue()


ENTRY = '"theta":{"dtype":"F32","shape":[32],"data_offsets":[0,128]}'

LIES: dict[str, Callable[[Path], bytes]] = {
    "pickle": pickled,
    "array of objects": pickled_array,
    "header without end": lambda _: (2**63).to_bytes(8, "little") + b"{}",
    "header beyond the file": lambda _: (1000).to_bytes(8, "little") + b"{}",
    "header of a gigabyte": lambda _: (2**30).to_bytes(8, "little") + b"{" + b" " * 1000,
    "deep header": lambda _: safetensors(b'{"a":' * 20_000),
    "offsets beyond the file": lambda _: safetensors(theta(shape=[2**20], data_offsets=[0, 2**22])),
    "offsets below zero": lambda _: safetensors(theta(data_offsets=[-128, 0])),
    "offsets that overlap": lambda _: safetensors({**theta(), "other": theta()["theta"]}),
    "size that overflows": lambda _: safetensors(theta(shape=[2**62, 2**62])),
    "size of nothing": lambda _: safetensors(theta(shape=[0, 2**62])),
    "objects": lambda _: safetensors(theta(dtype="O")),
    "numbers that NumPy lacks": lambda _: safetensors(theta(dtype="BF16", shape=[64])),
    "a name twice": lambda _: safetensors(f"{{{ENTRY},{ENTRY}}}".encode()),
    "metadata that is none": lambda _: safetensors({"__metadata__": 7, **theta()}),
    "no object": lambda _: safetensors([1, 2, 3]),
    "other name": lambda _: safetensors({"../../theta": theta()["theta"]}),
    "not finite": lambda _: safetensors(theta(), np.full(32, np.nan, np.float32).tobytes()),
    "nothing": lambda _: b"",
}


IN_SHORT = {"pickle", "offsets beyond the file", "numbers that NumPy lacks"}
CASES = [lie if lie in IN_SHORT else pytest.param(lie, marks=pytest.mark.chaos) for lie in LIES]


def test_the_attack_is_one(tmp_path: Path) -> None:
    pickle.loads(pickled(tmp_path / "raw"))
    np.load(io.BytesIO(pickled_array(tmp_path / "array")), allow_pickle=True)
    assert (tmp_path / "raw").exists()
    assert (tmp_path / "array").exists()


@pytest.mark.parametrize("lie", CASES)
def test_slots_that_lie_are_computed_again(
    lie: str, run: Path, calm: dict[str, str], canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slots = RunFolder(run).slots(2)
    names = ["000.safetensors", "001.lease", "001.snapshot"]
    for name in names:
        (slots / name).write_bytes(LIES[lie](canary))
    assert main(["resume", str(run)]) == 0
    assert "Traceback" not in capsys.readouterr().err
    assert dict(RunFolder(run).read_state(META_STEPS)["sha256"]) == calm


@pytest.mark.parametrize("lie", CASES)
@pytest.mark.parametrize("name", ["initialization.safetensors", "outer_optimizer.safetensors"])
def test_checkpoints_that_lie_consistently_are_one_line(
    name: str, lie: str, run: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(run)
    files, state = folder.read_checkpoint(2)
    state = {key: state[key] for key in state.keys() - {"schema", "number", "sha256"}}
    folder.write_checkpoint(2, {**files, name: LIES[lie](canary)}, state)  # its sums are right
    status = main(["resume", str(run)])
    (line,) = lines_of(capsys)
    assert status in (1, EXIT_USAGE)
    # What can be read is another start than the one that the task of the snapshot grew from.
    assert "checkpoints/000002" in line or "the task's snapshot cannot be resumed from" in line
    assert folder.latest() == 2


@pytest.mark.parametrize("lie", CASES)
def test_initializations_that_lie_are_one_line(
    lie: str, tmp_path: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    init = tmp_path / "init.safetensors"
    init.write_bytes(LIES[lie](canary))
    status = make(tmp_path / "new", "--meta.init", str(init))
    if lie == "a name twice":
        assert status == 0
        return
    (line,) = lines_of(capsys)
    assert status == EXIT_USAGE
    assert f"meta.init = {init}: " in line
    assert not (tmp_path / "new").exists()


def test_a_pickle_in_a_sealed_snapshot_is_one_line(
    run: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from leap_rl.storage.sealed import unseal

    path = RunFolder(run).slots(2) / "001.snapshot"
    arrays, header = unseal(path.read_bytes())
    attack = np.frombuffer(pickled(canary), dtype=np.uint8)
    path.write_bytes(seal({**arrays, "snapshot": attack}, header))
    assert main(["resume", str(run)]) == 1
    (line,) = lines_of(capsys)
    assert "the task's snapshot cannot be resumed from" in line


@pytest.mark.parametrize(
    "state",
    [
        {"rows": [1]},
        {"rows": [{"axis": "meta_step", "values": {"meta_step": "1"}}]},
        {"rows": [{"axis": [], "values": {}}]},
        {"slots": 3},
        {"slots": [{"attempt": "1"}]},
        {"agent_steps": "many"},
    ],
    ids=str,
)
def test_a_state_that_lies_consistently_is_one_line(
    state: dict[str, object], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(run)
    files, true = folder.read_checkpoint(2)
    true = {key: true[key] for key in true.keys() - {"schema", "number", "sha256"}}
    folder.write_checkpoint(2, files, {**true, **state})
    for number in (0, 1):
        shutil.rmtree(folder.checkpoint(number))
    assert main(["resume", str(run)]) == EXIT_USAGE
    (line,) = lines_of(capsys)
    assert "checkpoints/000002" in line


# -- configs ----------------------------------------------------------------------------------

TAG = "!!python/object/apply:builtins.open ['{canary}', 'w']"
BOMB = "".join(f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 10) if i else 'x'}]\n" for i in range(12))
DEEP = "seed: " + "[" * 50_000 + "]" * 50_000

HOSTILE = {
    "tag": ("seed: {tag}\n", "could not determine a constructor"),
    "tag in a list": ("task:\n  games: [{tag}]\n", "could not determine a constructor"),
    "class": ("task:\n  class_path: canary_module.Task\n", "names options, never classes"),
    "bomb": ("{bomb}", "refers to an anchor"),
    "bomb in an option": ("{bomb}task:\n  games: *b11\n", "refers to an anchor"),
    "bomb in a text": ("task:\n  games: |\n    [&a [x], *a]\n", "refers to an anchor"),
    "deep": ("{deep}", "nested more than"),
    "long": ("seed: 1 #{long}\n", "characters"),
    "module": ("task:\n  games: [canary_module:Breakout-v5]\n", "no game or pool is named"),
    "module after a slash": ("task:\n  games: [ALE/canary_module:Pong-v5]\n", "no game or pool"),
    "way out": ("task:\n  games: [../../pong]\n", "no game or pool is named"),
}


@pytest.fixture
def module(tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that can be imported, and creates the canary when it is."""
    path = tmp_path / "modules" / "canary_module.py"
    path.parent.mkdir()
    path.write_text(f"open({str(canary)!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(path.parent))
    return path


def hostile(text: str, canary: Path) -> str:
    parts = {"{tag}": TAG.format(canary=canary), "{bomb}": BOMB, "{deep}": DEEP}
    for name, part in {**parts, "{long}": "x" * 2**21}.items():
        text = text.replace(name, part)
    return text


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_config_is_one_line(
    name: str, tmp_path: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, says = HOSTILE[name]
    config = tmp_path / "config.yaml"
    config.write_text(hostile(text, canary))
    started = time.monotonic()
    words = ["train", *QUIET, "--config", str(config), "--run_dir", str(tmp_path / "new")]
    assert main(words) == EXIT_USAGE
    assert time.monotonic() - started < 10
    (line,) = lines_of(capsys)
    assert says in line
    assert len(line) < 2000
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_run_of_a_hostile_config_is_one_line(
    name: str, run: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(run)
    before = sorted(path for path in run.rglob("*"))
    own = folder.config_path.read_text()
    stored = folder.read_config()
    text, _ = HOSTILE[name]
    if "games" in text and "b11" not in text:
        stored["task"]["kind"] = "atari"
        stored["task"]["games"] = ["canary_module:Breakout-v5"]
        folder.write_config(stored)  # its sum is right
    else:
        # The sum of a bomb is that of what it stands for, which nobody should work out.
        folder.config_path.write_text(own + hostile(text, canary))
    started = time.monotonic()
    assert main(["resume", str(run)]) == EXIT_USAGE
    assert time.monotonic() - started < 10
    (line,) = lines_of(capsys)
    assert "config.yaml: " in line
    assert len(line) < 2000
    assert sorted(path for path in run.rglob("*")) == before


# -- ways out of the run's folder -------------------------------------------------------------

OUTSIDE = "outside"
"""Beside the run's folder, which nothing of it may change."""


class Watch:
    """Notes which paths below a folder this process changes, and the flags that files open with."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.paths: set[str] = set()
        self.flags: dict[str, list[int]] = {}
        self.on = True
        sys.addaudithook(self._hear)
        for name in ("open", "mkdir", "rename", "replace", "unlink", "rmdir"):
            monkeypatch.setattr(os, name, self._resolving(getattr(os, name)))

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open" and isinstance(arguments[2], int):
            if arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self._note(arguments[0], arguments[2])
        elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"):
            for path in arguments[:2]:
                self._note(path)

    def _resolving(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Note names relative to a folder's descriptor, of which an audit hook is not told."""

        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            for key in ("dir_fd", "src_dir_fd", "dst_dir_fd"):
                if self.on and options.get(key) is not None:
                    folder = os.readlink(f"/proc/self/fd/{options[key]}")
                    name = arguments[0] if key == "dst_dir_fd" else path
                    flags = arguments[0] if function.__name__ == "open" else os.O_CREAT
                    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                        self._note(f"{folder}/{name}", flags)
            return function(path, *arguments, **options)

        call.__name__ = function.__name__
        return call

    def _note(self, path: object, flags: int = 0) -> None:
        if isinstance(path, str | Path) and str(path).startswith(f"{self.folder}/"):
            name = str(path).removeprefix(f"{self.folder}/")
            self.paths.add(name)
            self.flags.setdefault(name, []).append(flags)


TEMPORARY = re.compile(r"(^|.*/)\.[^/]+\.[0-9a-f]{16}\.tmp(/.*)?")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    """What runs really open: of Leap, of a method that keeps its agents, and reports on them."""
    run = tmp_path_factory.mktemp("opened") / "run"
    often = ["--runtime.stream_every_s", "1e-6", "--runtime.snapshot_every_s", "1e-6"]
    shown = ["--tracking.tensorboard", "true", "--tracking.wandb", "offline"]
    with pytest.MonkeyPatch.context() as patch:
        watch = Watch(run, patch)
        assert make(run, "--meta.meta_steps", "2", *often, *shown) == 0
        assert main(["resume", str(run), "--meta.meta_steps", "3"]) == 0
        assert main(["report", str(run)]) == 0
        shutil.rmtree(run)
        keeps = ["--meta.method", "finetune", "--meta.updates_per_round", "2"]
        assert make(run, *keeps, *often) == 0
        watch.on = False
    return watch


def test_the_watch_sees_what_runs_open(opened: Watch) -> None:
    assert opened.paths >= {
        *("config.yaml", ".lock", ".server", "metrics.jsonl", "live.json", "wandb/run_id.txt"),
        *("checkpoints", "checkpoints/000001", "checkpoints/latest", "slots/000001/001.lease"),
        *("slots/000001/001.snapshot", "curves/000002.parquet", "report", "report/index.html"),
        *("carried_over", "carried_over/000001", "tensorboard"),
    }


def test_temporary_names_are_new_ones(opened: Watch) -> None:
    made = {name: flags for name, flags in opened.flags.items() if TEMPORARY.fullmatch(name)}
    assert len(made) > 50
    exclusive = os.O_EXCL | os.O_NOFOLLOW
    for name, flags in made.items():
        opening = [flag for flag in flags if flag not in (0, os.O_CREAT)]
        assert all(flag & exclusive == exclusive for flag in opening), name
        assert len(opening) <= 1, name
    # Nothing else is written to under a name that does not last.
    assert not [name for name in opened.paths - made.keys() if name.endswith(".tmp")]


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def ways_out(opened: Watch) -> list[str]:
    """The paths, and the folders that they lie in; wandb's own links are its own."""
    lasting = {name for name in opened.paths if not TEMPORARY.fullmatch(name)}
    own = {name for name in lasting if name.startswith("wandb/") and "run_id" not in name}
    above = {str(one) for name in lasting - own for one in Path(name).parents}
    return sorted((lasting - own | above | {"clips", "agents", "notes"}) - {"."})


def make_link(link: Path, outside: Path, *, relative: bool) -> None:
    """Put a link in the place of a file or folder, of which the target is as good."""
    target = outside / "victim"
    if link.exists():
        link.rename(target)  # so that all is well but for where it lies
    elif link.suffix or link.name.startswith("."):
        target.write_text("precious\n")
    else:
        (target / "000001").mkdir(parents=True)
        (target / "000001" / "precious").write_text("precious\n")
        (target / "index.html").write_text("precious\n")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent) if relative else target)


def test_a_link_out_of_the_folder_is_refused(
    opened: Watch, stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(ways_out(opened)):
        run, outside = tmp_path / f"{number}" / "run", tmp_path / f"{number}" / OUTSIDE
        shutil.copytree(stopped, run)
        outside.mkdir()
        make_link(run / name, outside, relative=number % 2 == 0)
        before = contents(outside)
        for command in ("resume", "report", "watch"):
            if name == "config.yaml" and command == "watch":
                continue
            assert main([command, str(run)]) == EXIT_USAGE, (name, command)
            (line,) = lines_of(capsys)
            assert line.startswith(f"leap-rl: {run / name}: is a symbolic link"), (name, command)
            assert contents(outside) == before, (name, command)
        shutil.rmtree(tmp_path / f"{number}")


@pytest.mark.parametrize("name", ["checkpoints", "slots", "checkpoints/000003", "config.yaml"])
def test_a_link_that_is_swapped_in_later_leads_nowhere(
    name: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After the folder was looked through, at the worst moment."""
    outside = tmp_path / OUTSIDE
    outside.mkdir()
    stream, before = ParameterServer.stream, {}

    def swap(self: ParameterServer, message: Any) -> object:
        if not before:
            make_link(run / name, outside, relative=False)
            before.update(contents(outside))
        return stream(self, message)

    monkeypatch.setattr(ParameterServer, "stream", swap)
    status = main(["resume", str(run), "--runtime.stream_every_s", "1e-6"])
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    assert before
    assert contents(outside) == before
    if name in ("checkpoints", "slots"):
        assert status == 1
        assert f"{run / name}" in errors
        assert "is a symbolic link" in errors


@pytest.mark.parametrize("name", [".lock", ".server", "metrics.jsonl"])
def test_a_file_with_another_name_elsewhere_is_not_written_into(
    name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    (run / name).unlink()
    os.link(victim, run / name)
    assert main(["resume", str(run)]) == EXIT_USAGE
    (line,) = lines_of(capsys)
    assert line.startswith(f"leap-rl: {run / name}: has another name elsewhere (a hard link)")
    assert victim.read_text() == "precious\n"


@pytest.mark.parametrize("name", ["config.yaml", "checkpoints/latest", "slots/000002/001.lease"])
def test_another_name_elsewhere_of_a_file_that_is_replaced_stays_as_it_is(
    name: str, run: Path, tmp_path: Path
) -> None:
    content = (run / name).read_bytes()
    os.link(run / name, tmp_path / "victim")
    assert main(["resume", str(run), "--runtime.max_attempts", "7"]) == 0
    assert (tmp_path / "victim").read_bytes() == content


@pytest.mark.parametrize("command", ["resume", "report", "watch"])
@pytest.mark.parametrize("name", ["config.yaml", ".lock", "live.json", "checkpoints/latest", "x/y"])
def test_a_pipe_keeps_nobody_waiting(
    name: str, command: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).parent.mkdir(exist_ok=True)
    os.mkfifo(run / name)
    assert main([command, str(run)]) == EXIT_USAGE
    (line,) = lines_of(capsys)
    assert line.startswith(f"leap-rl: {run / name}: is no file (a pipe, a socket or a device)")


def test_a_new_run_is_not_made_over_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").symlink_to(victim)
    assert make(run) == EXIT_USAGE
    (line,) = lines_of(capsys)
    assert ".lock: is a symbolic link" in line
    assert victim.read_text() == "precious\n"


def test_a_folder_that_is_reached_by_a_link_is_all_right(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    assert main(["resume", str(tmp_path / "link")]) == 0


@pytest.mark.parametrize(
    ("name", "target", "is_own"),
    [
        ("wandb/latest-run", "offline-run-1", True),
        ("wandb/debug.log", "run-1/logs/debug.log", True),
        ("wandb/offline-run-1/logs/debug-core.log", "/home/me/.cache/wandb/logs/core.log", True),
        ("wandb/latest-run", "../../victim", False),
        ("wandb/latest-run", "offline-run-1/../../../victim", False),
        ("wandb/debug.log", "/etc/passwd", False),
        ("wandb/offline-run-1", "../../victim", False),
        ("wandb/offline-run-1/files", "../../../victim", False),
        ("wandb/other", "offline-run-1", False),
    ],
)
def test_wandbs_own_links_are_all_right(
    name: str, target: str, is_own: bool, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).symlink_to(target)
    assert main(["resume", str(run)]) == (0 if is_own else EXIT_USAGE)
    assert is_own or f"{run / name}: is a symbolic link" in lines_of(capsys)[0]


@pytest.mark.parametrize("name", ["../../outside", "..", "/etc/hostname", "a/b", ""])
def test_a_state_that_names_files_elsewhere_is_one_line(
    name: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(run)
    for number in (0, 1):
        shutil.rmtree(folder.checkpoint(number))
    path = folder.checkpoint(2) / "state.json"
    state = json.loads(path.read_text())
    del state[CHECKSUM]
    state["sha256"][name] = "0" * 64
    path.write_text(json.dumps({**state, CHECKSUM: checksum(state)}))
    assert main(["resume", str(run)]) == EXIT_USAGE
    (line,) = lines_of(capsys)
    assert "which is no file of a checkpoint" in line


@pytest.mark.parametrize("text", ["../../outside\n", "2 /../..\n", "²\n", "-1\n"])
def test_a_pointer_elsewhere_is_passed_over(
    text: str, run: Path, calm: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "checkpoints" / "latest").write_text(text)
    assert main(["resume", str(run)]) == 0
    (line,) = lines_of(capsys)
    assert "which is no checkpoint's number; resuming from checkpoint 2" in line
    assert dict(RunFolder(run).read_state(META_STEPS)["sha256"]) == calm


# -- two runs in one folder -------------------------------------------------------------------


@pytest.mark.parametrize("how", ["the lock is removed", "another run takes its place"])
def test_a_run_whose_folder_is_not_its_own_any_more_stops(
    how: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(run, tmp_path / "other")
    before = contents(tmp_path / "other")
    stream, lost = ParameterServer.stream, []

    def lose(self: ParameterServer, message: Any) -> object:
        if not lost:
            lost.append(True)
            if how == "the lock is removed":
                (run / ".lock").unlink()
            else:
                shutil.rmtree(run)
                shutil.copytree(tmp_path / "other", run)
        return stream(self, message)

    monkeypatch.setattr(ParameterServer, "stream", lose)
    assert main(["resume", str(run), "--runtime.stream_every_s", "1e-6"]) == 1
    (line,) = lines_of(capsys)
    assert f"{run / '.lock'}: was " in line
    assert "while a run went on there; another command may work there now" in line
    assert RunFolder(run).latest() == META_STEPS - 1
    if how == "another run takes its place":
        assert contents(run) == before


def test_a_checkpoint_of_another_run_is_not_taken(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which a driver left that went on in a folder that had become another run's."""
    folder = RunFolder(run)
    files, state = folder.read_checkpoint(2)
    state = {key: state[key] for key in state.keys() - {"schema", "number", "sha256"}}
    folder.write_checkpoint(5, files, {**state, "fingerprint": "0" * 64})
    checkpoint = run / "checkpoints" / "000005"
    new = ["--run_dir", str(tmp_path / "new")]
    few = ["--agent_steps", "20", "--seeds", "1", "--games", '["pong"]']
    for words in (
        ["fork", str(run), "--at", "5", *new],
        ["evaluate", "--init", str(run), *few, *new],
        ["evaluate", "--init", f"{run}@5", *few, *new],
        ["evaluate", "--init", str(checkpoint), *few, *new],
    ):
        assert main(words) == EXIT_USAGE
        (line,) = lines_of(capsys)
        assert line == f"leap-rl: {checkpoint}: belongs to another run than config.yaml"
    assert not (tmp_path / "new").exists()
    assert main(["watch", str(run)]) == 0
    said = capsys.readouterr().out
    assert said == f"{run}: is damaged: it has 5 meta-steps, of {META_STEPS} that were to be made\n"


# -- clusters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        *(("127.0.0.1:6379", True), ("127.8.8.8:1", True), ("[::1]:6379", True)),
        *(("localhost:6379", True), ("10.77.0.1:6379", False), ("0.0.0.0:6379", False)),
        *(("[fe80::1]:6379", False), ("no-such-host.invalid:6379", False)),
    ],
)
def test_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) == expected


@pytest.mark.parametrize("mode", ["disabled", "", "Tokens"])
def test_a_cluster_elsewhere_is_not_joined_without_a_token(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    refuse_without_token("127.0.0.1:6379")
    ray = ["--runtime.kind", "ray", "--runtime.address", "10.77.0.1:6379"]
    assert make(tmp_path / "run", *ray) == 1
    (line,) = lines_of(capsys)
    assert line.startswith("leap-rl: runtime.address = 10.77.0.1:6379: RAY_AUTH_MODE is ")
    assert "RAY_AUTH_MODE=token" in line


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[grpc.StatusCode | None]]]:
    """The address of a pretended head, and what it answers to whoever has no token."""
    answers: list[grpc.StatusCode | None] = [None]

    def check_alive(request: bytes, context: grpc.ServicerContext) -> bytes:
        if answers[0] is not None:
            context.abort(answers[0], "no token")
        return b""  # a reply without fields

    method = grpc.unary_unary_rpc_method_handler(check_alive)
    service = "ray.rpc.NodeInfoGcsService"
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {"CheckAlive": method})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr("leap_rl.training.runtime.ray.security.is_loopback", lambda address: False)
    yield f"127.0.0.1:{port}", answers
    server.stop(None)


def test_a_cluster_elsewhere_that_asks_for_no_token_is_not_joined(
    head: tuple[str, list[grpc.StatusCode | None]],
) -> None:
    address, answers = head
    with pytest.raises(RunFailedError, match="the cluster asks for no token"):
        refuse_open_cluster(address)
    answers[0] = grpc.StatusCode.INTERNAL  # whatever that is, it is no question for a token
    with pytest.raises(RunFailedError, match="the cluster asks for no token"):
        refuse_open_cluster(address)
    answers[0] = grpc.StatusCode.UNAUTHENTICATED
    refuse_open_cluster(address)


# -- secrets ----------------------------------------------------------------------------------

SECRETS = {
    "WANDB_API_KEY": "c0ffee" * 6 + "c0de",
    "RAY_AUTH_TOKEN": "5ec2e7" * 10 + "beef",
    "AWS_SECRET_ACCESS_KEY": "5ec2e7AWS/canary+0123456789abcdefghijklm",
}


def leaks(where: str, content: bytes, secrets: dict[str, str]) -> set[str]:
    return {f"{name} in {where}" for name, value in secrets.items() if value.encode() in content}


def files_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        try:
            if path.is_file() and not path.is_symlink():
                yield path, path.read_bytes()
        except OSError:
            continue


@pytest.mark.parametrize("runtime", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_secrets_of_the_environment_go_nowhere(runtime: str, tmp_path: Path) -> None:
    steps = {"local": "40", "ray": "40000"}[runtime]  # the time to look around
    words = ["train", *BOWLS, "--runtime.kind", runtime, "--task.agent_steps", steps]
    words += ["--tracking.wandb", "offline", "--tracking.tensorboard", "true"]
    words += ["--tracking.console", "plain", "--run_dir", str(tmp_path / "run")]
    output = tmp_path / "output"
    with open(output, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "leap_rl", *words],
            cwd=tmp_path,
            env={**os.environ, **SECRETS},
            stdout=log,
            stderr=log,
        )
    secrets, found, seen = dict(SECRETS), set(), set()
    while process.poll() is None:
        for folder in Path("/tmp").glob(f"leap_rl-{process.pid}-*"):
            for path, content in files_below(folder):
                if path == folder / "token":
                    secrets["own token"] = content.decode() or "not written yet"
                    continue
                seen.add(path.name)
                found |= leaks(str(path), content, secrets)
        for pid in (process.pid, *descendants(process.pid)):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            seen.add(line.split(b"\0")[0].decode())
            found |= leaks(f"command line {line!r}", line, secrets)
        time.sleep(0.2)
    assert process.returncode == 0, output.read_text()
    for path, content in files_below(tmp_path):
        seen.add(path.suffix)
        found |= leaks(str(path), content, secrets)
    assert not found
    assert {".wandb", ".jsonl", ".yaml", ".safetensors"} <= seen
    if runtime == "ray":
        assert "own token" in secrets
        assert {"raylet.out", "gcs_server.out", "ray::ServerActor"} <= {
            name.partition(".run")[0] if name.startswith("ray::") else name for name in seen
        }, seen


SECRET = "c0ffee5ec2e7"
PASSWORD = f"http://me:{SECRET}@127.0.0.1:9/x"


@pytest.mark.parametrize(
    "words",
    [
        ["resume", PASSWORD],
        ["watch", PASSWORD],
        ["report", PASSWORD],
        ["report", "RUN", "--out", PASSWORD],
        ["fork", PASSWORD, "--at", "1"],
        ["fork", "RUN", "--at", "1", "--run_dir", PASSWORD],
        ["fork", "RUN", "--at", "1", "--meta.init", PASSWORD],
        ["resume", "RUN", "--meta.init", PASSWORD],
        ["train", *BOWLS, "--run_dir", PASSWORD],
        ["train", *BOWLS, "--run_dir", f"s3://me:{SECRET}@bucket/mine"],
        ["train", *BOWLS, "--run_dir", f"s3://{SECRET}@bucket/mine"],
        ["train", *BOWLS, "--meta.init", PASSWORD],
        ["train", *BOWLS, "--meta.init", f"http://me:{SECRET}/1@127.0.0.1:9/x"],
        ["train", *BOWLS, "--meta.init", f"simplecache::{PASSWORD}"],
        ["train", *BOWLS, "--runtime.address", PASSWORD],
        ["learn", "--init", PASSWORD],
        ["evaluate", "--init", PASSWORD],
        ["evaluate", "--init", f"{PASSWORD}.safetensors"],
        ["evaluate", "--init", f"s3://me:{SECRET}@bucket/mine@12"],
    ],
    ids=lambda words: " ".join(words[:1] + words[-2:]).replace(SECRET, "..."),
)
def test_a_url_with_a_password_is_refused_and_not_shown(
    words: list[str],
    stopped: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = contents(stopped)
    assert main([str(stopped) if word == "RUN" else word for word in words]) == EXIT_USAGE
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
    assert len(told.err.splitlines()) == 1
    assert "...@" in told.err
    assert not list(tmp_path.iterdir())
    assert contents(stopped) == before


@pytest.fixture
def presigned(stopped: Path) -> Iterator[str]:
    """A URL that is served to whoever has the secret in its query."""
    content = (stopped / "checkpoints/000002/initialization.safetensors").read_bytes()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == f"/a.safetensors?X-Amz-Signature={SECRET}"
            self.send_response(200 if known else 403)
            self.send_header("Content-Length", str(len(content) if known else 0))
            self.end_headers()
            if known and self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a.safetensors?X-Amz-Signature={SECRET}"
        server.shutdown()


@pytest.mark.parametrize("wrong", [False, True])
def test_the_secret_of_a_presigned_url_is_neither_kept_nor_shown(
    wrong: bool, presigned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if wrong:
        presigned = presigned.replace("/a.", "/b.")
    shown = ["--tracking.tensorboard", "true", "--tracking.wandb", "offline"]
    status = make(tmp_path / "run", "--meta.meta_steps", "1", "--meta.init", presigned, *shown)
    assert status == (EXIT_USAGE if wrong else 0)
    if not wrong:
        assert RunFolder(tmp_path / "run").read_config()["meta"]["init"] == (
            presigned.partition("?")[0] + "?..."
        )
        assert main(["resume", str(tmp_path / "run"), "--meta.meta_steps", "2"]) == 0
        assert main(["report", str(tmp_path / "run")]) == 0
        assert main(["resume", str(tmp_path / "run"), "--meta.init", presigned]) == EXIT_USAGE
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
    found = [path for path, content in files_below(tmp_path) if SECRET.encode() in content]
    assert not found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://h/x?X-Amz-Signature=a#b", "https://h/x?..."),
        ("a 'https://h/x?sig=a' b", "a 'https://h/x?...' b"),
        ("https://h/x#a", "https://h/x?..."),
        ("https://u:p@h/x", "https://...@h/x"),
        ("https://u:p/q@h/x", "https://...@h/x"),
        ("https://u@h:8/x", "https://...@h:8/x"),
        ("https://h:8/x@12", "https://h:8/x@12"),
        ("s3://b/mine@12", "s3://b/mine@12"),
        ("s3://b/mine?region=eu-west-1", "s3://b/mine?region=eu-west-1"),
        ("s3://b/mine?X-Amz-Signature=a", "s3://b/mine?..."),
        ("s3://b/mine?endpoint_override=http://u:p@h", "s3://b/mine?..."),
        ("simplecache::https://u:p@h/x?a", "simplecache::https://...@h/x?..."),
        ("zip://x::https://u:p@h/x?a=b", "zip://x::https://...@h/x?..."),
        ("zip://x::https://h:80/x@12", "zip://x::https://h:80/x@12"),
        ("runs/mine?a", "runs/mine?a"),
    ],
)
def test_what_is_shown_of_a_url(text: str, expected: str) -> None:
    assert redacted(text) == expected
    assert redacted(expected) == expected
