"""Runs in an object store: trained, resumed, forked, evaluated and reported from anywhere."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

import leap_rl
from leap_rl.cli import main, watch
from leap_rl.runs.initializations import find_initialization
from leap_rl.storage.object_store import ObjectStore, read_file
from leap_rl.storage.open_run import RemoteRunFolder, open_run, working_copy
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.store_lock import NAME
from tests.storage.short_runs import BOWLS, Become, sums

pytestmark = pytest.mark.usefixtures("without_plots")


def test_a_run_is_resumed_elsewhere_to_the_same_bits(
    any_url: str,
    straight: RunFolder,
    machine: Become,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = any_url
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    first = working_copy(url)
    machine("second")
    assert main(["resume", url, "--meta.meta_steps", "2"]) == 0
    assert working_copy(url) != first
    machine("first")  # whose working copy is old by now
    assert main(["resume", url, "--meta.meta_steps", "3"]) == 0
    machine("third")
    run = open_run(url)
    assert sums(run, 3) == sums(straight, 3)
    assert run.read_config()["run_dir"] == url
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["meta_step"] for line in lines] == [0, 1, 2]
    assert not capsys.readouterr().err + caplog.text
    assert main(["watch", url, "--once"]) == 0
    assert capsys.readouterr().out == f"{url}: finished after 3 of 3 meta-steps\n"


def test_what_goes_on_elsewhere_is_seen(
    url: str, machine: Become, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    machine("third")
    run = leap_rl.Run(url)
    machine("second")
    assert (run.meta_step, len(run.rows())) == (1, 1)
    workers = iter(["somebody"])

    def worker(folder: RunFolder) -> str | None:
        """Who works on it: somebody, until it is finished elsewhere."""
        if (now := next(workers, None)) is None:
            machine("first")
            assert main(["resume", url, "--meta.meta_steps", "3"]) == 0
            machine("second")
        return now

    monkeypatch.setattr(watch, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(RemoteRunFolder, "worker", worker)
    capsys.readouterr()
    assert main(["watch", url]) == 0
    assert capsys.readouterr().out.endswith(f"{url}: finished after 3 of 3 meta-steps\n")
    monkeypatch.setattr("leap_rl.storage.open_run.LOOK_EVERY_S", 0.0)
    assert (run.meta_step, len(run.rows()), run.finished) == (3, 3, True)


def test_what_another_run_takes_of_it_is_fetched(
    url: str, straight: RunFolder, machine: Become
) -> None:
    assert main(["train", *BOWLS, "--meta.meta_steps", "3", "--run_dir", url]) == 0
    machine("second")
    assert main(["fork", url, "--at", "1", "--run_dir", f"{url}-fork"]) == 0
    assert sums(open_run(f"{url}-fork"), 3) == sums(straight, 3)
    found = find_initialization(f"{url}@2")
    file = f"{url}/checkpoints/000002/initialization.safetensors"
    assert (found.name, found.path) == ("mine@2", file)
    assert find_initialization(url).name == "mine@3"
    assert find_initialization(file).path == file
    initialization = open_run(url).checkpoint(2) / "initialization.safetensors"
    assert read_file(file) == initialization.read_bytes()
    machine("third")
    assert main(["report", url]) == 0
    assert "report/index.html" in ObjectStore(url).versions()


def test_settings_of_a_url_stay_at_its_end(s3_url: str, machine: Become) -> None:
    url = f"{s3_url}?region=us-east-1"
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    machine("second")
    found = find_initialization(url)
    file = "checkpoints/000001/initialization.safetensors"
    assert found.path == f"{s3_url}/{file}?region=us-east-1"
    assert read_file(found.path) == (open_run(url).path / file).read_bytes()


@pytest.mark.parametrize(
    ("any_url", "lock"),
    [("s3", b""), ("memory", b'{"host": "a", "pid": 1, "started": 1.0, "heartbeat": 1.0}')],
    ids=["empty", "of a disk"],
    indirect=["any_url"],
)
def test_a_run_is_where_its_config_is_whatever_the_lock_says(
    any_url: str, lock: bytes, machine: Become, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a copy from a disk."""
    url = any_url
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    store = ObjectStore(url)
    store.write(NAME, lock)
    before = {name: store.read(name) for name in ("config.yaml", "checkpoints/latest")}
    for name in ("second", "first"):
        machine(name)
        assert main(["train", *BOWLS, "--seed", "7", "--run_dir", url]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"run_dir = {url}: holds a run already" in line
        assert f"resume {url}`" in line
        assert {name: store.read(name) for name in before} == before
        store.write(NAME, lock)
    machine("third")
    assert main(["watch", url, "--once"]) == 0
    assert main(["resume", url, "--meta.meta_steps", "2"]) == 0
    assert RemoteRunFolder(url).latest() == 2


def test_what_a_cleaner_of_old_files_took_is_fetched_again(
    straight: RunFolder, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    run = RemoteRunFolder(url)
    taken = [run.config_path, run.path / "checkpoints/latest"]
    taken += run.path.glob("checkpoints/*/state.json")
    assert len(taken) == 4
    for path in taken:
        path.unlink()
    assert main(["train", *BOWLS, "--seed", "7", "--run_dir", url]) == 2
    assert "holds a run already" in capsys.readouterr().err
    taken[0].unlink()
    assert main(["resume", url, "--meta.meta_steps", "2"]) == 0
    end = RemoteRunFolder(url).read_state(2)["sha256"]
    assert end == straight.read_state(2)["sha256"]


def test_a_run_that_was_copied_from_a_disk_is_resumed(
    straight: RunFolder, url: str, machine: Become
) -> None:
    store = ObjectStore(url)
    for path in filter(Path.is_file, straight.path.rglob("*")):
        store.write(path.relative_to(straight.path).as_posix(), path.read_bytes())
    assert store.read(NAME) == b""
    assert main(["resume", url, "--meta.meta_steps", "4"]) == 0
    assert sums(open_run(url), 3) == sums(straight, 3)
    assert open_run(url).latest() == 4


@pytest.mark.parametrize("command", ["resume", "watch", "report", "fork"])
def test_where_no_run_is_a_line_says_so(
    command: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, url, *(["--at", "1"] if command == "fork" else [])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"leap-rl: {url}: no run is here")


def test_a_report_is_brought_without_the_run(url: str, machine: Become) -> None:
    """Which another driver may be going on with."""
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    RemoteRunFolder(url).write_checkpoint(2, {}, {})
    ObjectStore(url).write("checkpoints/latest", b"000100\n")
    run = RemoteRunFolder(url)
    (run.path / "report").mkdir()
    (run.path / "report/index.html").write_text("what came out")
    run.publish("report")
    assert ObjectStore(url).read("report/index.html") == b"what came out"
    assert ObjectStore(url).read("checkpoints/latest") == b"000100\n"


def test_a_working_copy_is_no_run_of_its_own(
    url: str, machine: Become, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    copy = str(working_copy(url))
    assert main(["resume", copy, "--meta.meta_steps", "2"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"leap-rl: {copy}: is this machine's copy of a run in an object store; name the run by "
        f"its URL, {url}"
    )
    assert main(["watch", copy, "--once"]) == 0  # looking is free


@pytest.mark.parametrize("gone", [[NAME], []])  # its lock may still name this machine
def test_a_run_that_is_gone_from_the_store_is_put_aside(
    gone: list[str],
    url: str,
    machine: Become,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own: as for a user
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    store = ObjectStore(url)
    for name in [*store.versions(), *gone]:
        store.remove(name)
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"leap-rl: {url}: holds no run any more; what was here of one is in ")
    assert store.read("config.yaml") is not None
    assert store.read("checkpoints/000001/initialization.safetensors") is not None
    aside = Path(line.rpartition(" ")[2])
    assert (aside / "checkpoints/000001/state.json").exists()
    # A run of its own from now on.
    assert main(["resume", str(aside), "--meta.meta_steps", "2"]) == 0
    assert RunFolder(aside).latest() == 2


def test_working_copies_of_two_urls_are_two(machine: Become) -> None:
    assert working_copy("s3://a/mine") != working_copy("s3://b/mine")
    assert working_copy("s3://a/mine").name == "mine"
    assert working_copy("s3://a/mine?region=eu-west-1").name == "mine"


def test_a_tilde_stands_for_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_run("~/runs/mine").path == tmp_path / "runs/mine"
    assert (
        open_run("~nobody-of-this-name/mine").path == Path("~nobody-of-this-name/mine").absolute()
    )
