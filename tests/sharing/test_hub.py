"""Initializations travel by Hugging Face's hub, of which a stand-in listens on loopback."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

import leap_rl
from leap_rl import pretrained
from leap_rl.cli import main
from leap_rl.core.parsing import options_given
from leap_rl.runs.config import EvaluateConfig, LearnConfig, TrainConfig
from leap_rl.runs.creation import create_run, resolve
from leap_rl.runs.evaluation import configure, create_evaluation
from leap_rl.runs.initializations import find_initialization
from leap_rl.sharing import hub as sharing_hub
from leap_rl.sharing.card import CARD, FILES, ONNX, OPTIONS
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from tests.commands import LOCALLY, Refused, parsed
from tests.sharing.hub_server import TOKEN, HubServer, serve

MINE = pretrained.locate("minatar-leap")
CATCH = ["--task.kind", "catch", "--task.games", "catch", "--task.num_envs", "4"]
CATCH += ["--task.agent_steps", "80"]


def forget_the_library() -> None:
    """Let huggingface_hub read its environment again, when it is imported next."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with serve() as server, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
            patch.delenv(name)
        patch.setenv("HF_ENDPOINT", server.url)
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_HUB_DISABLE_XET", "1")  # its server is another one
        forget_the_library()
        yield server
        forget_the_library()


