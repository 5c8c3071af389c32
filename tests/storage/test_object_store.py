"""Objects below a URL: read, written, listed, and nothing that leads elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leap_rl.runs.display import quoted
from leap_rl.storage import object_store
from leap_rl.storage.object_store import (
    ChangedError,
    ObjectStore,
    StoreError,
    is_plain,
    read_file,
)
from leap_rl.storage.open_run import open_run


@pytest.fixture
def store(any_url: str) -> ObjectStore:
    return ObjectStore(any_url)


def test_what_is_written_is_read_and_listed(store: ObjectStore) -> None:
    assert store.versions() == {}
    assert store.read("a/b") is None
    store.write("a/b", b"one")
    store.write("c", b"")
    store.write("a/b", b"other")
    assert store.read("a/b") == b"other"
    assert store.read("c") == b""
    assert {name: version.size for name, version in store.versions().items()} == {"a/b": 5, "c": 0}
    assert read_file(f"{store.url}/a/b") == b"other"
    store.remove("a/b")
    store.remove("a/b")
    assert list(store.versions()) == ["c"]


def test_what_changed_is_not_written_over(store: ObjectStore) -> None:
    assert store.tag("a/b") is None
    one = store.replace("a/b", b"one", None)
    assert one == store.tag("a/b")
    with pytest.raises(ChangedError):
        store.replace("a/b", b"late", None)
    other = store.replace("a/b", b"other", one)
    assert other != one
    with pytest.raises(ChangedError):
        store.replace("a/b", b"late", one)
    assert store.read("a/b") == b"other"
    store.remove("a/b")
    with pytest.raises(ChangedError):
        store.replace("a/b", b"late", other)
    assert store.read("a/b") is None


def test_without_botocore_nothing_is_compared(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "find_spec", lambda name: None)
    store = ObjectStore(s3_url)
    assert store.tag("a") is None
    assert store.replace("a", b"one", None) is None
    assert store.replace("a", b"other", "known") is None
    assert store.read("a") == b"other"


def test_a_store_that_refuses_or_is_away_is_told_in_one_line(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="NoSuchBucket"):
        ObjectStore(f"{s3_url.rsplit('/', 2)[0]}-none/x").replace("a", b"", None)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for call, what in {
        lambda store: store.replace("a", b"", None): r"cannot be written to \(a\)",
        lambda store: store.read("a"): r"cannot be read \(a\)",
    }.items():
        with pytest.raises(StoreError, match=f"^{re.escape(s3_url)}: {what}: .+") as refusal:
            call(ObjectStore(s3_url))
        assert "\n" not in str(refusal.value)


def test_a_store_keeps_to_its_folder(url: str) -> None:
    ObjectStore(url + "-other").write("a", b"")
    ObjectStore(url).write("b", b"")
    assert list(ObjectStore(url).versions()) == ["b"]


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../../x", ".ssh/authorized_keys", "a/.lock", "a\0b"]
)
def test_names_that_leave_or_hide_are_not_listed(name: str) -> None:
    assert not is_plain(name)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("az://box/mine", "must be a path or one address that begins with file://, http://"),
        ("https://box/mine", "must be a path, or begin with one of s3://, gs://, memory://"),
        ("s3://", "must name a bucket and a folder, such as s3://bucket/mine"),
        ("s3://me:secret@bucket/mine", "s3://...@bucket/mine: must hold no password"),
        ("s3://bucket/mine?color=red", "color"),
    ],
)
def test_a_url_that_cannot_be_is_refused(url: str, says: str) -> None:
    with pytest.raises(ValueError, match="://") as refusal:
        open_run(url)
    assert says in str(refusal.value)
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("gs://box/mine", "gs://box/mine?retry_limit_seconds=10"),
        ("gs://box/mine?location=EU", "gs://box/mine?location=EU&retry_limit_seconds=10"),
        ("s3://box/mine", "s3://box/mine?allow_delayed_open=true"),
    ],
)
def test_no_write_is_tried_for_so_long_that_the_run_may_be_anothers(
    url: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FileSystem:
        @staticmethod
        def from_uri(uri: str) -> tuple[object, str]:
            assert uri == asked
            return object(), "box/mine"

    monkeypatch.setattr("pyarrow.fs.FileSystem", FileSystem)
    assert ObjectStore(url).url == url


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    assert open_run(f"file://{tmp_path}/mine").path == tmp_path / "mine"
    assert open_run(f"file://{tmp_path}/mine").url is None
    with pytest.raises(ValueError, match="must name something on this machine"):
        open_run("file://elsewhere/srv/runs")


def test_a_url_is_one_word_of_the_command_that_is_shown(machine: object) -> None:
    url = "memory://box/mine?region=a&scheme=b"
    assert quoted(open_run(url)) == f"'{url}'"
