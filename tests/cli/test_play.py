from __future__ import annotations

import shutil
from pathlib import Path

import av
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from leap_rl.cli import main
from tests.commands import Refused

LEARN = ["--task.games", '["pong@mode=1", "breakout"]', "--task.num_envs", "2"]
LEARN += ["--task.agent_steps", "20", "--runtime.kind", "local", "--tracking.tensorboard", "false"]
LEARN += ["--task.atari.preset", "machado", "--agent.encoder", "nature"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    assert main(["learn", *LEARN, "--run_dir", str(run)]) == 0
    return run


@pytest.fixture
def agent(run: Path) -> Path:
    return run / "agents/000_pong@mode=1.safetensors"


def play(*argv: str | Path) -> int:
    return main(["play", *map(str, argv)])


def size_of(path: Path) -> tuple[int, int, int]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        return stream.frames, stream.width, stream.height


def test_an_agent_of_a_run_is_recorded_as_it_learned(
    agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert play(agent, "--max_agent_steps", "10") == 0
    assert size_of(tmp_path / "000_pong@mode=1.mp4") == (40, 800, 658)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("episode 1: score ")
    assert lines[0].endswith(" in 10 agent steps, cut off there")
    assert lines[1] == "clip: 000_pong@mode=1.mp4"


def test_the_same_seed_gives_the_same_file(agent: Path, tmp_path: Path) -> None:
    clips = [tmp_path / f"{name}.mp4" for name in "abc"]
    for clip, seed in zip(clips, "112", strict=True):
        assert play(agent, "--max_agent_steps", "4", "--seed", seed, "--out", clip) == 0
    one, two, other = (clip.read_bytes() for clip in clips)
    assert one == two
    assert one != other


def test_a_gif_is_written_too(agent: Path, tmp_path: Path) -> None:
    out = tmp_path / "clip.gif"
    assert play(agent, "--max_agent_steps", "5", "--out", out, "--greedy", "true") == 0
    with Image.open(out) as clip:
        assert clip.size == (320, 224)


def test_a_file_elsewhere_takes_options(agent: Path, tmp_path: Path) -> None:
    copy = tmp_path / "mine.safetensors"
    shutil.copy(agent, copy)
    options = ["--game", "pong@mode=1", "--task.atari.preset", "machado"]
    options += ["--agent.encoder", "nature", "--max_agent_steps", "4", "--seed", "1"]
    assert play(copy, *options, "--out", tmp_path / "a.mp4") == 0
    own = ["--max_agent_steps", "4", "--seed", "1"]
    assert play(agent, *own, "--out", tmp_path / "b.mp4") == 0
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_an_agent_plays_another_mode_of_its_game(agent: Path, tmp_path: Path) -> None:
    out = tmp_path / "clip.mp4"
    options = ["--game", "Pong@difficulty=3", "--max_agent_steps", "3", "--scale", "1"]
    assert play(agent, *options, "--out", out) == 0
    assert size_of(out) == (12, 320, 224)


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--out", "clip.avi"], ["out = clip.avi", ".mp4 or .gif"]),
        (["--out", "nowhere/clip.mp4"], ["out = nowhere/clip.mp4", "no folder nowhere"]),
        (["--out", "there.mp4"], ["out = there.mp4: exists", "--overwrite true"]),
        (["--game", "pongg"], ["game: no game", "did you mean 'pong'"]),
        (["--game", "pong@mode=7"], ["pong has no mode 7; its modes are 0, 1"]),
        (["--game", "held_out"], ["game = held_out", "one Atari game"]),
        (["--game", "catch"], ["game: no game", "'catch'"]),
        (["--game", "breakout"], ["has 6 actions, and breakout has 4"]),
        (["--episodes", "0"], ["episodes = 0: must be at least 1"]),
        (["--scale", "9"], ["scale = 9: must lie in 1..8"]),
        (["--max_agent_steps", "0"], ["max_agent_steps = 0"]),
        (["--out", "a.gif", "--max_agent_steps", "901"], ["max_agent_steps = 901", "900", ".mp4"]),
        (["--out", "a.gif", "--scale", "3"], ["scale = 3: must be at most 2", ".mp4"]),
        (["--agent.encoder", "impala"], ["another encoder"]),
        (["--seed", "-1"], ["seed = -1"]),
        (["--agent.lr", "1"], ["agent.lr", "no such option"]),
    ],
)
def test_bad_options_get_one_line(
    argv: list[str],
    parts: list[str],
    agent: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: Refused,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.mp4").write_bytes(b"")
    line = refused("play", agent, *argv)
    assert all(part in line for part in parts), line
    assert [one.name for one in tmp_path.iterdir()] == ["there.mp4"]
    assert (tmp_path / "there.mp4").read_bytes() == b""


def test_an_existing_clip_is_replaced_where_asked(agent: Path, tmp_path: Path) -> None:
    out = tmp_path / "clip.mp4"
    out.write_bytes(b"")
    assert play(agent, "--out", out, "--overwrite", "true", "--max_agent_steps", "2") == 0
    assert size_of(out)[0] == 8


def test_bad_files_get_one_line(run: Path, tmp_path: Path, refused: Refused) -> None:
    assert "is no file; name one of the files in RUN/agents" in refused("play", tmp_path / "no")
    garbage = tmp_path / "garbage.safetensors"
    garbage.write_bytes(b"garbage")
    assert "say which game" in refused("play", garbage)
    assert "no safetensors file" in refused("play", garbage, "--game", "pong")
    encoder = run / "checkpoints/000000/initialization.safetensors"
    assert "it has no policy" in refused("play", encoder, "--game", "pong")
    agent = load_file(run / "agents/001_breakout.safetensors")
    agent["policy.weight"][0, 0] = float("nan")
    save_file(agent, tmp_path / "bad.safetensors")
    line = refused("play", tmp_path / "bad.safetensors", "--game", "breakout")
    assert "policy.weight: holds NaN or infinity" in line


def test_an_agent_of_another_kind_of_task_is_refused(tmp_path: Path, refused: Refused) -> None:
    run = tmp_path / "run"
    options = ["--task.kind", "catch", "--task.games", "catch", *LEARN[2:-4]]
    assert main(["learn", *options, "--run_dir", str(run)]) == 0
    line = refused("play", run / "agents/000_catch.safetensors")
    assert "task.kind = catch cannot be recorded, Atari games alone" in line
