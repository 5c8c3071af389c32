"""Links, pipes and names that lead out of a run's folder are refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leap_rl.cli import EXIT_USAGE, main
from leap_rl.storage.checksummed_file import CHECKSUM, checksum
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.server.parameter_server import ParameterServer
from tests.commands import Refused, contents
from tests.security.runs import META_STEPS, lines_of, make, one_line

pytestmark = pytest.mark.usefixtures("without_plots")


OUTSIDE = "outside"
"""A folder beside the run's, which no command on the run may change."""


class Watch:
    """Records the paths below a folder that this process changes, and the flags of opening."""

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
        """Note names relative to a folder's descriptor, which audit events do not have."""

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
    """Paths that real runs open: of Leap, of a method that keeps its agents, and of reports."""
    run = tmp_path_factory.mktemp("opened") / "run"
    often = ["--runtime.stream_every_s", "1e-6", "--runtime.snapshot_every_s", "1e-6"]
    shown = ["--tracking.tensorboard", "true", "--tracking.wandb", "offline"]
    with pytest.MonkeyPatch.context() as patch:
        watch = Watch(run, patch)
        assert make(run, "--meta.meta_steps", "2", *often, *shown) == 0
        assert main(["resume", str(run), "--meta.meta_steps", "3"]) == 0
        assert main(["report", str(run)]) == 0
        shutil.rmtree(run)
        keeps = ["--meta.method", "pretraining", "--meta.updates_per_round", "2"]
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


def ways_out(opened: Watch) -> list[str]:
    """The paths, and the folders that they lie in; wandb's own links are its own."""
    lasting = {name for name in opened.paths if not TEMPORARY.fullmatch(name)}
    own = {name for name in lasting if name.startswith("wandb/") and "run_id" not in name}
    above = {str(one) for name in lasting - own for one in Path(name).parents}
    return sorted((lasting - own | above | {"clips", "agents", "notes"}) - {"."})


def make_link(link: Path, outside: Path, *, relative: bool) -> None:
    """Replace a file or folder by a link to a target outside with the same content."""
    target = outside / "victim"
    if link.exists():
        link.rename(target)  # so that only its place is wrong
    elif link.suffix or link.name.startswith("."):
        target.write_text("precious\n")
    else:
        (target / "000001").mkdir(parents=True)
        (target / "000001" / "precious").write_text("precious\n")
        (target / "index.html").write_text("precious\n")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent) if relative else target)


def test_a_link_out_of_the_folder_is_refused(
    opened: Watch, stopped: Path, tmp_path: Path, refused: Refused
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
            says = f"leap-rl: {run / name}: is a symbolic link"
            assert refused(command, run).startswith(says), (name, command)
            assert contents(outside) == before, (name, command)
        shutil.rmtree(tmp_path / f"{number}")


@pytest.mark.parametrize("name", ["checkpoints", "slots", "checkpoints/000003", "config.yaml"])
def test_a_link_that_is_swapped_in_later_is_not_followed(
    name: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After the folder was checked, while a trainer streams."""
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
    name: str, run: Path, tmp_path: Path, refused: Refused
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    (run / name).unlink()
    os.link(victim, run / name)
    says = f"leap-rl: {run / name}: has another name elsewhere (a hard link)"
    assert refused("resume", run).startswith(says)
    assert victim.read_text() == "precious\n"


def test_other_names_elsewhere_of_replaced_files_stay_as_they_are(
    run: Path, tmp_path: Path
) -> None:
    names = ["config.yaml", "checkpoints/latest", "slots/000002/001.lease"]
    before = [(run / name).read_bytes() for name in names]
    for number, name in enumerate(names):
        os.link(run / name, tmp_path / f"victim{number}")
    assert main(["resume", str(run), "--runtime.max_attempts", "7"]) == 0
    assert [(tmp_path / f"victim{n}").read_bytes() for n in range(len(names))] == before


@pytest.mark.parametrize("command", ["resume", "report", "watch"])
@pytest.mark.parametrize("name", ["config.yaml", ".lock", "live.json", "checkpoints/latest", "x/y"])
def test_a_pipe_is_refused_and_not_waited_for(
    name: str, command: str, run: Path, refused: Refused
) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).parent.mkdir(exist_ok=True)
    os.mkfifo(run / name)
    says = f"leap-rl: {run / name}: is no file (a pipe, a socket or a device)"
    assert refused(command, run).startswith(says)


def test_a_new_run_is_not_made_over_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").symlink_to(victim)
    assert make(run) == EXIT_USAGE
    assert ".lock: is a symbolic link" in one_line(capsys)
    assert victim.read_text() == "precious\n"


def test_a_folder_may_be_reached_by_a_link(run: Path, tmp_path: Path) -> None:
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
def test_wandbs_own_links_are_allowed(
    name: str, target: str, is_own: bool, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).symlink_to(target)
    assert main(["resume", str(run)]) == (0 if is_own else EXIT_USAGE)
    assert is_own or f"{run / name}: is a symbolic link" in lines_of(capsys)[0]


@pytest.mark.parametrize("name", ["../../outside", "..", "/etc/hostname", "a/b", ""])
def test_a_state_that_names_files_elsewhere_is_one_line(
    name: str, run: Path, refused: Refused
) -> None:
    folder = RunFolder(run)
    for number in (0, 1):
        shutil.rmtree(folder.checkpoint(number))
    path = folder.checkpoint(2) / "state.json"
    state = json.loads(path.read_text())
    del state[CHECKSUM]
    state["sha256"][name] = "0" * 64
    path.write_text(json.dumps({**state, CHECKSUM: checksum(state)}))
    assert "which is no file of a checkpoint" in refused("resume", run)


@pytest.mark.parametrize("text", ["../../outside\n", "2 /../..\n", "²\n", "-1\n"])
def test_a_pointer_elsewhere_is_ignored(
    text: str, run: Path, calm: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "checkpoints" / "latest").write_text(text)
    assert main(["resume", str(run)]) == 0
    assert "which is no checkpoint's number; resuming from checkpoint 2" in one_line(capsys)
    assert dict(RunFolder(run).read_state(META_STEPS)["sha256"]) == calm
