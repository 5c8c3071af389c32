"""Runs in an object store: trained, resumed, forked, evaluated and reported from anywhere."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from leap_rl.app.initializations import find_initialization
from leap_rl.cli import main
from leap_rl.storage import run_folders, run_lock, store_lock
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.mirror import Mirror
from leap_rl.storage.object_store import ObjectStore, StoreError, read_file
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.run_folders import StoredRunFolder, run_folder, working_copy
from leap_rl.storage.store_lock import NAME, DeposedError, StoreLock

pytestmark = pytest.mark.usefixtures("without_plots")

BOWLS = ["--config", "debug", "--task.agent_steps", "40"]
BOWLS += ["--runtime.kind", "local", "--tracking.console", "quiet"]

Become = Callable[[str], Path]


def sums(folder: RunFolder, number: int) -> dict[str, str]:
    return dict(folder.read_state(number)["sha256"])


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Three meta-steps on a disk."""
    run = tmp_path_factory.mktemp("straight") / "run"
    assert main(["train", *BOWLS, "--meta.meta_steps", "3", "--run_dir", str(run)]) == 0
    return RunFolder(run)


@pytest.mark.parametrize("where", ["memory", "s3"])
def test_a_run_is_resumed_elsewhere_to_the_same_bits(
    where: str,
    straight: RunFolder,
    machine: Become,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = request.getfixturevalue("url" if where == "memory" else "s3_url")
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    first = working_copy(url)
    machine("second")
    assert main(["resume", url, "--meta.meta_steps", "2"]) == 0
    assert working_copy(url) != first
    machine("first")  # whose working copy is old by now
    assert main(["resume", url, "--meta.meta_steps", "3"]) == 0
    machine("third")
    run = run_folder(url)
    assert sums(run, 3) == sums(straight, 3)
    assert run.read_config()["run_dir"] == url
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["meta_step"] for line in lines] == [0, 1, 2]
    assert not capsys.readouterr().err
    assert main(["watch", url, "--once"]) == 0
    assert capsys.readouterr().out == f"{url}: finished after 3 of 3 meta-steps\n"


def test_what_another_run_takes_of_it_is_fetched(
    url: str, straight: RunFolder, machine: Become
) -> None:
    assert main(["train", *BOWLS, "--meta.meta_steps", "3", "--run_dir", url]) == 0
    machine("second")
    assert main(["fork", url, "--at", "1", "--run_dir", f"{url}-fork"]) == 0
    assert sums(run_folder(f"{url}-fork"), 3) == sums(straight, 3)
    found = find_initialization(f"{url}@2")
    file = f"{url}/checkpoints/000002/initialization.safetensors"
    assert (found.name, found.path) == ("mine@2", file)
    assert find_initialization(url).name == "mine@3"
    assert find_initialization(file).path == file
    initialization = run_folder(url).checkpoint(2) / "initialization.safetensors"
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
    assert read_file(found.path) == (run_folder(url).path / file).read_bytes()


LOCKS = {
    "empty": b"",
    "of a disk": b'{"host": "a", "pid": 1, "started": 1.0, "heartbeat": 1.0}',
}


