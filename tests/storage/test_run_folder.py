from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import LONGEST_NAME, RunFolder, file_name


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


@pytest.mark.parametrize("crash", ["rename", "replace"])  # of the checkpoint, of `latest`
def test_latest_moves_only_when_the_checkpoint_is_whole(
    crash: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    folder.write_checkpoint(0, {"a": b"0"}, {})
    with monkeypatch.context() as patch:
        patch.setattr(os, crash, interrupt)
        with pytest.raises(KeyboardInterrupt):
            folder.write_checkpoint(1, {"a": b"half"}, {})
    assert folder.latest() == 0
    folder.write_checkpoint(1, {"a": b"whole"}, {})  # what the crash left is no obstacle
    assert folder.latest() == 1
    assert folder.read_checkpoint(1)[0] == {"a": b"whole"}


def test_missing_things_are_named(folder: RunFolder) -> None:
    with pytest.raises(RunFolderError, match=r"no run is here .*; `leap-rl train` makes one"):
        folder.read_config()
    folder.path.mkdir(exist_ok=True)
    (folder.path / "study.yaml").touch()
    with pytest.raises(
        RunFolderError, match=r"no run is here .*; it is a study's: name one of its"
    ):
        folder.read_config()
    folder.write_checkpoint(0, {"a.bin": b""}, {})
    (folder.checkpoint(0) / "a.bin").unlink()
    with pytest.raises(RunFolderError, match=r"a\.bin: cannot be read"):
        folder.read_checkpoint(0)
    with pytest.raises(RunFolderError, match=r"000001/state\.json: cannot be read"):
        folder.read_checkpoint(1)
    with pytest.raises(RunFolderError, match="has no checkpoint"):
        RunFolder(folder.path / "other").fall_back("own")


@pytest.mark.parametrize("damage", [b"", b"\x00\x02", b"\x00\x01\x00"])
def test_a_damaged_file_is_named(folder: RunFolder, damage: bytes) -> None:
    for number in (0, 1):
        folder.write_checkpoint(number, {"a.bin": b"\x00\x01"}, {})
        (folder.checkpoint(number) / "a.bin").write_bytes(damage)
    with pytest.raises(RunFolderError, match=r"000000/a\.bin: is damaged"):
        folder.read_checkpoint(0)
    with pytest.raises(RunFolderError, match=r"000001/a\.bin: is damaged.*no other .* is whole"):
        folder.fall_back("own")


def edit_state(folder: RunFolder, number: int, /, **changes: object) -> None:
    """Change a checkpoint's state as a stranger would, its checksum included."""
    path = folder.checkpoint(number) / "state.json"
    state = json.loads(path.read_text()) | changes
    if "checksum" not in changes:
        state.pop("checksum")
        state["checksum"] = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(state))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"checksum": 1}, r"state\.json: is damaged"),
        ({"number": 1}, "is not checkpoint 0"),
        ({"sha256": ["a.bin"]}, "is not checkpoint 0"),
        ({"rows": {}}, "is not checkpoint 0"),
        ({"schema": 3}, "is not a checkpoint of this version"),
    ],
)
def test_a_state_that_cannot_be_is_refused(
    folder: RunFolder, changes: dict[str, object], message: str
) -> None:
    folder.write_checkpoint(0, {"a.bin": b"x"}, {})
    edit_state(folder, 0, **changes)
    with pytest.raises(RunFolderError, match=message):
        folder.read_state(0)


def test_a_changed_config_is_told(folder: RunFolder) -> None:
    folder.write_config({"seed": 0, "task": {"games": ["pong"]}, "rate": 1e-5, "none": None})
    assert folder.read_config()["rate"] == 1e-5
    text = folder.config_path.read_text()
    folder.config_path.write_text(text.replace("pong", "qbert"))
    with pytest.raises(RunFolderError, match="was changed since the run was made, or is damaged"):
        folder.read_config()


def run_of(folder: RunFolder, checkpoints: int) -> RunFolder:
    for number in range(checkpoints):
        files = {"a.safetensors": b"%d" % number}
        folder.write_checkpoint(number, files, {"fingerprint": "own"})
        folder.slot(number, 0).parent.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("pointer", ["latest", "best"])
@pytest.mark.parametrize("text", ["9" * 5000, "9" * 19, "-1", "", "1 2"])
def test_a_pointer_to_no_checkpoint_is_named(folder: RunFolder, pointer: str, text: str) -> None:
    run_of(folder, 1)
    (folder.path / "checkpoints" / pointer).write_text(text)
    with pytest.raises(
        RunFolderError, match=rf"checkpoints/{pointer}: (holds b'.{{0,70}}'|.* larger than 64)"
    ):
        folder.latest() if pointer == "latest" else folder.best()


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "name", ["config.yaml", "checkpoints/latest", "checkpoints/000000/state.json"]
)
def test_a_pipe_that_is_put_into_a_folder_later_is_not_waited_for(
    folder: RunFolder, name: str
) -> None:
    run_of(folder, 1)
    folder.write_config({"seed": 0})
    (folder.path / name).unlink()
    os.mkfifo(folder.path / name)

    def read() -> None:
        folder.read_config()
        raise RunFolderError(folder.fall_back("own") or "")

    with pytest.raises(RunFolderError, match=rf"{name}.*is no regular file"):
        read()


