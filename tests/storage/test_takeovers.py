"""Who may write to a run in an object store, as drivers die and stores are out of reach."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from leap_rl.cli import main
from leap_rl.storage import run_lock, store_lock
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.mirror import Mirror
from leap_rl.storage.object_store import ObjectStore, StoreError
from leap_rl.storage.open_run import RemoteRunFolder, open_run
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.store_lock import NAME, DeposedError, StoreLock
from tests.storage.short_runs import BOWLS, Become, sums

pytestmark = pytest.mark.usefixtures("without_plots")


def test_two_drivers_do_not_work_on_one_run(
    url: str, machine: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sleep = ObjectStore(url), time.sleep

    def renew(seconds: float) -> None:
        """Renew the lock while another driver looks at it, as its holder does every ten seconds."""
        if seconds == store_lock.LOOK_EVERY_S:
            store.write(NAME, json.dumps({**record(store), "heartbeat": time.time()}).encode())
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", renew)
    with RemoteRunFolder(url).lock():
        assert (holder := RemoteRunFolder(url).worker()) is not None
        machine("second")
        with (
            pytest.raises(RunFolderError, match="works on this run"),
            RemoteRunFolder(url).lock(),
        ):
            pass
        assert (seen := RemoteRunFolder(url).worker()) is not None
        assert (seen.pid, seen.host) == (holder.pid, holder.host)
    assert RemoteRunFolder(url).worker() is None


def test_a_run_that_was_taken_over_stops_here(
    url: str, machine: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lock, "BEAT_EVERY_S", 0.05)
    run = RemoteRunFolder(url)

    def work() -> None:
        with run.lock():
            lock = StoreLock(ObjectStore(url))
            lock._write(held=True, over=ObjectStore(url).tag(NAME))
            (run.path / "late").write_text("of who was cut off")
            wait_until(run.check)  # until it raises

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
    monkeypatch.setattr("leap_rl.storage.open_run.PUSH_EVERY_S", 0.02)
    return Cable(monkeypatch)


def test_a_store_that_is_away_stops_nothing_and_loses_nothing(
    url: str,
    machine: Become,
    cable: Cable,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("leap_rl.storage.open_run.LAST_PUSH_S", 0.2)
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    run = RemoteRunFolder(url)

    def work() -> None:
        with run.lock():
            run.write_checkpoint(2, {}, {})
            cable.is_cut = True
            run.write_checkpoint(3, {}, {})
            wait_until(lambda: caplog.records)

    with caplog.at_level(logging.WARNING), pytest.raises(StoreError) as failure:
        work()
    assert f"it is in {run.path}, and `leap-rl resume {url}` on this machine" in str(failure.value)
    assert [record.getMessage() for record in caplog.records] == [
        f"{url}: cannot be reached; the run continues, and is uploaded when it can be"
    ]
    cable.is_cut = False
    with RemoteRunFolder(url).lock():
        pass
    machine("second")
    assert RemoteRunFolder(url).latest() == 3


def test_what_a_stop_leaves_behind_is_said_while_the_store_is_away(
    url: str, cable: Cable, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    run = RemoteRunFolder(url)

    def work() -> None:
        with run.lock():
            cable.is_cut = True
            run.write_checkpoint(2, {}, {})
            raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        work()
    said = caplog.records[-1].getMessage()
    assert f"it is in {run.path}, and `leap-rl resume {url}` on this machine uploads it" in said


@pytest.mark.parametrize("dies", ["before it has the lock", "when it has it"])
def test_a_driver_that_dies_as_it_takes_the_lock_loses_nothing(
    dies: str, url: str, machine: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the store does not have yet."""
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    RemoteRunFolder(url).write_checkpoint(2, {}, {})

    write = StoreLock._write

    def die_then(self: StoreLock, **options: object) -> None:
        if dies == "when it has it":
            write(self, **options)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoreLock, "_write", die_then)
        with pytest.raises(KeyboardInterrupt), RemoteRunFolder(url).lock():
            pass
    assert RemoteRunFolder(url).latest() == 2  # to look is no harm
    with RemoteRunFolder(url).lock():
        pass
    machine("second")
    assert RemoteRunFolder(url).latest() == 2


def wait_until(condition: Callable[[], object]) -> None:
    while not condition():  # no longer than the test's own timeout
        time.sleep(0.01)


def test_a_store_that_comes_back_is_told_and_caught_up_with(
    url: str, cable: Cable, caplog: pytest.LogCaptureFixture
) -> None:
    run = RemoteRunFolder(url)
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
    monkeypatch.setattr("leap_rl.storage.open_run.PUSH_EVERY_S", 600.0)  # not before its end
    run = RemoteRunFolder(url)

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
    store, run = ObjectStore(url), RemoteRunFolder(url)

    def work() -> None:
        with run.lock():
            cable.is_cut = True
            run.write_checkpoint(2, {}, {})
            lock = json.loads(cable.of_others.read(store, NAME) or b"")
            cable.of_others.write(store, NAME, json.dumps({**lock, "session": "new"}).encode())
            cable.of_others.write(store, "checkpoints/latest", b"000100\n")
            time.sleep(0.2)  # the backlog waits
            cable.is_cut = False
            wait_until(run.check)  # until it raises

    with pytest.raises(StoreError, match="has taken the run over while this machine was cut off"):
        work()
    assert ObjectStore(url).read("checkpoints/latest") == b"000100\n"
    assert "checkpoints/000002/state.json" not in ObjectStore(url).versions()


def test_a_write_that_lands_after_a_takeover_is_refused(any_url: str, machine: Become) -> None:
    """Of a driver that was suspended between its look at the lock and the write."""
    url = any_url
    assert main(["train", *BOWLS, "--meta.meta_steps", "1", "--run_dir", url]) == 0
    store, run = ObjectStore(url), RemoteRunFolder(url)
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
    run, store = RemoteRunFolder(url), ObjectStore(url)

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
    run = open_run(url)
    assert (run.latest(), sums(run, 3)) == (4, sums(straight, 3))
    assert main(["verify", url]) == 0


def test_agents_that_a_late_pointer_needs_are_gone(
    url: str, machine: Become, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ObjectStore, "compares", False)
    finetune = ["--meta.method", "pretraining", "--meta.meta_steps", "1", "--run_dir", url]
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
    assert open_run(url).latest() == 3


def record(store: ObjectStore) -> dict[str, object]:
    content: dict[str, object] = json.loads(store.read(NAME) or b"")
    return content


def test_a_late_write_of_the_one_before_is_written_over(url: str, machine: Become) -> None:
    run, store, looked = RemoteRunFolder(url), ObjectStore(url), []

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
