"""Initializations travel: out of a run with a card, into any command, and into other code."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import onnxruntime
import pytest
import torch
import yaml
from safetensors.torch import load_file

import leap_rl
from leap_rl import pretrained
from leap_rl.cli import export as export_module
from leap_rl.cli import main
from leap_rl.cli.export import export
from leap_rl.runs import clips
from leap_rl.runs.config import EvaluateConfig, TrainConfig
from leap_rl.runs.header import read_run
from leap_rl.runs.initializations import find_initialization
from leap_rl.sharing import onnx_file
from leap_rl.sharing.card import CARD, FILES, MOST, ONNX, OPTIONS, SAVED, SEEN
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tasks.suites import CATCH_GAMES
from tests.commands import CATCH, LOCALLY, Refused

pytestmark = pytest.mark.usefixtures("without_plots")

README = (Path(__file__).parents[2] / "README.md").read_text()

AGENTS = ["--seeds", "2", "--random_agents", "3"]


@pytest.fixture(scope="module")
def folders(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a run, an evaluation of it, and what was exported of both."""
    at = tmp_path_factory.mktemp("runs")
    shutil.copytree(trained, at / "run")
    arguments = ["--init", f"{at / 'run'}@1", "--games", "catch_dark", *AGENTS]
    assert main(["evaluate", *arguments, *LOCALLY, "--out", str(at / "evaluation")]) == 0
    evaluation = ["--evaluation", str(at / "evaluation")]
    assert main(["export", f"{at / 'run'}@1", "--out", str(at / "mine"), *evaluation]) == 0
    return at


def test_an_export_holds_the_checkpoints_bytes_and_says_what_they_are(folders: Path) -> None:
    data = (folders / "mine" / INITIALIZATION).read_bytes()
    assert data == (folders / "run/checkpoints/000001" / INITIALIZATION).read_bytes()
    card = pretrained.read_card(folders / "mine")
    assert (card.name, card.method, card.games) == ("mine", "leap", CATCH_GAMES)
    assert (card.meta_steps, card.agent_steps, card.seed) == (1, 240, 0)
    assert card.sha256 == hashlib.sha256(data).hexdigest()
    verdict, notes = card.verdicts
    assert verdict.startswith(
        "catch_dark, 120 agent steps an agent, 2 agents of each run and 3 from random starts: run@1"
    )
    assert "This holds for one initialization of run@1, not for its method." in notes
    said = (folders / "mine" / CARD).read_text().split("## Measured")[1]
    assert verdict in " ".join(said.split())
    (row,) = card.measured
    assert (row["game"], row["trained on it"]) == ("catch_dark", "yes")
    assert f"| catch_dark | yes | {row['agent steps saved']} | {row['of at most']} |" in said


def test_a_cards_command_makes_its_evaluation(folders: Path, tmp_path: Path) -> None:
    (command,) = pretrained.read_card(folders / "mine").commands
    assert command == (
        "leap-rl evaluate --init FOLDER --task.games catch_dark --seeds 2 --random_agents 3"
    )
    words = [str(folders / "mine") if word == "FOLDER" else word for word in shlex.split(command)]
    out = tmp_path / "again"
    assert main([*words[1:], *LOCALLY, "--out", str(out)]) == 0
    prints = [read_run(RunFolder(one)).header.fingerprint for one in (folders / "evaluation", out)]
    assert prints[0] == prints[1]


def test_a_cards_command_trusts_what_its_evaluation_imports(folders: Path) -> None:
    config = read_run(RunFolder(folders / "run")).config
    other = replace(
        config.task,
        kind="gymnasium",
        games=["corridor:Corridor-v0"],
        gymnasium=replace(config.task.gymnasium, observation_shape=(4,)),
    )
    evaluation = EvaluateConfig(task=other, init=[str(folders / "run")])
    command = export_module._command(evaluation, config)
    assert command.endswith(" --trust_imports")


def test_a_tilde_names_an_export_too(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folders))
    (found,) = (find_initialization(place) for place in ["~/mine"])
    assert found.options is not None, "those of its run"
    assert leap_rl.load_encoder("~/mine") is not None


