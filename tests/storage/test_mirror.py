"""A store that can be gone on from at any moment, whatever dies in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leap_rl.storage.mirror import GROWING_EVERY_S, Mirror
from leap_rl.storage.object_store import ObjectStore, StoreError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.store_lock import DeposedError, StoreLock

FINGERPRINT = "f" * 8


def make_run(path: Path, checkpoints: int = 1) -> RunFolder:
    """A run of so many checkpoints after the first."""
    folder = RunFolder(path)
    folder.write_checkpoint(0, contents(0), {"fingerprint": FINGERPRINT})
    folder.write_config({"fingerprint": FINGERPRINT})
    for number in range(1, checkpoints + 1):
        add_checkpoint(folder, number)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "here")


def contents(number: int) -> dict[str, bytes]:
    return {
        f"{name}.safetensors": f"{name} {number}".encode() for name in ("initialization", "outer")
    }


def add_checkpoint(folder: RunFolder, number: int) -> None:
    """Close a round, as the parameter server does it."""
    folder.write_checkpoint(number, contents(number), {"fingerprint": FINGERPRINT})
    folder.remove_slots(number - 1)


def add_slot_file(folder: RunFolder, round_number: int, name: str) -> Path:
    path = folder.slots(round_number) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(name.encode())
    return path


def files(folder: RunFolder) -> dict[str, bytes]:
    """All that counts."""
    paths = [path for path in folder.path.rglob("*") if path.is_file()]
    named = {path.relative_to(folder.path).as_posix(): path.read_bytes() for path in paths}
    return {name: content for name, content in named.items() if not name.startswith(".")}


def pulled(path: Path, store: ObjectStore) -> RunFolder:
    Mirror(path, store).pull()
    return RunFolder(path)


class DyingStore(ObjectStore):
    """Fails for good after so many writes and removals."""

    def __init__(self, url: str, writes: int) -> None:
        super().__init__(url)
        self.left = writes

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreError("gone")

    def write(self, name: str, content: bytes) -> None:
        self._count()
        super().write(name, content)

    def remove(self, name: str) -> None:
        self._count()
        super().remove(name)


def test_another_machine_gets_what_one_has(url: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "here", checkpoints=2)
    (run.path / ".hidden").write_text("not for others")
    (run.path / "link").symlink_to(run.path / "config.yaml")
    add_slot_file(run, 2, "000.safetensors")
    assert Mirror(run.path, ObjectStore(url)).push() == 12
    assert Mirror(run.path, ObjectStore(url)).push() == 0
    there = pulled(tmp_path / "there", ObjectStore(url))
    lazy = {f"checkpoints/{number:06d}/{name}" for number in (0, 1) for name in contents(0)}
    everything = files(run)
    del everything["link"]
    assert files(there) == {name: one for name, one in everything.items() if name not in lazy}
    Mirror(there.path, ObjectStore(url)).fetch("checkpoints/000001")
    assert there.read_checkpoint(1)[0] == contents(1)


@pytest.mark.parametrize("deaths_after", range(14))
def test_whatever_write_is_the_last_the_store_holds_a_run_to_resume(
    deaths_after: int, run: RunFolder, url: str, tmp_path: Path
) -> None:
    add_slot_file(run, 1, "000.safetensors")
    store = DyingStore(url, deaths_after)
    died = 0
    for number in (1, 2):
        if number > 1:
            add_checkpoint(run, number)
        try:
            Mirror(run.path, store).push(everything=True)
        except StoreError:
            died = number
            break
    there = pulled(tmp_path / "there", ObjectStore(url))
    if there.exists():
        assert there.fall_back(FINGERPRINT) is None  # the one that `latest` leads to is whole
        latest = there.latest()
        assert latest is not None
        assert latest >= (died or 3) - 1
        assert there.slot(1, 0).exists() or latest == 2
    else:
        assert died == 1
    # Who lives on brings the rest.
    Mirror(run.path, ObjectStore(url)).push(everything=True)
    again = pulled(tmp_path / "again", ObjectStore(url))
    assert again.latest() == run.latest()
    assert not again.slot(1, 0).exists() or died == 1


@pytest.mark.parametrize("order", [1, -1])
def test_what_leads_to_other_files_is_written_after_them(
    order: int, run: RunFolder, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order in which the folder lists its files."""
    look = Mirror._stamps
    monkeypatch.setattr(Mirror, "_stamps", lambda self: dict(sorted(look(self).items())[::order]))
    written: list[str] = []

    class Recorded(ObjectStore):
        def write(self, name: str, content: bytes) -> None:
            written.append(name)
            super().write(name, content)

    Mirror(run.path, Recorded(url)).push()
    kinds = [0 if ".safetensors" in one else 1 if "state" in one else 2 for one in written[:-1]]
    assert kinds == [0, 0, 0, 0, 1, 1, 2]
    assert written[-2:] == ["checkpoints/latest", "config.yaml"]