def test_the_newest_checkpoint_is_the_one_that_latest_names(folder: RunFolder) -> None:
    """And not one that a crash left, or from which the run fell back."""
    run_of(folder, 4)
    (folder.path / "checkpoints/latest").write_bytes(b"000002\n")
    folder.thin_out(1)
    assert not folder.is_thinned_out(2)
    assert folder.is_thinned_out(1)


def test_old_parameters_are_removed_through_no_link(folder: RunFolder, tmp_path: Path) -> None:
    run_of(folder, 4)
    elsewhere = folder.checkpoint(1).rename(tmp_path / "elsewhere")
    folder.checkpoint(1).symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"is a symbolic link: .*/000001"):
        folder.thin_out(1)
    assert (elsewhere / "a.safetensors").exists()
    folder.checkpoint(1).unlink()
    folder.thin_out(1)
    assert [folder.is_thinned_out(number) for number in (0, 2, 3)] == [False, True, False]


@pytest.mark.parametrize(
    ("damage", "good", "message"),
    [
        ("checkpoints/000002/a.safetensors", 1, r"000002/a\.safetensors: is damaged"),
        ("checkpoints/000002/state.json", 1, r"000002/state\.json: cannot be read"),
        ("checkpoints/latest", 2, r"latest: holds b'dam\\xc3\\xa4ged'"),
    ],
)
def test_a_run_falls_back_to_what_is_whole(
    folder: RunFolder, damage: str, good: int, message: str
) -> None:
    run_of(folder, 3)
    (folder.path / damage).write_text("damäged")
    line = folder.fall_back("own")
    assert line is not None
    assert re.search(message, line)
    assert line.endswith(f"resuming from checkpoint {good}, which is whole")
    assert folder.latest() == good
    assert folder.slots(good).exists()
    assert folder.slots(2).exists() == (good == 2)
    assert folder.fall_back("own") is None


def test_it_falls_back_as_far_as_it_must(folder: RunFolder) -> None:
    run_of(folder, 4)
    shutil.rmtree(folder.checkpoint(3))
    (folder.checkpoint(2) / "a.safetensors").write_bytes(b"")
    edit_state(folder, 1, fingerprint="another")
    line = folder.fall_back("own")
    assert line is not None
    assert "000003/state.json: cannot be read" in line
    assert folder.latest() == 0


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


# -- whose folder it is -----------------------------------------------------------------------


def lose(path: Path, how: str) -> None:
    path.unlink()
    if how == "replaced":
        path.touch()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_driver_whose_lock_is_lost_writes_nothing(folder: RunFolder, how: str) -> None:
    with folder.lock():
        folder.write_checkpoint(0, {}, {})
        lose(folder.path / ".lock", how)
        with pytest.raises(OSError, match=rf"\.lock: was {how} while a run went on there"):
            folder.write_checkpoint(1, {}, {})
        with pytest.raises(OSError, match="this one stops"):
            folder.check()
        with pytest.raises(OSError, match="this one stops"):
            folder.remove(folder.checkpoint(0))
    assert folder.checkpoints() == [0]
    folder.write_checkpoint(1, {}, {})  # outside of the lock nothing is relied on


@pytest.mark.parametrize("name", [".lock", ".server"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_server_whose_lock_is_lost_writes_nothing(folder: RunFolder, name: str, how: str) -> None:
    driver = RunFolder(folder.path)
    with driver.lock(), RunFolder(folder.path).serving():
        folder.rely_on_locks()
        folder.write_checkpoint(0, {}, {})
        lose(folder.path / name, how)
        with pytest.raises(OSError, match=rf"{name}: was {how}"):
            folder.write_checkpoint(1, {}, {})
        with pytest.raises(OSError, match=rf"{name}: was {how}"):
            folder.write(folder.slot(0, 0), b"")
    assert folder.checkpoints() == [0]


def test_a_server_outlives_its_driver(folder: RunFolder) -> None:
    """The next driver takes the same lock, and the server may finish what it writes."""
    with RunFolder(folder.path).lock():
        folder.rely_on_locks()
    with RunFolder(folder.path).lock():
        folder.write_checkpoint(0, {}, {})


def test_long_names_of_games_fit_a_file_and_stay_apart() -> None:
    assert file_name("MinAtar/Asterix-v1") == "MinAtar+Asterix-v1"
    edge = "é" * (LONGEST_NAME // 2) + "e"
    assert file_name(edge) == edge
    longer = [f"Own/Env-v0@name={'é' * 200}{number}" for number in range(2)]
    names = [file_name(game) for game in longer]
    assert len(set(names)) == 2
    assert all(len(name.encode()) <= LONGEST_NAME for name in names)
    assert all(name.startswith("Own+Env-v0@name=é") for name in names)