def test_a_checkpoint_is_exported_by_its_file_too(folders: Path, tmp_path: Path) -> None:
    checkpoint = folders / "run" / "checkpoints" / "000001"
    assert main(["export", str(checkpoint / INITIALIZATION), "--out", str(tmp_path / "mine")]) == 0
    assert pretrained.read_card(tmp_path / "mine") == replace(
        pretrained.read_card(folders / "mine"), verdicts=(), measured=(), commands=()
    )
    run = tmp_path / "run"
    shutil.copytree(folders / "run", run)
    shutil.copytree(checkpoint, run / "checkpoints" / "favourite")
    with pytest.raises(ValueError, match="favourite: is no checkpoint of its run; name the run"):
        export(find_initialization(str(run / "checkpoints" / "favourite")), tmp_path / "out")


def test_an_exported_folder_stands_for_its_run(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folders))
    assert find_initialization("~/mine").path == find_initialization(str(folders / "mine")).path
    found = find_initialization(str(folders / "mine"))
    run = read_run(RunFolder(folders / "run"))
    assert found.options is not None
    assert found.options["task"] == run.options["task"]
    settled = {"device": "auto", "precision": "auto"}
    assert found.options["agent"] == run.options["agent"] | settled
    evaluation = ["evaluate", "--init", str(folders / "mine"), "--games", "catch_dark"]
    again = folders / "again"
    assert main([*evaluation, *AGENTS, *LOCALLY, "--out", str(again)]) == 0
    curves = "curves/000000.parquet"
    assert (again / curves).read_bytes() == (folders / "evaluation" / curves).read_bytes()


def test_the_options_make_the_same_run(folders: Path) -> None:
    config = ["--config", str(folders / "mine" / OPTIONS)]
    assert main(["train", *config, *LOCALLY, "--run_dir", str(folders / "repeated")]) == 0
    file = Path("checkpoints/000002") / INITIALIZATION
    assert (folders / "repeated" / file).read_bytes() == (folders / "run" / file).read_bytes()


def test_the_encoder_is_a_module_with_these_parameters(folders: Path) -> None:
    encoder = pretrained.load(folders / "mine")
    parameters = dict(encoder.named_parameters())
    saved = load_file(folders / "mine" / INITIALIZATION)
    assert parameters.keys() == saved.keys()
    assert all(torch.equal(parameters[name], saved[name]) for name in saved)
    shape = pretrained.read_card(folders / "mine").observation_shape
    features = encoder(torch.zeros((2, *shape), dtype=torch.uint8))
    assert features.shape == (2, encoder.features)


