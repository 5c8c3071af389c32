"""Files and configs that lie run no code, fill no memory, and get one clear line."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leap_rl.cli import EXIT_FAILED, EXIT_USAGE, main
from leap_rl.storage.checksummed_file import decode_arrays, encode_arrays
from leap_rl.storage.run_folder import RunFolder
from tests.commands import LOCALLY, Refused
from tests.security.runs import META_STEPS, make, one_line, rewrite_checkpoint

pytestmark = pytest.mark.usefixtures("without_plots")


FLOATS = np.zeros(32, dtype=np.float32).tobytes()


class Attack:
    """Creates a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.canary), "w")


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
@pytest.mark.parametrize("name", ["initialization", "outer_optimizer"])
def test_checkpoints_that_lie_consistently_are_one_line(
    name: str, lie: str, run: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite_checkpoint(run, {}, **{name: LIES[lie](canary)})
    status = main(["resume", str(run)])
    line = one_line(capsys)
    assert status in (1, EXIT_USAGE)
    # A file that can be read is another start than the one of the snapshot's task.
    assert "checkpoints/000002" in line or "the task's snapshot cannot be resumed from" in line
    assert RunFolder(run).latest() == 2


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
    line = one_line(capsys)
    assert status == EXIT_USAGE
    assert f"meta.init = {init}: " in line
    assert not (tmp_path / "new").exists()


def test_a_pickle_in_a_checksummed_snapshot_is_one_line(
    run: Path, canary: Path, refused: Refused
) -> None:
    path = RunFolder(run).slots(2) / "001.snapshot"
    arrays, header = decode_arrays(path.read_bytes())
    attack = np.frombuffer(pickled(canary), dtype=np.uint8)
    path.write_bytes(encode_arrays({**arrays, "snapshot": attack}, header))
    line = refused("resume", run, status=EXIT_FAILED)
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
    state: dict[str, object], run: Path, refused: Refused
) -> None:
    rewrite_checkpoint(run, state)
    for number in (0, 1):
        shutil.rmtree(RunFolder(run).checkpoint(number))
    assert "checkpoints/000002" in refused("resume", run)


# -- configs --------------------------------------------------------------------------------------

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
    name: str, tmp_path: Path, canary: Path, refused: Refused
) -> None:
    text, says = HOSTILE[name]
    config = tmp_path / "config.yaml"
    config.write_text(hostile(text, canary))
    started = time.monotonic()
    line = refused("train", *LOCALLY, "--config", config, "--run_dir", tmp_path / "new")
    assert time.monotonic() - started < 10
    assert says in line
    assert len(line) < 2000
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_run_of_a_hostile_config_is_one_line(
    name: str, run: Path, canary: Path, refused: Refused
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
    line = refused("resume", run)
    assert time.monotonic() - started < 10
    assert "config.yaml: " in line
    assert len(line) < 2000
    assert sorted(path for path in run.rglob("*")) == before
