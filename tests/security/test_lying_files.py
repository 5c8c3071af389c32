"""Files and configs that lie run no code, fill no memory, and get one clear line."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leap_rl.cli import EXIT_FAILED, EXIT_USAGE, main
from leap_rl.core import plain_json
from leap_rl.learners.task import TaskSpec
from leap_rl.storage.checksummed_file import (
    CHECKSUM,
    ChecksumError,
    checksum,
    decode_arrays,
    encode_arrays,
)
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import Episodes, TaskRecord
from leap_rl.training.rounds.evaluation_slots import agents_of
from leap_rl.training.rounds.plan import FilledSlot
from leap_rl.training.rounds.rows import episodes_file, read_episodes
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
    line = refused("resume", run)
    assert "the task's snapshot cannot be resumed from" in line


@pytest.mark.parametrize(
    "lie",
    [
        {"updates": "2"},
        {"agent_steps": -4},
        {"losses": {"counts": {"total": 0}, "sums": {"total": 1.0}}},
        {"losses": {"counts": {}, "sums": {"total": 1.0}}},
        {"losses": []},
        {"curve": [{"agent_steps": 2}]},
        {"curve": 1},
        {"interval": None},
        {"working_s": "1"},
        {"task/theta": np.zeros(31, np.float32)},
        {"path/loss_sum.total": np.zeros((2, 16))},
        {"path/theta0_checksum": np.int64(1)},
        {"path/theta": np.zeros(31, np.float32)},
        {"records/lengths": np.zeros(1, np.int64)},
        {"other/lengths": np.zeros(1, np.int64)},
    ],
    ids=lambda lie: str(lie)[:40],
)
def test_a_snapshot_that_lies_is_one_line(lie: dict[str, Any], run: Path, refused: Refused) -> None:
    path = RunFolder(run).slots(2) / "001.snapshot"
    arrays, header = decode_arrays(path.read_bytes())
    inner, metrics = decode_arrays(arrays["snapshot"].data)
    (key,) = lie
    changed = encode_arrays({**inner, **lie}, metrics) if "/" in key else None
    data = np.frombuffer(changed or encode_arrays(inner, {**metrics, **lie}), dtype=np.uint8)
    path.write_bytes(encode_arrays({**arrays, "snapshot": data}, header))
    line = refused("resume", run)
    assert "the task's snapshot " in line
    assert "slots/*/*.snapshot" in line


def test_other_numbers_in_the_metrics_change_nothing_and_are_told(
    run: Path, calm: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "metrics.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    row = json.loads(first)
    other = json.dumps({**row, "meta/step_norm": row["meta/step_norm"] + 1})
    path.write_text("".join([f"{other}\n", *rest]))
    assert main(["resume", str(run)]) == 0
    assert dict(RunFolder(run).read_state(META_STEPS)["sha256"]) == calm
    capsys.readouterr()
    assert main(["verify", str(run)]) == EXIT_FAILED
    assert f"{path}: its row of meta-step 0 is not that of " in capsys.readouterr().out


@pytest.mark.parametrize(
    "state",
    [
        {"rows": [1]},
        {"rows": [{"axis": "meta_step", "values": {"meta_step": "1"}}]},
        {"rows": [{"axis": [], "values": {}}]},
        {"slots": 3},
        {"slots": [{"attempt": "1"}]},
        {"agent_steps": "many"},
        {"agent_steps": 10**19},
        {"slots": [{"attempt": 1}]},
        {"slots": [{"game": "bowl_0", "attempt": 0}]},
        {"slots": [{"game": "bowl_0", "attempt": 1, "restarts": -1}]},
        {"slots": [{"game": "bowl_0", "attempt": 1, "dropped": 1}]},
        {"carried_over": [1]},
        {"carried_over": {"bowl_0": 9}},
        {"fingerprint": 1},
        {"sealed": ["curves/000001.parquet"]},
        {"sealed": {"curves/../../x": "0" * 64}},
        {"sealed": {"config.yaml": "0" * 64}},
        {"sealed": {"curves/000001.parquet": 1}},
        {"sha256": {"a\0b": "0" * 64}},
        {"sha256": {"..": "0" * 64}},
        {"sha256": {"initialization.safetensors": 1}},
        {"number": 10**400},
        {"validation": {"baseline": {"bowl_0": {"1": [1.0]}}, "best": 1, "best_gain": 0.5}},
        {"validation": {"baseline": 1, "best": 1, "best_gain": 0.5}},
        {"rows": [{"axis": "meta_step", "values": {"meta_step": 10**19}}]},
        {"deep": json.loads("[" * 40 + "]" * 40)},
    ],
    ids=lambda state: str(state)[:60],
)
def test_a_state_that_lies_consistently_is_one_line(
    state: dict[str, object], run: Path, refused: Refused
) -> None:
    rewrite_checkpoint(run, {})
    file = RunFolder(run).checkpoint(2) / "state.json"
    own = {key: value for key, value in json.loads(file.read_bytes()).items() if key != CHECKSUM}
    own |= state
    file.write_text(json.dumps({**own, CHECKSUM: checksum(own)}))
    for number in (0, 1):
        shutil.rmtree(RunFolder(run).checkpoint(number))
    line = refused("resume", run)
    assert "checkpoints/000002" in line
    assert len(line) < 500


def test_a_state_without_agent_steps_starts_nothing(run: Path, refused: Refused) -> None:
    files, state = RunFolder(run).read_checkpoint(2)
    kept = {key: state[key] for key in ("fingerprint", "rows", "slots")}
    RunFolder(run).write_checkpoint(2, files, kept)
    line = refused("export", run, "--out", run.with_name("shared"))
    assert "checkpoints/000002: is of no meta-training run" in line


FLOOD = b"[" * 100_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{"a": 1' + b"0" * 400 + b"}", "a number of 401 digits"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": Infinity}', "the number Infinity"),
        (b'{"a": NaN}', "the number NaN"),
        (FLOOD, "nested more than 32 deep"),
        (b'{"a":' * 33 + b"1" + b"}" * 33, "nested more than 32 deep"),
        (b"[" + b" " * 64, "more than 64 bytes"),
        (b"\xff\xfe\x00", "codec can't decode"),
        (b"", "Expecting value"),
    ],
)
def test_json_has_limits(text: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refusal:
        plain_json.load(text, 64 if says.endswith("64 bytes") else len(FLOOD))
    assert "\n" not in str(refusal.value)
    assert plain_json.load(b"[" * 32 + b"1" + b"]" * 32)
    assert plain_json.load(b"[-9223372036854775808, 1e300]") == [-(2**63), 1e300]


def test_a_flood_in_the_metrics_is_one_line(
    run: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    path = run / "metrics.jsonl"
    path.write_bytes(FLOOD + b"\n{}\n")
    assert main(["verify", str(run)]) == EXIT_FAILED
    assert f"{path}, line 1: not a JSON object of numbers" in capsys.readouterr().out


@pytest.mark.parametrize("header", ["text", ["content"], 7, None, json.loads("[" * 40 + "]" * 40)])
def test_a_sealed_header_that_is_no_object_is_damage(header: Any) -> None:
    with pytest.raises(ChecksumError, match=r"its header is no object|nested more than"):
        decode_arrays(encode_arrays({}, header))


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": 10**12},
        {"attempt": "1"},
        {"attempt": 1.0},
        {"restarts": -1},
        {"record": []},
        {"record": {"curve": 1}},
        {"dropped": {"reason": 1, "agent_steps": 1}},
    ],
    ids=str,
)
def test_a_sealed_result_that_lies_is_computed_again(
    change: dict[str, Any], run: Path, calm: dict[str, str]
) -> None:
    path = RunFolder(run).slot(2, 0)
    arrays, header = decode_arrays(path.read_bytes())
    path.write_bytes(encode_arrays(arrays, {**header, "content": {**header["content"], **change}}))
    assert main(["resume", str(run)]) == 0
    assert dict(RunFolder(run).read_state(META_STEPS)["sha256"]) == calm


@pytest.mark.parametrize("name", ["contribution", "returns"])
def test_arrays_of_another_size_or_kind_are_computed_again(
    name: str, run: Path, calm: dict[str, str]
) -> None:
    path = RunFolder(run).slot(2, 0)
    whole = path.read_bytes()
    arrays, header = decode_arrays(whole)
    longer = np.concatenate([arrays[name], np.ones(1, arrays[name].dtype)])
    for other in (longer, arrays[name][None], arrays[name].astype(np.float16)):
        path.write_bytes(encode_arrays({**arrays, name: other}, header))
        copy = run.with_name("copy")
        shutil.copytree(run, copy)
        assert main(["resume", str(copy)]) == 0
        assert dict(RunFolder(copy).read_state(META_STEPS)["sha256"]) == calm
        shutil.rmtree(copy)


def test_damaged_parquet_is_a_value_error() -> None:
    """As pyarrow raises errors of a dozen kinds, some of its own."""
    ended = Episodes(
        agent_steps=np.arange(40), returns=np.arange(40.0), lengths=np.ones(40, np.int64)
    )
    record = TaskRecord(trainer="a", processor="b", updates=1, agent_steps=1)
    spec, nothing = TaskSpec(game="pong", seed=1), np.zeros(1, np.float32)
    slot = FilledSlot(spec=spec, attempt=1, contribution=nothing, record=record, episodes=ended)
    whole = episodes_file(0, {0: slot})
    assert read_episodes(whole)["agent_steps"].tolist() == list(range(40))
    kinds = set()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        with suppress(ValueError):
            read_episodes(bytes(damaged))
        try:
            pq.read_table(pa.BufferReader(bytes(damaged)))
        except Exception as error:
            kinds.add(type(error).__name__)
    assert len(kinds) > 1, "which is why one reader has them all"


@pytest.mark.parametrize("description", [
    1,
    {"seeds": 10**18},
    {"seeds": 0},
    {"seeds": 1.5},
    {"games": "catch"},
    {"games": ["a", "a"]},
    {"runs": []},
    {"runs": {"mine": 1}},
    {"initializations": [[]]},
    {"own_starts": 1},
    {"mixes": {"mine": "1"}},
    {"training": {"mine": {"agent_steps": 1, "games": 1}}},
], ids=str)  # fmt: skip
def test_a_description_that_lies_is_refused_at_once(description: Any) -> None:
    own = {"initializations": ["random", "mine"], "runs": {"mine": ["a", "b"]}, "own_starts": {}}
    own |= {"games": ["catch"], "seeds": 2, "agent_steps": 10}
    assert len(agents_of(own)) == 6
    with pytest.raises(ValueError, match="describes"):
        agents_of({**own, **description} if isinstance(description, dict) else description)


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