def test_onnx_comes_beside_the_parameters(folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["export", f"{folders / 'run'}@1", "--to", "onnx", "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {*FILES, ONNX}
    for name in (OPTIONS, INITIALIZATION):
        assert (out / name).read_bytes() == (folders / "mine" / name).read_bytes()
    session = onnxruntime.InferenceSession((out / ONNX).read_bytes())
    encoder = leap_rl.load_encoder(out)
    shape = pretrained.read_card(out).observation_shape
    observations = torch.randint(256, (3, *shape), dtype=torch.uint8)
    (features,) = session.run(None, {"observations": observations.numpy()})
    torch.testing.assert_close(torch.from_numpy(features), encoder(observations).detach())


def test_what_onnx_lacks_is_said(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    one = ["--meta.batch_size", "1", "--meta.meta_steps", "1"]
    shared = ["--agent.share", "convolutions", "--run_dir", str(tmp_path / "shared")]
    assert main(["train", *CATCH, *one, *shared, *LOCALLY]) == 0
    to_onnx = ["--to", "onnx", "--out", tmp_path / "out"]
    line = refused("export", f"{tmp_path / 'shared'}@0", *to_onnx)
    assert "agent.share = convolutions, so no whole encoder" in line
    monkeypatch.setattr(onnx_file, "find_spec", lambda name: None if name == "onnxscript" else 1)
    line = refused("export", folders / "run", *to_onnx)
    assert "onnxscript is not installed" in line
    assert "pip install --upgrade 'leap-rl[onnx]'" in line
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_exported_is_said(folders: Path, tmp_path: Path, refused: Refused) -> None:
    run, taken = str(folders / "run"), str(folders / "mine")
    for arguments, said in [
        ([run, "--out", taken], f"--out {taken}: is there already"),
        ([taken, "--out", str(tmp_path / "a")], f"{taken}: lies in no run"),
        ([f"{run}@7", "--out", str(tmp_path / "b")], "has no version 7"),
        ([run, "--out", str(tmp_path / "c"), "--evaluation", run], "evaluat"),
        (
            [run, "--out", str(tmp_path / "d"), "--evaluation", str(folders / "evaluation")],
            f"--evaluation {folders / 'evaluation'}: is of other initializations, not of {run}",
        ),
    ]:
        assert said in refused("export", *arguments)
    assert not any(tmp_path.iterdir())


def test_damage_is_noticed(folders: Path, tmp_path: Path) -> None:
    def copied(name: str) -> Path:
        (tmp_path / name).mkdir()
        for file in (folders / "mine").iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
        return tmp_path / name

    other = copied("other")
    (other / INITIALIZATION).write_bytes(
        (folders / "run/checkpoints/000002" / INITIALIZATION).read_bytes()
    )
    with pytest.raises(ValueError, match="is not the file that its card was written for"):
        pretrained.load(other)
    gone = copied("gone")
    (gone / INITIALIZATION).unlink()
    with pytest.raises(ValueError, match=re.escape(f"wrote ({INITIALIZATION} is not there)")):
        pretrained.load(gone)
    for text in ("# mine\n", "---\nleap_rl: 1\n---\n", "---\nleap_rl: {name: a}\n---\n", "---\n["):
        (gone / CARD).write_text(text)
        with pytest.raises(ValueError, match="is no card that leap-rl export wrote"):
            pretrained.read_card(gone)
    convolutions = copied("convolutions")
    card = (convolutions / CARD).read_text()
    (convolutions / CARD).write_text(card.replace("share: encoder", "share: convolutions"))
    with pytest.raises(ValueError, match="holds the convolutions alone"):
        pretrained.load(convolutions)


def test_a_damaged_checkpoint_gives_no_initialization(
    folders: Path, tmp_path: Path, refused: Refused
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(folders / "run", run)
    file = run / "checkpoints/000002" / INITIALIZATION
    data = bytearray(file.read_bytes())
    data[-1] ^= 1  # of the last parameter, which stays a number
    file.write_bytes(data)
    few = ["--games", "catch", "--seeds", "1"]
    for words in (
        ["export", run, "--out", out],
        ["export", file, "--out", out],
        ["evaluate", "--init", run, *few, *LOCALLY, "--out", out],
        ["learn", *CATCH, "--init", file, *LOCALLY, "--run_dir", out],
        ["train", *CATCH, "--meta.init", file, *LOCALLY, "--run_dir", out],
    ):
        assert f"{file}: is damaged (its SHA-256 is not the one recorded)" in refused(*words)
        assert not out.exists()
    with pytest.raises(ValueError, match="is damaged"):
        leap_rl.load_encoder(run)
    assert main(["export", f"{run}@1", "--out", str(out)]) == 0


def test_a_run_may_begin_at_another_ones_by_its_name(folders: Path, tmp_path: Path) -> None:
    file = folders / "run/checkpoints/000001" / INITIALIZATION
    for init, name in ((file, "file"), (f"{folders / 'run'}@1", "run")):
        train = ["train", *CATCH, "--meta.init", str(init), "--meta.meta_steps", "1", *LOCALLY]
        assert main([*train, "--meta.batch_size", "1", "--run_dir", str(tmp_path / name)]) == 0
    one, other = (RunFolder(tmp_path / name).read_state(1)["sha256"] for name in ("file", "run"))
    assert one == other
    stored = read_run(RunFolder(tmp_path / "run")).config
    assert isinstance(stored, TrainConfig)
    assert stored.meta.init == str(file)
    # The folder goes elsewhere, without places on this machine, and with what came before.
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    options = yaml.safe_load((tmp_path / "out" / OPTIONS).read_text())
    assert options["meta"]["init"] == f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    before, after = (find_initialization(str(one)).trained for one in (file, tmp_path / "out"))
    assert before is not None
    assert after is not None
    assert after.agent_steps == before.agent_steps + stored.task.agent_steps


def test_what_is_not_known_of_a_run_is_not_known_of_its_export(
    folders: Path, tmp_path: Path
) -> None:
    shutil.copy(folders / "run/checkpoints/000001" / INITIALIZATION, tmp_path / "lone.safetensors")
    train = ["train", *CATCH, "--meta.init", str(tmp_path / "lone.safetensors"), *LOCALLY]
    sizes = ["--meta.meta_steps", "1", "--meta.batch_size", "1"]
    assert main([*train, *sizes, "--run_dir", str(tmp_path / "run")]) == 0
    for given, known in ((tmp_path / "run", None), (f"{folders / 'run'}@0", (0, ()))):
        out = tmp_path / f"of-{Path(given).name}"
        assert main(["export", str(given), "--out", str(out)]) == 0
        trained = [find_initialization(str(one)).trained for one in (given, out)]
        found = [one and (one.agent_steps, one.games) for one in trained]
        assert found == [known, known]
    assert "an unknown number of agent steps in all" in " ".join(
        (tmp_path / "of-run" / CARD).read_text().split()
    )


@pytest.mark.parametrize("command", ["evaluate", "learn"])
def test_an_unknown_name_is_told_the_known_ones(command: str, refused: Refused) -> None:
    line = refused(command, "--init", "pretrained:nothing", *LOCALLY)
    assert "there is no pretrained 'nothing'; there are " in line
    assert all(name in line for name in pretrained.names())


@pytest.mark.parametrize("name", pretrained.names())
def test_what_comes_with_leap_rl_can_be_learned_from(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pretrained"]) == 0
    card = pretrained.read_card(pretrained.locate(name))
    assert card.name == name
    assert card.verdicts
    assert card.commands
    head, *lines = capsys.readouterr().out.splitlines()
    assert re.split(r"  +", head)[3:] == ["saves on games it saw", "saves on others"]
    assert len(lines) == len(pretrained.names())
    (line,) = (line for line in lines if line.startswith(f"pretrained:{name} "))
    assert f"  {card.agent_steps:,}  " in line
    saved = [f"{row[SAVED]} of {row[MOST]}" for row in card.measured]
    kinds = {row[SEEN] for row in card.measured}
    assert sum(each in line for each in saved) == len(kinds)
    assert line.count("not measured") == (2 - len(kinds) if kinds else 0)
    assert line.count("measured by another rule") == 2 * (not saved)
    options = yaml.safe_load((pretrained.locate(name) / OPTIONS).read_text())
    steps = options["task"]["num_envs"] * options["task"]["unroll_length"]
    short = ["--games", card.games[0], "--agent_steps", str(steps), "--seeds", "1"]
    given = ["evaluate", "--init", f"pretrained:{name}", *short, *LOCALLY]
    assert main([*given, "--out", str(tmp_path / "evaluation")]) == 0
    encoder = pretrained.load(name)
    saved = load_file(tmp_path / "evaluation/checkpoints/000000/initialization-0.safetensors")
    assert all(torch.equal(value, saved[key]) for key, value in encoder.named_parameters())


@pytest.mark.slow
def test_the_readmes_first_evaluation_shows_two_clips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clips, "LONGEST_S", 1)
    (line,) = re.findall(r"^\.venv/bin/leap-rl (evaluate --init pretrained:.*)$", README, re.M)
    words = [word for word in line.split() if word != "--open"]  # which needs a browser
    words[words.index("--agent_steps") + 1] = "1600"
    assert main([*words, *LOCALLY, "--out", str(tmp_path / "out")]) == 0
    names = {clip.stem for clip in (tmp_path / "out" / "clips").iterdir()}
    assert names == {"breakout@mode=12_random", "breakout@mode=12_breakout-leap"}
    page = (tmp_path / "out" / "report" / "index.html").read_text()
    assert page.count("<video") == 2


def test_loading_takes_neither_ray_nor_a_game() -> None:
    code = "import sys; from leap_rl import pretrained; "
    code += "[*map(pretrained.load, pretrained.names())]; "
    code += "print([m for m in ('ray', 'gymnasium', 'ale_py', 'wandb') if m in sys.modules])"
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, check=True, capture_output=True).stdout == b"[]\n"
