"""Somebody else's files run no code, write nowhere else, and get one clear line."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from leap_rl.cli import EXIT_USAGE, main
from leap_rl.run_folder import CHECKSUM, RunFolder, _checksum
from leap_rl.sealed import seal
from leap_rl.training.errors import RunFailedError
from leap_rl.training.interrupts import _descendants
from leap_rl.training.parameter_server import ParameterServer
from leap_rl.training.ray_security import is_loopback, refuse_open_cluster, refuse_without_token

ROOT = Path(__file__).parents[1]
QUIET = ["--runtime.kind", "local", "--tracking.tensorboard", "false"]
QUIET += ["--tracking.console", "quiet"]
BOWLS = ["--config", str(ROOT / "configs/debug.yaml"), "--task.agent_steps", "20", *QUIET]
META_STEPS = 3
FLOATS = np.zeros(32, dtype=np.float32).tobytes()


pytestmark = pytest.mark.timeout(180)


class Attack:
    """Creates a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.canary), "w")


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that must not come to be."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists(), "code was run"


def make(run: Path, *options: str) -> int:
    argv = ["train", *BOWLS, "--meta.meta_steps", str(META_STEPS), *options]
    return main([*argv, "--run_dir", str(run)])


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The sums of what an undisturbed run comes to."""
    run = tmp_path_factory.mktemp("calm") / "run"
    assert make(run) == 0
    return dict(RunFolder(run).read_state(META_STEPS)["sha256"])


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in its third meta-step: a slot is complete, the next one frozen."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    stream = ParameterServer.stream

    def stop(self: ParameterServer, message: Any) -> object:
        answer = stream(self, message)
        ticket, frozen = message.ticket, message.snapshot is not None and message.n > 0
        if ticket.round == 2 and ticket.slot == 1 and frozen:
            raise KeyboardInterrupt
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParameterServer, "stream", stop)
        assert make(run, "--meta.meta_steps", "2") == 0
        often = ["--runtime.stream_every_s", "1e-6", "--runtime.snapshot_every_s", "1e-6"]
        assert main(["resume", str(run), "--meta.meta_steps", str(META_STEPS), *often]) == 130
    names = {path.name for path in RunFolder(run).slots(2).iterdir()}
    assert names >= {"000.safetensors", "001.lease", "001.snapshot"}
    return run


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it that is somebody else's."""
    shutil.copytree(stopped, tmp_path / "run")
    return tmp_path / "run"


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("leap-rl: ") for line in lines), lines
    return lines