@pytest.fixture(autouse=True)
def _logged_in(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.requests.clear()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs that have not begun: each has its random start, version 0."""
    at = tmp_path_factory.mktemp("runs")
    for seed in ("0", "1"):
        words = [*CATCH, "--seed", seed, "--run_dir", at / seed]
        create_run(resolve(parsed(TrainConfig, *words)))
    return [at / "0", at / "1"]


def file_of(run: Path) -> Path:
    return run / "checkpoints/000000" / INITIALIZATION


def test_a_run_is_pushed_and_loads_to_the_same_bits(
    hub: HubServer, runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", f"{runs[0]}@0", "me/catch"]) == 0
    pushed = hub.repositories["me/catch"]
    assert not pushed.private
    commit = pushed.refs["main"]
    captured = capsys.readouterr()
    assert captured.out == f"pushed {runs[0]}@0 to hf://me/catch@{commit}\n"
    assert captured.err == ""  # progress bars neither
    files = hub.files("me/catch")
    assert files.keys() == {*FILES, ".gitattributes"}
    assert files[INITIALIZATION] == file_of(runs[0]).read_bytes()
    front = yaml.safe_load(files[CARD].decode().split("---\n")[1])
    assert front["leap_rl"]["name"] == "catch"
    saved = load_file(file_of(runs[0]))
    for name in ("hf://me/catch", f"hf://me/catch@{commit}", "hf://me/catch@main"):
        for load in (leap_rl.load_encoder, pretrained.load):
            state = load(name).state_dict()
            assert state.keys() == saved.keys()
            assert all(torch.equal(state[part], saved[part]) for part in saved)
    assert capsys.readouterr().err == ""


def test_no_other_file_is_downloaded_and_none_twice(hub: HubServer) -> None:
    assert main(["push", str(MINE), "me/more", "--private"]) == 0
    repository = hub.repositories["me/more"]
    assert repository.private
    commit = repository.commit({**hub.files("me/more"), "code.py": b"1/0", "model.pkl": b"cos"})
    found = pretrained.named("hf://me/more")
    assert (found.name, found.place) == ("more", f"hf://me/more@{commit}")
    assert {path.name for path in found.folder.iterdir()} == {*FILES}
    assert not any("code.py" in path or "model.pkl" in path for _, path in hub.requests)
    hub.requests.clear()
    assert pretrained.named(found.place).folder == found.folder
    assert not any("/resolve/" in path for _, path in hub.requests)
    forget_the_library()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        assert pretrained.named("hf://me/more").folder == found.folder
        with pytest.raises(ValueError, match="offline mode is enabled"):
            pretrained.named("hf://me/never")
    forget_the_library()


def test_what_is_too_large_is_not_downloaded(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    assert main(["push", str(MINE), "me/large"]) == 0
    for limit, name in (("LARGEST", INITIALIZATION), ("LARGEST_TEXT", OPTIONS)):
        with monkeypatch.context() as patch:
            patch.setattr(sharing_hub, limit, 100)
            line = refused("evaluate", "--init", "hf://me/large")
        assert re.search(rf"{name} of the repository me/large has [\d,]+ bytes, and may have", line)
    assert not any("/resolve/" in path for _, path in hub.requests)


def test_a_revision_is_what_it_was(hub: HubServer, runs: list[Path]) -> None:
    assert main(["push", f"{runs[0]}@0", "me/versions"]) == 0
    repository = hub.repositories["me/versions"]
    repository.refs["v/1"] = first = repository.refs["main"]
    assert main(["push", f"{runs[1]}@0", "me/versions"]) == 0
    second = repository.refs["main"]
    assert first != second
    for name, run in [("@v/1", 0), (f"@{first}", 0), (f"@{second}", 1), ("", 1)]:
        state = pretrained.load(f"hf://me/versions{name}").state_dict()
        saved = load_file(file_of(runs[run]))
        assert all(torch.equal(state[part], saved[part]) for part in saved)
    found = find_initialization("hf://me/versions@v/1")
    assert (found.name, found.path) == ("versions@v/1", f"hf://me/versions@{first}")
    assert find_initialization(f"hf://me/versions@{first}").name == f"versions@{first[:7]}"


def test_a_run_names_the_commit_that_it_started_from(
    hub: HubServer, runs: list[Path], tmp_path: Path
) -> None:
    assert main(["push", f"{runs[0]}@0", "me/start"]) == 0
    place = f"hf://me/start@{hub.repositories['me/start'].refs['main']}"

    def words(name: str, init: str) -> list[str]:
        return [*CATCH, *LOCALLY, "--init", init, "--run_dir", str(tmp_path / name)]

    def create(name: str, init: str) -> None:
        create_run(resolve(parsed(LearnConfig, *words(name, init))))

    create("learn", "hf://me/start")
    create("again", str(file_of(runs[0])))
    folder = tmp_path / "folder"
    assert main(["export", f"{runs[0]}@0", "--out", str(folder)]) == 0
    create("exported", str(folder))
    train = ["train", *words("train", "hf://me/start"), "--meta.batch_size", "1"]
    train[train.index("--init")] = "--meta.init"
    assert main([*train, "--meta.meta_steps", "1"]) == 0
    options = ["--task.games=catch", *LOCALLY, "--run_dir", str(tmp_path / "evaluate")]
    create_evaluation(*configure(["leap=hf://me/start"], options_given(EvaluateConfig, options)))
    names = ("learn", "again", "exported", "train", "evaluate")
    made = {name: RunFolder(tmp_path / name) for name in names}
    config = {name: folder.read_config() for name, folder in made.items()}
    assert config["learn"]["init"] == place
    assert config["train"]["meta"]["init"] == place
    assert config["evaluate"]["init"] == [f"leap={place}"]
    assert config["exported"]["init"] == str(folder / INITIALIZATION)
    prints = {config[name]["fingerprint"] for name in ("learn", "again", "exported")}
    assert len(prints) == 1
    for name in ("learn", "train"):
        files, _ = made[name].read_checkpoint(0)
        assert files[INITIALIZATION] == file_of(runs[0]).read_bytes()
    # The repository is gone; the run has what it started from.
    del hub.repositories["me/start"]
    hub.requests.clear()
    assert main(["resume", str(tmp_path / "train"), "--meta.meta_steps", "2"]) == 0
    assert hub.requests == []


def test_an_exported_folder_goes_as_it_is(hub: HubServer, tmp_path: Path, refused: Refused) -> None:
    for name in FILES:
        (tmp_path / name).write_bytes((MINE / name).read_bytes())
    (tmp_path / ONNX).write_bytes(b"network")
    (tmp_path / "notes.txt").write_text("mine alone")
    assert main(["push", str(tmp_path), "me/folder"]) == 0
    assert hub.files("me/folder").keys() == {*FILES, ONNX, ".gitattributes"}
    assert all(hub.files("me/folder")[name] == (MINE / name).read_bytes() for name in FILES)
    line = refused("push", tmp_path, "me/folder", "--evaluation", tmp_path)
    assert "has its card already" in line
    (tmp_path / INITIALIZATION).write_bytes(b"other")
    line = refused("push", tmp_path, "me/damaged")
    assert "is not the file that its card was written for" in line
    assert "me/damaged" not in hub.repositories


def test_a_folder_without_onnx_leaves_none_of_the_weights_before(
    hub: HubServer, tmp_path: Path
) -> None:
    for name in FILES:
        (tmp_path / name).write_bytes((MINE / name).read_bytes())
    (tmp_path / ONNX).write_bytes(b"network")
    for number in range(3):
        assert main(["push", str(tmp_path), "me/again"]) == 0
        there = {ONNX} if number == 0 else set()
        assert hub.files("me/again").keys() == {*FILES, ".gitattributes"} | there
        (tmp_path / ONNX).unlink(missing_ok=True)


def test_damage_is_noticed(hub: HubServer, tmp_path: Path, refused: Refused) -> None:
    assert main(["push", str(MINE), "me/changed"]) == 0
    good = hub.files("me/changed")
    other = (pretrained.locate("breakout-leap") / INITIALIZATION).read_bytes()
    hub.repositories["me/changed"].commit({**good, INITIALIZATION: other})
    for load in (pretrained.load, leap_rl.load_encoder, find_initialization):
        with pytest.raises(ValueError, match="is not the file that its card was written for"):
            load("hf://me/changed")
    learn = ["learn", *CATCH, *LOCALLY, "--init", "hf://me/changed"]
    refused(*learn, "--run_dir", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    hub.repositories["me/changed"].commit({CARD: good[CARD], INITIALIZATION: good[INITIALIZATION]})
    with pytest.raises(ValueError, match=f"me/changed lacks {OPTIONS}, so it is none"):
        pretrained.load("hf://me/changed")
    card = good[CARD].replace(b"encoder: minatar", b"encoder: nature")
    hub.repositories["me/changed"].commit({**good, CARD: card})
    with pytest.raises(ValueError, match="nature"):
        pretrained.load("hf://me/changed")


@pytest.mark.parametrize(
    ("name", "token", "said"),
    [
        ("hf://me", TOKEN, "hf://me: must be hf://USER/REPO or hf://USER/REPO@REVISION"),
        ("hf://me/a/b.safetensors", TOKEN, "must be hf://USER/REPO"),
        ("hf://me/a@../../b", TOKEN, "must be hf://USER/REPO"),
        ("hf://me/nothing", TOKEN, "has no repository me/nothing, or a private one"),
        ("hf://me/hidden", None, "has no repository me/hidden, or a private one"),
        ("hf://me/hidden@v9", TOKEN, "the repository me/hidden has no revision v9"),
        ("hf://me/hidden@/etc/hostname", TOKEN, "must be hf://USER/REPO"),
        ("hf://me/hidden", "hf_wrong", "answers 401: Invalid credentials"),
    ],
)
def test_what_cannot_be_downloaded_is_said(
    hub: HubServer,
    name: str,
    token: str | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    refused: Refused,
) -> None:
    if "me/hidden" not in hub.repositories:
        assert main(["push", str(MINE), "me/hidden", "--private"]) == 0
    monkeypatch.delenv("HF_TOKEN") if token is None else monkeypatch.setenv("HF_TOKEN", token)
    for words, option in [
        (["evaluate", "--init", name], "init"),
        (["learn", *CATCH, *LOCALLY, "--init", name], "init"),
        (["train", *CATCH, *LOCALLY, "--meta.init", name], "meta.init"),
    ]:
        line = refused(*words)
        assert line.startswith(f"leap-rl: {option} = {name}: ")
        assert said in line
    for load in (pretrained.load, leap_rl.load_encoder):
        with pytest.raises(ValueError, match=re.escape(said)):
            load(name)


@pytest.mark.parametrize(
    ("words", "token", "said"),
    [
        (["nobody/mine"], TOKEN, "answers 403: You don't have the rights"),
        (["me/public", "--private"], TOKEN, "me/public is there already and public"),
        (["mine"], TOKEN, "mine: must be USER/REPO"),
        (["me/mine"], None, "no token for the hub was found; log in by `hf auth login`"),
        (["me/mine"], "hf_wrong", "answers 401: Invalid credentials"),
        (["me/mine"], "hf_\vsecret", "Illegal header value b'Bearer ..."),
    ],
)
def test_what_cannot_be_pushed_is_said(
    hub: HubServer,
    words: list[str],
    token: str | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    refused: Refused,
) -> None:
    if "me/public" not in hub.repositories:
        assert main(["push", str(MINE), "me/public"]) == 0
    before = {name: dict(one.refs) for name, one in hub.repositories.items()}
    monkeypatch.delenv("HF_TOKEN") if token is None else monkeypatch.setenv("HF_TOKEN", token)
    line = refused("push", MINE, *words)
    assert said in line
    assert "secret" not in line
    assert "wrong" not in line
    assert {name: dict(one.refs) for name, one in hub.repositories.items()} == before


def test_who_is_not_reached_or_not_installed_is_said(
    monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    commands = (["push", MINE, "me/mine"], ["evaluate", "--init", "hf://me/unseen"])
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    forget_the_library()
    try:
        for words in commands:
            assert "http://127.0.0.1:9 cannot be reached: " in refused(*words)
        forget_the_library()
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        for words in commands:
            assert "huggingface_hub is not installed" in (line := refused(*words))
            assert "pip install 'leap-rl[hub]'" in line
    finally:
        monkeypatch.undo()
        forget_the_library()
