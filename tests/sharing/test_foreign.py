"""Agents that exist: their tensors alone go into a new start, and what each became is said."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from leap_rl.cli import main
from leap_rl.sharing import foreign
from tests.commands import LOCALLY, Refused

TASK = ["--task.kind", "gymnasium", "--task.num_envs", "4", "--task.agent_steps", "80", *LOCALLY]
SB3 = ["--agent.algorithm", "sb3:PPO", "--agent.sb3", json.dumps({"n_steps": 10, "n_epochs": 1})]
BODY = {
    f"mlp_extractor.{net}_net.{n}.{p}"
    for net in ("policy", "value")
    for n in (0, 2)
    for p in ("weight", "bias")
}


def learn(init: str, *words: str, run: Path, game: str = "CartPole-v1") -> int:
    games = ["--task.games", json.dumps([game])]
    return main(["learn", *TASK, *games, *words, "--init", init, "--run_dir", str(run)])


def saved_model(path: Path, game: str = "Acrobot-v1", **kwargs: Any) -> dict[str, torch.Tensor]:
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", game, seed=3, device="cpu", policy_kwargs=kwargs or None)
    model.save(path)
    return dict(model.policy.state_dict())


def start_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / "000000" / "initialization.safetensors")


def test_a_body_goes_into_an_environment_of_other_observations_and_actions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = saved_model(tmp_path / "model.zip")  # six numbers and three actions
    assert learn(f"sb3:{tmp_path}/model.zip", *SB3, run=tmp_path / "run") == 0
    said = capsys.readouterr().err
    ours = start_of(tmp_path / "run")
    assert ours.keys() == BODY
    firsts = {name for name in BODY if ".0.weight" in name}
    for name in BODY - firsts:
        assert torch.equal(ours[name], theirs[name])
    assert {tuple(ours[name].shape) for name in firsts} == {(64, 4)}
    for what, names in (
        ("taken", BODY - firsts),
        ("drawn", firsts),
        ("dropped", theirs.keys() - (BODY - firsts)),
    ):
        (listed,) = [part for part in said.split("; ") if f"{what}: " in part]
        assert set(listed.split(f"{what}: ")[1].strip().split(", ")) == names


def test_of_a_whole_agent_heads_of_other_actions_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = saved_model(tmp_path / "model.zip")
    init = f"sb3:{tmp_path}/model.zip"
    assert learn(init, *SB3, "--agent.share", "agent", run=tmp_path / "run") == 0
    said = capsys.readouterr().err
    ours = start_of(tmp_path / "run")
    assert torch.equal(ours["value_net.weight"], theirs["value_net.weight"])
    assert ours["action_net.weight"].shape == (2, 64)
    assert "action_net.weight" in said.split("drawn: ")[1].split("; dropped")[0]


def test_a_state_dict_goes_into_our_encoder_by_a_map_of_names(
    tmp_path: Path, refused: Refused
) -> None:
    body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64))
    torch.save(body.state_dict(), tmp_path / "body.pt")
    parts = ("weight", "bias")
    names = {f"{n}.{p}": f"linear{1 + n // 2}.{p}" for n in (0, 2) for p in parts}
    file = tmp_path / "names.yaml"
    file.write_text("".join(f"{theirs}: {one}\n" for theirs, one in names.items()))
    init = f"torch:{tmp_path}/body.pt"
    assert learn(f"{init}@names={file}", run=tmp_path / "run") == 0
    start = start_of(tmp_path / "run")
    for theirs, one in names.items():
        assert torch.equal(start[one], body.state_dict()[theirs])
    words = ["learn", *TASK, "--task.games", '["CartPole-v1"]', "--init"]
    assert "has none of the tensors that are shared here" in refused(*words, init)
    file.write_text("layer.weight: x\n")
    assert "there is no tensor layer.weight" in refused(*words, f"{init}@names={file}")
    file.write_text("- a\n")
    assert "must say names as YAML" in refused(*words, f"{init}@names={file}")
    file.write_text("0.weight: a\n0.bias: a\n")
    assert "0.weight and 0.bias are both to be a" in refused(*words, f"{init}@names={file}")
    file.write_text("0.weight: linear1.weight\n")
    asked = refused("evaluate", *words[1:], f"{init}@names={file}")
    assert "lacks" in asked
    assert "leap-rl learn draws them at random" in asked


class Pickled:
    """Runs code where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_what_would_be_unpickled_is_refused_and_runs_nothing(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "ran"
    torch.save({"a": Pickled(mark)}, tmp_path / "code.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps({"a": Pickled(mark)}))
    torch.save([torch.ones(2)], tmp_path / "list.pt")
    torch.save({"a": torch.tensor([float("nan")])}, tmp_path / "nan.pt")
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.write(tmp_path / "code.pt", "policy.pth")
        archive.writestr("data", pickle.dumps(Pickled(mark)))
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("data", "{}")
    (tmp_path / "link.pt").symlink_to(tmp_path / "list.pt")
    os.mkfifo(tmp_path / "pipe.pt")
    words = ["learn", *TASK, "--task.games", '["CartPole-v1"]', "--init"]
    for name, complaint in (
        ("torch:code.pt", "holds other things than tensors, which would have to be unpickled"),
        ("sb3:model.zip", "holds other things than tensors, which would have to be unpickled"),
        ("torch:plain.pt", "is no file of torch.save"),
        ("torch:list.pt", "must hold tensors by name"),
        ("sb3:empty.zip", "has no policy.pth"),
        ("sb3:list.pt", "has no policy.pth"),
        ("sb3:plain.pt", "is no archive of stable-baselines3"),
        ("torch:pipe.pt", "is no regular file"),
        ("torch:missing.pt", "cannot be read: No such file"),
    ):
        kind, _, file = name.partition(":")
        said = refused(*words, f"{kind}:{tmp_path / file}")
        assert said.startswith(f"leap-rl: init = {kind}:"), said
        assert complaint in said, said
    monkeypatch.setattr(foreign, "LARGEST", 100)
    assert "is larger than 100 bytes" in refused(*words, f"torch:{tmp_path}/list.pt")
    assert not mark.exists()


@pytest.mark.parametrize("damage", ["in its stream", "of a newer kind"])
def test_an_archive_that_cannot_be_unpacked_is_refused(
    damage: str, tmp_path: Path, refused: Refused
) -> None:
    file = tmp_path / "some.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("policy.pth", bytes(range(256)) * 40)
    content = bytearray(file.read_bytes())
    if damage == "in its stream":
        content[30 + len("policy.pth")] ^= 0xFF  # behind the header
    else:
        content[content.index(b"PK\x01\x02") + 6] = 99  # the version that it takes
    file.write_bytes(content)
    words = ["learn", *TASK, "--task.games", '["CartPole-v1"]', "--init"]
    assert "is no archive of stable-baselines3" in refused(*words, f"sb3:{file}")


def test_an_archive_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("policy.pth", bytes(10**6))
    monkeypatch.setattr(foreign, "LARGEST", 10**5)
    words = ["learn", *TASK, "--task.games", '["CartPole-v1"]', "--init"]
    said = refused(*words, f"sb3:{tmp_path}/bomb.zip")
    assert "policy.pth in it is larger than 100,000 bytes" in said
    assert "unpacks to more than" in refused(*words, f"torch:{tmp_path}/bomb.zip")


def damaged(path: Path, method: int) -> None:
    """An archive whose packed bytes are changed."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("policy.pth", bytes(range(256)) * 40)
    data = bytearray(path.read_bytes())
    data[50:90] = b"\xff" * 40
    path.write_bytes(data)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_is_one_line(method: int, tmp_path: Path, refused: Refused) -> None:
    damaged(tmp_path / "model.zip", method)
    words = ["learn", *TASK, "--task.games", '["CartPole-v1"]', "--init"]
    line = refused(*words, f"sb3:{tmp_path}/model.zip")
    assert "model.zip: is no archive of stable-baselines3: " in line


@pytest.mark.parametrize("other", [
    torch.empty(64, 4, device="meta"),
    torch.quantize_per_tensor(torch.ones(64, 4), 0.1, 0, torch.qint8),
    torch.ones(64, 4, dtype=torch.complex64),
    torch.eye(64, 4).to_sparse(),
    torch.zeros(1).expand(2**40, 2**10),
], ids=["meta", "quantized", "complex", "sparse", "huge"])  # fmt: skip
def test_tensors_without_numbers_of_ones_own_are_none_that_fit(
    other: torch.Tensor, tmp_path: Path, refused: Refused
) -> None:
    torch.save({"linear1.weight": other}, tmp_path / "a.pt")
    words = ["learn", *TASK, "--task.games", '["CartPole-v1"]', "--init"]
    line = refused(*words, f"torch:{tmp_path}/a.pt")
    assert "has none of the tensors that are shared here (linear1.weight" in line


def test_of_many_tensors_a_line_names_some(tmp_path: Path, refused: Refused) -> None:
    torch.save({f"name{n}": torch.ones(1) for n in range(1000)}, tmp_path / "a.pt")
    (tmp_path / "names").write_text("other: linear1.weight\n")
    words = ["learn", *TASK, "--task.games", '["CartPole-v1"]', "--init"]
    for given in (f"torch:{tmp_path}/a.pt", f"torch:{tmp_path}/a.pt@names={tmp_path}/names"):
        line = refused(*words, given)
        assert "name39 and 960 more" in line
        assert len(line) < 1000


def test_of_an_archive_nothing_is_written_outside(tmp_path: Path, refused: Refused) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name in ("../outside", f"{tmp_path}/outside"):
            archive.writestr(name, "x")
        link = zipfile.ZipInfo("policy.pth")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    words = ["learn", *TASK, "--task.games", '["CartPole-v1"]', "--init"]
    line = refused(*words, f"sb3:{tmp_path}/model.zip")
    assert "model.zip: is no file of torch.save" in line
    assert [one.name for one in tmp_path.iterdir()] == ["model.zip"]
