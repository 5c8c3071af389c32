"""Files of every kind, changed at random: each command says one line, or nothing; none hangs."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leap_rl.cli import EXIT_FAILED, EXIT_USAGE, main
from leap_rl.core import plain_yaml
from leap_rl.storage.checksummed_file import (
    CHECKSUM,
    ChecksumError,
    checksum,
    decode_arrays,
    encode_arrays,
)
from leap_rl.storage.run_folder import SEALED
from tests.commands import CATCH, LOCALLY, META

pytestmark = pytest.mark.usefixtures("without_plots")

SMALL = 5
MANY = 400

TEXTS = ["", "..", "/etc/passwd", "a\0b", "\x1b[2J", "x" * 5000, "nan", "reference://a", "pong"]
NESTED = [[], {}, [1], {"a": 1}, [[]], [None], {"": None}, {"attempt": 1}, [[[[[[1]]]]]]]
NUMBERS = [0, 1, -1, 0.5, -1e300, 1e-3, 2**31, 2**63, 10**18, 10**19, 10**21]
WEIRD = st.sampled_from([None, True, False, *TEXTS, *NESTED, *NUMBERS])


@pytest.fixture(scope="module")
def made(without_plots: None, stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, one that was stopped within a round, and an evaluation."""
    out = tmp_path_factory.mktemp("made")
    shutil.copytree(stopped, out / "stopped")
    assert main(["train", *CATCH, *META, *LOCALLY, "--run_dir", str(out / "run")]) == 0
    shutil.rmtree(out / "run" / "report", ignore_errors=True)
    argv = ["--init", str(out / "run"), "--games", "catch", "--seeds", "1", "--out"]
    assert main(["evaluate", *argv, str(out / "eval"), *LOCALLY]) == 0
    return out


def commands(path: Path, out: Path) -> list[list[str]]:
    run = str(path)
    page = ["--out", str(out / "page.html")]
    if path.name == "eval":
        return [["verify", run], ["report", run, *page], ["resume", run]]
    return [
        ["verify", run],
        ["report", run, *page],
        ["export", run, "--out", str(out / "shared")],
        ["fork", run, "--at", "1", "--meta.meta_lr", "0.25", "--run_dir", str(out / "fork")],
        ["resume", run],
    ]


def changed(draw: st.DataObject, value: Any) -> Any:
    """The same value, but for one within it."""
    if isinstance(value, dict) and value and draw.draw(st.integers(0, 5)):
        name = draw.draw(st.sampled_from(sorted(value)))
        if not draw.draw(st.integers(0, 7)):
            return {key: one for key, one in value.items() if key != name}
        return {**value, name: changed(draw, value[name])}
    if isinstance(value, list) and value and draw.draw(st.integers(0, 3)):
        at = draw.draw(st.integers(0, len(value) - 1))
        return [*value[:at], changed(draw, value[at]), *value[at + 1 :]]
    return draw.draw(WEIRD)


def of_bytes(draw: st.DataObject, content: bytes) -> bytes:
    """Bits flipped, a part cut off, doubled or made something else."""
    what = draw.draw(st.sampled_from(["flip", "cut", "insert", "deep", "number", "nothing"]))
    at = draw.draw(st.integers(0, max(len(content) - 1, 0)))
    if what == "flip":
        flipped = bytearray(content)
        if flipped:
            flipped[at] ^= 1 << draw.draw(st.integers(0, 7))
        return bytes(flipped)
    inserted = {"cut": b"", "insert": b"\xff\0{", "nothing": b""}.get(what)
    if what == "deep":
        return b"[" * 100_000
    if what == "number":
        return b'{"schema": 2, "number": 1' + b"0" * 400 + b"}"
    return content[:at] + (inserted or b"") + (b"" if what == "cut" else content[at:])


def resealed(draw: st.DataObject, path: Path) -> bytes:
    """Values changed, and every sum right: what somebody may send, and no disk may do."""
    content = path.read_bytes()
    if path.name == "state.json":
        state = json.loads(content)
        del state[CHECKSUM]
        state = changed(draw, state)
        if not isinstance(state, dict):
            return json.dumps(state).encode()
        return json.dumps({**state, CHECKSUM: checksum(state)}).encode()
    if path.name == "config.yaml":
        config = plain_yaml.load(content.decode())
        del config[CHECKSUM]
        config = changed(draw, config)
        sealed = {CHECKSUM: checksum(config), **config} if isinstance(config, dict) else config
        return plain_yaml.dump(sealed).encode()
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in content.splitlines()]
        return b"".join(json.dumps(row).encode() + b"\n" for row in _list(changed(draw, rows)))
    try:
        arrays, header = decode_arrays(content)
    except ChecksumError:
        return of_bytes(draw, content)
    if draw.draw(st.booleans()) and arrays:
        name = draw.draw(st.sampled_from(sorted(arrays)))
        shapes = [arrays[name][:-1], arrays[name][None], arrays[name].astype(np.int8)]
        return encode_arrays({**arrays, name: draw.draw(st.sampled_from(shapes))}, header)
    return encode_arrays(arrays, changed(draw, header))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def seal(run: Path, path: Path, content: bytes) -> None:
    """Write a file, and its sum where a state has one."""
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    for state_file in run.glob("checkpoints/*/state.json"):
        try:
            state = json.loads(state_file.read_bytes())
            inside = {state_file.parent / name: name for name in state["sha256"]}
            if path in inside:
                state["sha256"][inside[path]] = digest
            elif path.relative_to(run).as_posix() in state[SEALED]:
                state[SEALED][path.relative_to(run).as_posix()] = digest
            else:
                continue
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        del state[CHECKSUM]
        state_file.write_text(json.dumps({**state, CHECKSUM: checksum(state)}))


Mutate = Callable[[st.DataObject, Path], bytes]


def check(
    data: st.DataObject, made: Path, copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = data.draw(st.sampled_from(["run", "stopped", "eval"]))
    shutil.rmtree(copies, ignore_errors=True)
    run = Path(shutil.copytree(made / kind, copies / kind))
    files = sorted(
        path
        for path in run.rglob("*")
        if path.is_file() and not {"report", "tensorboard"} & set(path.relative_to(run).parts)
    )
    path = data.draw(st.sampled_from(files))
    if data.draw(st.booleans()):
        seal(run, path, resealed(data, path))
    else:
        content = of_bytes(data, path.read_bytes())
        (seal if data.draw(st.booleans()) else lambda _, p, c: p.write_bytes(c))(run, path, content)
    for command in commands(run, copies / "out"):
        capsys.readouterr()
        status = main(command)
        said = capsys.readouterr()
        what = (command[0], path.relative_to(run).as_posix(), said.err[-500:])
        assert status in (0, EXIT_USAGE, EXIT_FAILED), what
        assert "Traceback" not in said.err, what
        lines = said.err.splitlines()
        if status == EXIT_USAGE:
            assert [line[:9] for line in lines if line.startswith("leap-rl: ")], what
        elif status == EXIT_FAILED and command[0] == "resume":
            assert "the task's snapshot cannot be resumed from" in lines[-1], what
        elif command[0] != "verify":
            assert status == 0, what


@pytest.mark.timeout(280)
@settings(max_examples=SMALL, deadline=None, derandomize=True, database=None,
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(data=st.data())
def test_a_changed_file_is_one_line(
    data: st.DataObject, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(data, made, tmp_path / "copies", capsys)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(max_examples=MANY, deadline=None, database=None,
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(data=st.data())
def test_many_changed_files_are_one_line_each(
    data: st.DataObject, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(data, made, tmp_path / "copies", capsys)
