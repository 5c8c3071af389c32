from __future__ import annotations

import os
from pathlib import Path

import pytest

from leap_rl.run_folder import RunFolder, RunFolderError, write_atomically


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def test_a_checkpoint_comes_back_as_it_was_written(folder: RunFolder) -> None:
    folder.write_checkpoint(3, {"a.bin": b"\x00\x01", "b.bin": b""}, {"agent_steps": 7})
    assert folder.latest() == 3
    files, state = folder.read_checkpoint(3)
    assert files == {"a.bin": b"\x00\x01", "b.bin": b""}
    assert (state["number"], state["agent_steps"]) == (3, 7)
    assert sorted(path.name for path in folder.checkpoint(3).parent.iterdir()) == [
        "000003",
        "latest",
    ]


def test_latest_moves_only_when_the_checkpoint_is_whole(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_checkpoint(0, {"a": b"0"}, {})
    real_rename = Path.rename

    def crash(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", crash)
    with pytest.raises(KeyboardInterrupt):
        folder.write_checkpoint(1, {"a": b"1"}, {})
    assert folder.latest() == 0
    monkeypatch.setattr(Path, "rename", real_rename)
    folder.write_checkpoint(1, {"a": b"1"}, {})  # what the crash left is no obstacle
    assert folder.read_checkpoint(1)[0] == {"a": b"1"}


def test_a_crash_between_the_rename_and_latest_is_no_obstacle(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_checkpoint(0, {}, {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            folder.write_checkpoint(1, {"a": b"half"}, {})
    assert folder.latest() == 0
    folder.write_checkpoint(1, {"a": b"whole"}, {})
    assert folder.latest() == 1
    assert folder.read_checkpoint(1)[0] == {"a": b"whole"}


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_atomic_write_leaves_the_old_content_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("damage", [b"", b"\x00\x02", b"\x00\x01\x00"])
def test_a_damaged_file_is_named(folder: RunFolder, damage: bytes) -> None:
    folder.write_checkpoint(0, {"a.bin": b"\x00\x01"}, {})
    (folder.checkpoint(0) / "a.bin").write_bytes(damage)
    with pytest.raises(RunFolderError, match=r"a\.bin: is damaged"):
        folder.read_checkpoint(0)


def test_missing_things_are_named(folder: RunFolder) -> None:
    with pytest.raises(RunFolderError, match="no run is here"):
        folder.read_config()
    folder.write_checkpoint(0, {"a.bin": b""}, {})
    (folder.checkpoint(0) / "a.bin").unlink()
    with pytest.raises(RunFolderError, match=r"a\.bin: cannot be read"):
        folder.read_checkpoint(0)
    with pytest.raises(RunFolderError, match=r"000001/state\.json: cannot be read"):
        folder.read_checkpoint(1)


def test_a_manifest_cannot_reach_outside_its_checkpoint(folder: RunFolder) -> None:
    folder.write_checkpoint(0, {"a.bin": b"x"}, {})
    secret = folder.path / "secret"
    secret.write_bytes(b"x")
    state = folder.checkpoint(0) / "state.json"
    state.write_text(state.read_text().replace('"a.bin"', '"../../secret"'))
    with pytest.raises(RunFolderError, match="secret: cannot be read"):
        folder.read_checkpoint(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: !!python/object/apply:os.system ['true']\n", "cannot be read"),
        ("- 1\n", "mapping"),
        ("seed: [1\n", "cannot be read"),
    ],
)
def test_a_config_is_plain_values_or_an_error(folder: RunFolder, text: str, message: str) -> None:
    folder.path.mkdir()
    folder.config_path.write_text(text)
    with pytest.raises(RunFolderError, match=message):
        folder.read_config()


def test_a_url_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"run_dir = s3://bucket/run"):
        RunFolder("s3://bucket/run")