# -- files that are not what their names say --------------------------------------------------


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
@pytest.mark.parametrize("name", ["initialization.safetensors", "outer_optimizer.safetensors"])
def test_checkpoints_that_lie_consistently_are_one_line(
    name: str, lie: str, run: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(run)
    files, state = folder.read_checkpoint(2)
    state = {key: state[key] for key in state.keys() - {"schema", "number", "sha256"}}
    folder.write_checkpoint(2, {**files, name: LIES[lie](canary)}, state)  # its sums are right
    status = main(["resume", str(run)])
    (line,) = lines_of(capsys)
    assert status in (1, EXIT_USAGE)
    # What can be read is another start than the one that the frozen task grew from.
    assert "checkpoints/000002" in line or "the task's snapshot cannot be gone on from" in line
    assert folder.latest() == 2


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
    (line,) = lines_of(capsys)
    assert status == EXIT_USAGE
    assert f"meta.init = {init}: " in line
    assert not (tmp_path / "new").exists()


def test_a_pickle_in_a_sealed_snapshot_is_one_line(
    run: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from leap_rl.sealed import unseal

    path = RunFolder(run).slots(2) / "001.snapshot"
    arrays, header = unseal(path.read_bytes())
    attack = np.frombuffer(pickled(canary), dtype=np.uint8)
    path.write_bytes(seal({**arrays, "snapshot": attack}, header))
    assert main(["resume", str(run)]) == 1
    (line,) = lines_of(capsys)
    assert "the task's snapshot cannot be gone on from" in line


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
    state: dict[str, object], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(run)
    files, true = folder.read_checkpoint(2)
    true = {key: true[key] for key in true.keys() - {"schema", "number", "sha256"}}
    folder.write_checkpoint(2, files, {**true, **state})
    for number in (0, 1):
        shutil.rmtree(folder.checkpoint(number))
    assert main(["resume", str(run)]) == EXIT_USAGE
    (line,) = lines_of(capsys)
    assert "checkpoints/000002" in line


# -- configs ----------------------------------------------------------------------------------

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
    name: str, tmp_path: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, says = HOSTILE[name]
    config = tmp_path / "config.yaml"
    config.write_text(hostile(text, canary))
    started = time.monotonic()
    words = ["train", *QUIET, "--config", str(config), "--run_dir", str(tmp_path / "new")]
    assert main(words) == EXIT_USAGE
    assert time.monotonic() - started < 10
    (line,) = lines_of(capsys)
    assert says in line
    assert len(line) < 2000
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_run_of_a_hostile_config_is_one_line(
    name: str, run: Path, canary: Path, capsys: pytest.CaptureFixture[str]
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
    assert main(["resume", str(run)]) == EXIT_USAGE
    assert time.monotonic() - started < 10
    (line,) = lines_of(capsys)
    assert "config.yaml: " in line
    assert len(line) < 2000
    assert sorted(path for path in run.rglob("*")) == before


# -- ways out of the run's folder -------------------------------------------------------------

WAYS_OUT = [
    *("config.yaml", "metrics.jsonl", "live.json", ".lock", ".server"),
    *("wandb/run_id.txt", "wandb/sources.json"),
    *("checkpoints", "slots", "curves", "agents", "tensorboard", "wandb"),
    *("checkpoints/latest", "checkpoints/000001", "checkpoints/000002", "checkpoints/000003"),
    *("checkpoints/000002/state.json", "slots/000002", "slots/000001", "slots/000002/001.lease"),
]


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("name", WAYS_OUT)
@pytest.mark.parametrize("relative", [False, True])
def test_a_link_out_of_the_folder_is_refused(
    name: str, relative: bool, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target, link = outside / "victim", run / name
    if link.exists():
        link.rename(target)  # so that all is well but for where it lies
    elif link.suffix or name.startswith("."):
        target.write_text("precious\n")
    else:
        target.mkdir()
        (target / "000001").mkdir()
        (target / "000001" / "precious").write_text("precious\n")
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent) if relative else target)
    before = contents(outside)
    options = ["--tracking.tensorboard", "true", "--tracking.wandb", "offline"]
    assert main(["resume", str(run), *options]) == EXIT_USAGE
    (line,) = lines_of(capsys)
    assert line.startswith(f"leap-rl: {link}: is a symbolic link")
    assert contents(outside) == before


def test_a_new_run_is_not_made_over_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").symlink_to(victim)
    assert make(run) == EXIT_USAGE
    (line,) = lines_of(capsys)
    assert ".lock: is a symbolic link" in line
    assert victim.read_text() == "precious\n"


def test_a_folder_that_is_reached_by_a_link_is_all_right(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    assert main(["resume", str(tmp_path / "link")]) == 0


def test_wandbs_own_links_are_all_right(run: Path) -> None:
    (run / "wandb").mkdir(exist_ok=True)
    (run / "wandb" / "latest-run").symlink_to("offline-run-1")
    assert main(["resume", str(run)]) == 0


@pytest.mark.parametrize("name", ["../../outside", "..", "/etc/hostname", "a/b", ""])
def test_a_state_that_names_files_elsewhere_is_one_line(
    name: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(run)
    for number in (0, 1):
        shutil.rmtree(folder.checkpoint(number))
    path = folder.checkpoint(2) / "state.json"
    state = json.loads(path.read_text())
    del state[CHECKSUM]
    state["sha256"][name] = "0" * 64
    path.write_text(json.dumps({**state, CHECKSUM: _checksum(state)}))
    assert main(["resume", str(run)]) == EXIT_USAGE
    (line,) = lines_of(capsys)
    assert "which is no file of a checkpoint" in line


@pytest.mark.parametrize("text", ["../../outside\n", "2 /../..\n", "²\n", "-1\n"])
def test_a_pointer_elsewhere_is_passed_over(
    text: str, run: Path, calm: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "checkpoints" / "latest").write_text(text)
    assert main(["resume", str(run)]) == 0
    (line,) = lines_of(capsys)
    assert "which is no checkpoint's number; going on from checkpoint 2" in line
    assert dict(RunFolder(run).read_state(META_STEPS)["sha256"]) == calm


# -- clusters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        *(("127.0.0.1:6379", True), ("127.8.8.8:1", True), ("[::1]:6379", True)),
        *(("localhost:6379", True), ("10.77.0.1:6379", False), ("0.0.0.0:6379", False)),
        *(("[fe80::1]:6379", False), ("no-such-host.invalid:6379", False)),
    ],
)
def test_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) == expected


@pytest.mark.parametrize("mode", ["disabled", "", "Tokens"])
def test_a_cluster_elsewhere_is_not_joined_without_a_token(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    refuse_without_token("127.0.0.1:6379")
    ray = ["--runtime.kind", "ray", "--runtime.address", "10.77.0.1:6379"]
    assert make(tmp_path / "run", *ray) == 1
    (line,) = lines_of(capsys)
    assert line.startswith("leap-rl: runtime.address = 10.77.0.1:6379: RAY_AUTH_MODE is ")
    assert "RAY_AUTH_MODE=token" in line


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[grpc.StatusCode | None]]]:
    """The address of a pretended head, and what it answers to whoever has no token."""
    answers: list[grpc.StatusCode | None] = [None]

    def check_alive(request: bytes, context: grpc.ServicerContext) -> bytes:
        if answers[0] is not None:
            context.abort(answers[0], "no token")
        return b""  # a reply without fields

    method = grpc.unary_unary_rpc_method_handler(check_alive)
    service = "ray.rpc.NodeInfoGcsService"
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {"CheckAlive": method})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr("leap_rl.training.ray_security.is_loopback", lambda address: False)
    yield f"127.0.0.1:{port}", answers
    server.stop(None)