@pytest.mark.parametrize("listed", ["before it", "after it"])
def test_a_round_that_closes_during_a_push_is_left_to_the_next(
    listed: str, run: RunFolder, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `latest` waits for its files, and the slots of the round before for its `latest`."""
    add_slot_file(run, 1, "000.safetensors")
    kept = run.carried_agent(0, "pong")
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"agent")
    mirror = Mirror(run.path, ObjectStore(url))
    mirror.push()
    look = Mirror._stamps

    def look_and_close(self: Mirror) -> object:
        monkeypatch.setattr(Mirror, "_stamps", look)
        before = look(self)
        add_checkpoint(run, 2)
        kept.unlink()
        return before if listed == "before it" else look(self)

    monkeypatch.setattr(Mirror, "_stamps", look_and_close)
    mirror.push()
    there = pulled(tmp_path / "there", ObjectStore(url))
    assert there.latest() == 1
    assert there.slot(1, 0).exists()
    assert there.carried_agent(0, "pong").exists()
    mirror.push()
    there = pulled(tmp_path / "there", ObjectStore(url))
    assert there.latest() == 2
    assert there.read_checkpoint(2)[0] == contents(2)
    assert not there.slot(1, 0).exists()
    assert not there.carried_agent(0, "pong").exists()


def test_a_result_takes_the_place_of_a_snapshot(run: RunFolder, url: str, tmp_path: Path) -> None:
    snapshot = add_slot_file(run, 1, "000.snapshot")
    mirror = Mirror(run.path, ObjectStore(url))
    mirror.push()
    assert pulled(tmp_path / "there", ObjectStore(url)).slot(1, 0).with_suffix(".snapshot").exists()
    add_slot_file(run, 1, "000.safetensors")
    snapshot.unlink()
    mirror.push()
    assert {name for name in ObjectStore(url).versions() if name.startswith("slots/")} == {
        "slots/000001/000.safetensors"
    }
    there = pulled(tmp_path / "there", ObjectStore(url))
    assert [path.name for path in there.slots(1).iterdir()] == ["000.safetensors"]


def test_who_has_lost_the_run_removes_nothing(url: str, tmp_path: Path) -> None:
    run, store = make_run(tmp_path / "here"), ObjectStore(url)
    snapshot = add_slot_file(run, 1, "000.snapshot")
    Mirror(run.path, store).push()
    snapshot.unlink()

    class Lost(StoreLock):
        def confirm(self) -> None:
            raise DeposedError("another's")

    Mirror(run.path, store).push(below="report")  # which asks for no lock
    assert "slots/000001/000.snapshot" in store.versions()
    with pytest.raises(DeposedError, match="another's"):
        Mirror(run.path, store, Lost(store)).push()
    assert "slots/000001/000.snapshot" in store.versions()


def test_results_are_never_removed_from_the_store(url: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "here", checkpoints=2)
    mirror = Mirror(run.path, ObjectStore(url))
    mirror.push()
    before = ObjectStore(url).versions().keys()
    for path in sorted((run.path / "checkpoints/000000").iterdir()):
        path.unlink()
    mirror.push()
    assert ObjectStore(url).versions().keys() == before


def test_what_grows_is_written_now_and_then_and_at_the_end(
    run: RunFolder, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    mirror = Mirror(run.path, ObjectStore(url))
    metrics = run.path / "metrics.jsonl"
    metrics.write_text("1\n")
    mirror.push()
    metrics.write_text("1\n2\n")
    assert mirror.push() == 0
    now_s = GROWING_EVERY_S + 0.1
    assert mirror.push() == 1
    metrics.write_text("1\n2\n3\n")
    assert mirror.push(everything=True) == 1
    assert ObjectStore(url).read("metrics.jsonl") == b"1\n2\n3\n"
    metrics.write_bytes(bytes(5_000_000))
    now_s += GROWING_EVERY_S + 4.0
    assert mirror.push() == 0
    now_s += 1.1
    assert mirror.push() == 1


def test_a_store_of_somebody_else_writes_nowhere_but_in_the_working_copy(
    run: RunFolder, url: str, tmp_path: Path
) -> None:
    Mirror(run.path, ObjectStore(url)).push()
    store = ObjectStore(url)
    for name in ("a/../../evil", ".mirror.json", "tensorboard/.profile"):
        store.write(name, b"evil")
    there = pulled(tmp_path / "there", ObjectStore(url))
    assert not (tmp_path / "evil").exists()
    assert b"evil" not in files(there).values()
    assert not (there.path / "tensorboard/.profile").exists()


@pytest.mark.parametrize("records", [b"", b"[]", b'{"session": "a", "files": 3}', b"\xff"])
def test_damaged_records_cost_an_upload(records: bytes, run: RunFolder, url: str) -> None:
    Mirror(run.path, ObjectStore(url)).push()
    (run.path / ".mirror.json").write_bytes(records)
    assert Mirror(run.path, ObjectStore(url)).push() == 8


DYING = """
import os, signal, sys
from pathlib import Path
from leap_rl.storage.mirror import Mirror
from leap_rl.storage.object_store import ObjectStore

class Dying(ObjectStore):
    def write(self, name, content):
        if len(content) < 10_000_000:
            return super().write(name, content)
        stream = self._files.open_output_stream(self._path(name))
        stream.write(content[:12_000_000])
        stream.flush()
        os.kill(os.getpid(), signal.SIGKILL)

Mirror(Path(sys.argv[1]), Dying(sys.argv[2])).push()
"""


def test_a_kill_in_the_middle_of_an_upload_leaves_the_last_whole_checkpoint(
    run: RunFolder, s3_url: str, tmp_path: Path
) -> None:
    Mirror(run.path, ObjectStore(s3_url)).push()
    large = {**contents(2), "outer.safetensors": os.urandom(20_000_000)}
    run.write_checkpoint(2, large, {"fingerprint": FINGERPRINT})
    words = [sys.executable, "-c", DYING, str(run.path), s3_url]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    half = {name for name in ObjectStore(s3_url).versions() if "000002" in name}
    assert half <= {"checkpoints/000002/initialization.safetensors"}
    there = pulled(tmp_path / "there", ObjectStore(s3_url))
    assert there.latest() == 1
    assert there.read_checkpoint(1)[0] == contents(1)
    Mirror(run.path, ObjectStore(s3_url)).push()
    there = pulled(tmp_path / "there", ObjectStore(s3_url))
    assert there.read_checkpoint(2)[0] == large