@pytest.mark.parametrize(("where", "lock"), [("s3", "empty"), ("memory", "of a disk")])
def test_a_run_is_where_its_config_is_whatever_the_lock_says(
    where: str,
    lock: str,
    machine: Become,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As after a copy from a disk, whose lock is empty."""
    url = request.getfixturevalue("url" if where == "memory" else "s3_url")
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    store, content = ObjectStore(url), LOCKS[lock]
    store.remove(NAME)
    if content is not None:
        store.write(NAME, content)
    before = {name: store.read(name) for name in ("config.yaml", "checkpoints/latest")}
    for name in ("second", "first"):
        machine(name)
        assert main(["train", *BOWLS, "--seed", "7", "--run_dir", url]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"run_dir = {url}: holds a run already" in line
        assert {name: store.read(name) for name in before} == before
        store.remove(NAME)
        if content is not None:
            store.write(NAME, content)
    machine("third")
    assert main(["watch", url, "--once"]) == 0
    assert main(["resume", url, "--meta.meta_steps", "2"]) == 0
    assert StoredRunFolder(url).latest() == 2


def test_a_run_that_was_copied_from_a_disk_is_resumed(
    straight: RunFolder, url: str, machine: Become
) -> None:
    store = ObjectStore(url)
    for path in filter(Path.is_file, straight.path.rglob("*")):
        store.write(path.relative_to(straight.path).as_posix(), path.read_bytes())
    assert store.read(NAME) == b""
    assert main(["resume", url, "--meta.meta_steps", "4"]) == 0
    assert sums(run_folder(url), 3) == sums(straight, 3)
    assert run_folder(url).latest() == 4


def test_a_run_whose_config_is_gone_from_the_store_is_put_aside(
    url: str, machine: Become, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though its lock still says that this machine had it last."""
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    store = ObjectStore(url)
    for name in store.versions():
        store.remove(name)
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    assert "holds no run any more; what was here of one is in" in capsys.readouterr().err
    assert store.read("config.yaml") is not None
    assert store.read("checkpoints/000001/initialization.safetensors") is not None


def test_a_url_with_a_run_is_not_written_over(
    url: str, machine: Become, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    machine("second")
    assert main(["train", *BOWLS, "--run_dir", url]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"run_dir = {url}: holds a run already" in line
    assert f"resume {url}`" in line


@pytest.mark.parametrize("command", ["resume", "watch", "report", "fork"])
def test_where_no_run_is_a_line_says_so(
    command: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, url, *(["--at", "1"] if command == "fork" else [])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"leap-rl: {url}: no run is here")


def test_two_drivers_do_not_work_on_one_run(url: str, machine: Become) -> None:
    with StoredRunFolder(url).lock():
        assert (holder := StoredRunFolder(url).worker()) is not None
        machine("second")
        with pytest.raises(RunFolderError, match="works on this run"):  # noqa: SIM117
            with beating(url), StoredRunFolder(url).lock():
                pass
        assert (seen := StoredRunFolder(url).worker()) is not None
        assert (seen.pid, seen.host) == (holder.pid, holder.host)
    assert StoredRunFolder(url).worker() is None


class beating:  # noqa: N801
    """Renews the lock of a run all the time, as its holder does every ten seconds."""

    def __init__(self, url: str) -> None:
        self._store = ObjectStore(url)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def _beat(self) -> None:
        while not self._ended.wait(0.2):
            record = json.loads(self._store.read(NAME) or b"")
            record["heartbeat"] = time.time()
            self._store.write(NAME, json.dumps(record).encode())

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()


def test_a_run_that_was_taken_over_stops_here(
    url: str, machine: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lock, "BEAT_EVERY_S", 0.05)
    run = StoredRunFolder(url)

    def work() -> None:
        with run.lock():
            lock = StoreLock(ObjectStore(url))
            lock._write(held=True, over=ObjectStore(url).tag(NAME))
            (run.path / "late").write_text("of who was cut off")
            for _ in range(200):
                run.check()
                time.sleep(0.05)

    with pytest.raises(StoreError, match="has taken the run over while this machine was cut off"):
        work()


class Cable:
    """Between this process and its stores."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_cut = False
        self.of_others = SimpleNamespace(read=ObjectStore.read, write=ObjectStore.write)
        """What machines that are not cut off do."""
        for name in ("read", "write", "versions", "remove", "tag", "replace"):
            monkeypatch.setattr(ObjectStore, name, self._through(getattr(ObjectStore, name)))

    def _through(self, method: Callable[..., object]) -> Callable[..., object]:
        def call(store: ObjectStore, *arguments: object) -> object:
            if self.is_cut:
                raise StoreError(f"{store.url}: cannot be reached")
            return method(store, *arguments)

        return call


@pytest.fixture
def cable(monkeypatch: pytest.MonkeyPatch) -> Cable:
    """That of a driver which pushes all the time."""
    monkeypatch.setattr(run_folders, "PUSH_EVERY_S", 0.02)
    return Cable(monkeypatch)


def test_a_store_that_is_away_stops_nothing_and_loses_nothing(
    url: str,
    machine: Become,
    cable: Cable,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(run_folders, "LAST_PUSH_S", 0.2)
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    run = StoredRunFolder(url)

    def work() -> None:
        with run.lock():
            run.write_checkpoint(2, {}, {})
            cable.is_cut = True
            run.write_checkpoint(3, {}, {})
            deadline = time.monotonic() + 30.0
            while not caplog.records:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    with caplog.at_level(logging.WARNING), pytest.raises(StoreError) as failure:
        work()
    assert f"it is in {run.path}, and `leap-rl resume {url}` on this machine" in str(failure.value)
    assert [record.getMessage() for record in caplog.records] == [
        f"{url}: cannot be reached; the run continues, and is uploaded when it can be"
    ]
    cable.is_cut = False
    with StoredRunFolder(url).lock():
        pass
    machine("second")
    assert StoredRunFolder(url).latest() == 3


@pytest.mark.parametrize("dies", ["before it has the lock", "when it has it"])
def test_a_driver_that_dies_as_it_takes_the_lock_loses_nothing(
    dies: str, url: str, machine: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the store does not have yet."""
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    StoredRunFolder(url).write_checkpoint(2, {}, {})

    write = StoreLock._write

    def die_then(self: StoreLock, **options: object) -> None:
        if dies == "when it has it":
            write(self, **options)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoreLock, "_write", die_then)
        with pytest.raises(KeyboardInterrupt), StoredRunFolder(url).lock():
            pass
    assert StoredRunFolder(url).latest() == 2  # to look is no harm
    with StoredRunFolder(url).lock():
        pass
    machine("second")
    assert StoredRunFolder(url).latest() == 2


def test_a_report_is_brought_without_the_run(url: str, machine: Become) -> None:
    """Which another driver may be going on with."""
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    StoredRunFolder(url).write_checkpoint(2, {}, {})
    ObjectStore(url).write("checkpoints/latest", b"000100\n")
    run = StoredRunFolder(url)
    (run.path / "report").mkdir()
    (run.path / "report/index.html").write_text("what came out")
    run.publish("report")
    assert ObjectStore(url).read("report/index.html") == b"what came out"
    assert ObjectStore(url).read("checkpoints/latest") == b"000100\n"


def wait_until(condition: Callable[[], object]) -> None:
    while not condition():  # no longer than the test's own timeout
        time.sleep(0.01)


def test_a_store_that_comes_back_is_told_and_caught_up_with(
    url: str, cable: Cable, caplog: pytest.LogCaptureFixture
) -> None:
    run = StoredRunFolder(url)
    with caplog.at_level(logging.WARNING), run.lock():
        cable.is_cut = True
        run.write_checkpoint(0, {}, {})
        wait_until(lambda: caplog.records)
        cable.is_cut = False
        wait_until(lambda: len(caplog.records) > 1)
        assert "checkpoints/latest" in ObjectStore(url).versions()
    messages = [record.getMessage() for record in caplog.records]
    assert messages[1:] == [f"{url}: has all of the run again"]


def test_a_run_that_fails_is_brought_to_the_store_as_it_was(
    url: str, machine: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folders, "PUSH_EVERY_S", 600.0)  # not before its end
    run = StoredRunFolder(url)

    def work() -> None:
        with run.lock():
            run.write_checkpoint(0, {}, {})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert ObjectStore(url).read("checkpoints/latest") == b"000000\n"


def test_who_was_cut_off_writes_nothing_over_the_run_of_who_took_over(
    url: str, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it pushes more often than it asks whose the run is."""
    monkeypatch.setattr(store_lock, "TRUSTED_S", 0.1)
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    store, run = ObjectStore(url), StoredRunFolder(url)

    def work() -> None:
        with run.lock():
            cable.is_cut = True
            run.write_checkpoint(2, {}, {})
            record = json.loads(cable.of_others.read(store, NAME) or b"")
            cable.of_others.write(store, NAME, json.dumps({**record, "session": "new"}).encode())
            cable.of_others.write(store, "checkpoints/latest", b"000100\n")
            time.sleep(0.2)  # the backlog waits
            cable.is_cut = False
            deadline = time.monotonic() + 30.0
            while time.monotonic() < deadline:
                run.check()
                time.sleep(0.01)

    with pytest.raises(StoreError, match="has taken the run over while this machine was cut off"):
        work()
    assert ObjectStore(url).read("checkpoints/latest") == b"000100\n"
    assert "checkpoints/000002/state.json" not in ObjectStore(url).versions()


@pytest.mark.parametrize("where", ["memory", "s3"])
def test_a_write_that_lands_after_a_takeover_is_refused(
    where: str, machine: Become, request: pytest.FixtureRequest
) -> None:
    """Of a driver that was suspended between its look at the lock and the write."""
    url = request.getfixturevalue("url" if where == "memory" else "s3_url")
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    store, run = ObjectStore(url), StoredRunFolder(url)
    deposed = []

    class Lost(StoreLock):
        def confirm(self) -> None:
            pass

        def renew(self) -> None:
            deposed.append(True)
            raise DeposedError("another's")

    slow = Mirror(run.path, store, Lost(store))
    slow.fence()
    machine("second")
    assert main(["resume", url, "--meta.meta_steps", "3"]) == 0
    before = {name: store.read(name) for name in ("config.yaml", "checkpoints/latest")}
    machine("first")
    for name in before:
        (run.path / name).write_text("of the slow one")
        with pytest.raises(StoreError, match="another's"):
            slow.push(below=name)
    assert {name: store.read(name) for name in before} == before
    assert len(deposed) == 2


def test_where_nothing_is_compared_a_driver_looks_right_before(
    url: str, machine: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectStore, "compares", False)
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    run, store = StoredRunFolder(url), ObjectStore(url)

    def work() -> None:
        with run.lock():
            store.write(NAME, json.dumps({**record(store), "session": "new"}).encode())
            run.write_checkpoint(2, {}, {})

    with pytest.raises(StoreError, match="has taken the run over"):
        work()
    assert store.read("checkpoints/latest") == b"000001\n"


@pytest.mark.parametrize(
    ("late", "says"),
    [
        ("checkpoints/latest", ""),  # nobody notices
        ("config.yaml", "leap-rl: meta.meta_steps = 1: the run has made 3 already"),
        (
            "checkpoints/000003/outer_optimizer.safetensors",
            "resuming from checkpoint 2, which is whole",
        ),
    ],
)
def test_what_lands_late_where_nothing_is_compared_costs_work_and_no_bit(
    late: str,
    says: str,
    url: str,
    straight: RunFolder,
    machine: Become,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As on Google Cloud Storage: a write of a driver that another one has taken over from."""
    monkeypatch.setattr(ObjectStore, "compares", False)
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    store = ObjectStore(url)
    content = store.read(late)
    machine("second")
    assert main(["resume", url, "--meta.meta_steps", "3"]) == 0
    # Checkpoint 3 of the first one: as made by a processor of another kind.
    store.write(late, content or b"of other bits")
    machine("third")
    assert main(["resume", url]) == (2 if late == "config.yaml" else 0)
    error = capsys.readouterr().err
    assert (says in error and len(error.splitlines()) == 1) if says else not error
    assert main(["watch", url, "--once"]) == 0
    assert ("of 1 that were to be made" in capsys.readouterr().out) == (late == "config.yaml")
    machine("fourth")
    assert main(["resume", url, "--meta.meta_steps", "4"]) == 0
    run = run_folder(url)
    assert (run.latest(), sums(run, 3)) == (4, sums(straight, 3))
    assert main(["verify", url]) == 0


def test_agents_that_a_late_pointer_needs_are_gone(
    url: str, machine: Become, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ObjectStore, "compares", False)
    finetune = ["--meta.method", "finetune", "--meta.meta_steps", "1", "--run_dir", url]
    assert main(["train", *BOWLS, *finetune]) == 0
    store = ObjectStore(url)
    late, newest = store.read("checkpoints/latest"), b"000003\n"
    machine("second")
    assert main(["resume", url, "--meta.meta_steps", "3"]) == 0
    store.write("checkpoints/latest", late or b"")
    machine("third")
    assert main(["resume", url]) == 2
    assert "cannot be resumed from" in capsys.readouterr().err
    store.write("checkpoints/latest", newest)
    machine("fourth")
    assert main(["resume", url]) == 0
    assert run_folder(url).latest() == 3


def record(store: ObjectStore) -> dict[str, object]:
    content: dict[str, object] = json.loads(store.read(NAME) or b"")
    return content


def test_a_late_write_of_the_one_before_is_written_over(url: str, machine: Become) -> None:
    run, store, looked = StoredRunFolder(url), ObjectStore(url), []

    class Held(StoreLock):
        def confirm(self) -> None:
            pass

        def renew(self) -> None:
            looked.append(True)

    mirror = Mirror(run.path, store, Held(store))
    mirror.fence()
    run.write_checkpoint(0, {}, {})
    mirror.push()
    assert not looked
    store.write("checkpoints/latest", b"000007\n")
    run.write_checkpoint(1, {}, {})
    mirror.push()
    assert looked == [True]
    assert store.read("checkpoints/latest") == b"000001\n"
    run.write_checkpoint(2, {}, {})
    mirror.push()
    assert looked == [True]  # it knows its own


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


def test_a_run_that_is_gone_from_the_store_is_put_aside(
    url: str, machine: Become, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    store = ObjectStore(url)
    for name in [*store.versions(), NAME]:
        store.remove(name)
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    aside = Path(line.rpartition(" ")[2])
    assert (aside / "checkpoints/000001/state.json").exists()
    # A run of its own from now on.
    assert main(["resume", str(aside), "--meta.meta_steps", "2"]) == 0
    assert RunFolder(aside).latest() == 2


def test_working_copies_of_two_urls_are_two(machine: Become) -> None:
    assert working_copy("s3://a/mine") != working_copy("s3://b/mine")
    assert working_copy("s3://a/mine").name == "mine"
    assert working_copy("s3://a/mine?region=eu-west-1").name == "mine"