def test_a_cluster_elsewhere_that_asks_for_no_token_is_not_joined(
    head: tuple[str, list[grpc.StatusCode | None]],
) -> None:
    address, answers = head
    with pytest.raises(RunFailedError, match="the cluster asks for no token"):
        refuse_open_cluster(address)
    answers[0] = grpc.StatusCode.INTERNAL  # whatever that is, it is no question for a token
    with pytest.raises(RunFailedError, match="the cluster asks for no token"):
        refuse_open_cluster(address)
    answers[0] = grpc.StatusCode.UNAUTHENTICATED
    refuse_open_cluster(address)


# -- secrets ----------------------------------------------------------------------------------

SECRETS = {
    "WANDB_API_KEY": "c0ffee" * 6 + "c0de",
    "RAY_AUTH_TOKEN": "5ec2e7" * 10 + "beef",
    "AWS_SECRET_ACCESS_KEY": "5ec2e7AWS/canary+0123456789abcdefghijklm",
}


def leaks(where: str, content: bytes, secrets: dict[str, str]) -> set[str]:
    return {f"{name} in {where}" for name, value in secrets.items() if value.encode() in content}


def files_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        try:
            if path.is_file() and not path.is_symlink():
                yield path, path.read_bytes()
        except OSError:
            continue


@pytest.mark.parametrize("runtime", ["local", "ray"])
def test_secrets_of_the_environment_go_nowhere(runtime: str, tmp_path: Path) -> None:
    steps = {"local": "40", "ray": "40000"}[runtime]  # the time to look around
    words = ["train", *BOWLS, "--runtime.kind", runtime, "--task.agent_steps", steps]
    words += ["--tracking.wandb", "offline", "--tracking.tensorboard", "true"]
    words += ["--tracking.console", "plain", "--run_dir", str(tmp_path / "run")]
    output = tmp_path / "output"
    with open(output, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "leap_rl", *words],
            cwd=tmp_path,
            env={**os.environ, **SECRETS},
            stdout=log,
            stderr=log,
        )
    secrets, found, seen = dict(SECRETS), set(), set()
    while process.poll() is None:
        for folder in Path("/tmp").glob(f"leap_rl-{process.pid}-*"):
            for path, content in files_below(folder):
                if path == folder / "token":
                    secrets["own token"] = content.decode() or "not written yet"
                    continue
                seen.add(path.name)
                found |= leaks(str(path), content, secrets)
        for pid in (process.pid, *_descendants(process.pid)):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            seen.add(line.split(b"\0")[0].decode())
            found |= leaks(f"command line {line!r}", line, secrets)
        time.sleep(0.2)
    assert process.returncode == 0, output.read_text()
    for path, content in files_below(tmp_path):
        seen.add(path.suffix)
        found |= leaks(str(path), content, secrets)
    assert not found
    assert {".wandb", ".jsonl", ".yaml", ".safetensors"} <= seen
    if runtime == "ray":
        assert "own token" in secrets
        assert {"raylet.out", "gcs_server.out", "ray::ServerActor"} <= {
            name.partition(".run")[0] if name.startswith("ray::") else name for name in seen
        }, seen
