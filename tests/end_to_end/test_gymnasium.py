"""Whole runs over Gymnasium environments and modes of games: bits, names and trust."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import gymnasium
import pyarrow.parquet as pq
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from safetensors.torch import load_file

from leap_rl.cli import main
from leap_rl.core.choices import Domain
from leap_rl.learners.defaults import DEFAULTS
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.jsonl import read_rows
from tests.commands import LOCALLY, QUIET, Refused
from tests.end_to_end.whole_runs import initializations, train_with_stops
from tests.envs.own_games import MODULE, WALK
from tests.tracking import tensorboard_file

ROOT = Path(__file__).parents[2]
SMALL = ["--task.num_envs", "2", "--task.agent_steps", "200", "--meta.meta_steps", "2"]
OWN = [
    *["--task.kind", "gymnasium", "--task.gymnasium.pad", "zeros"],
    *["--task.games", f"['{WALK}@terminates=7', 'Acrobot-v1', 'leap_rl/CartPole-v1@length=1.0']"],
    *["--meta.batch_size", "3", *SMALL],
]
TRUST = "--trust_imports"


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("calm") / "run"
    assert main(["train", *OWN, TRUST, *LOCALLY, "--run_dir", str(run)]) == 0
    return run


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_environments_own_error_is_no_mistake_in_the_options(
    processes: str, tmp_path: Path
) -> None:
    games = ["--task.kind", "gymnasium", "--task.games", f"['{WALK}@terminates=7,breaks=99']"]
    argv = ["learn", *games, TRUST, "--task.num_envs", "2", "--task.agent_steps", "400", *LOCALLY]
    argv += ["--runtime.env_processes", processes, "--run_dir", str(tmp_path / "run")]
    with pytest.raises(RuntimeError, match=r"own_games:Walk.* raised OSError: gone"):
        main(argv)


def test_every_meta_step_moves_the_shared_encoder(calm: Path) -> None:
    assert len(set(initializations(calm))) == 3
    config = RunFolder(calm).read_config()
    assert config["agent"]["encoder"] == "mlp"
    assert config["task"]["gymnasium"]["observation_shape"] == [6]
    assert "atari" not in config["task"]
    assert config["agent"]["reward_clip"] == float("inf")


def test_defaults_are_written_down_and_taken_over(calm: Path, tmp_path: Path) -> None:
    settings = asdict(DEFAULTS["vectors"]).items()
    assert RunFolder(calm).read_config()["agent"].items() >= settings
    forked = ["fork", str(calm), "--at", "1", "--agent.lr", "auto", "--agent.gamma", "0.5", TRUST]
    assert main([*forked, *LOCALLY, "--run_dir", str(tmp_path / "fork")]) == 0
    agent = RunFolder(tmp_path / "fork").read_config()["agent"]
    assert agent.items() >= (dict(settings) | {"gamma": 0.5}).items()
    argv = ["evaluate", "--init", str(tmp_path / "fork"), "--games", '["CartPole-v1"]', *LOCALLY]
    argv += ["--seeds", "1", "--agent_steps", "100", "--run_dir", str(tmp_path / "evaluation")]
    assert main(argv) == 0
    assert RunFolder(tmp_path / "evaluation").read_config()["agent"] == agent


def test_a_stop_in_mid_task_and_a_resume_give_the_same_bits(
    calm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    stopped = train_with_stops(run, [*OWN, TRUST, *LOCALLY], TRUST)
    assert stopped == {(step, slot) for step in range(2) for slot in range(3)}
    assert initializations(run) == initializations(calm)
    rows, undisturbed = (read_rows(folder / "metrics.jsonl") for folder in (run, calm))
    for one, other in zip(rows, undisturbed, strict=True):
        timed = [key for key in one if key.startswith(("time/", "throughput/"))]
        assert {key: one[key] for key in one.keys() - timed} == {
            key: other[key] for key in other.keys() - timed
        }
    assert any(key.startswith("return/leap_rl/CartPole-v1@length=1.0/") for key in rows[0])
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_ray_gives_the_same_bits(calm: Path, processes: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ray = ["--runtime.trainers", "2", "--runtime.env_processes", str(processes)]
    assert main(["train", *OWN, TRUST, *ray, *QUIET, "--run_dir", str(run)]) == 0
    assert initializations(run) == initializations(calm)


def test_agents_learn_games_whose_names_have_a_slash(tmp_path: Path) -> None:
    run = tmp_path / "run"
    games = ["--task.kind", "gymnasium", "--task.games", '["MinAtar/Breakout-v1"]']
    argv = [*games, *SMALL[:4], "--agent.encoder", "minatar", *LOCALLY]
    assert main(["learn", *argv, "--run_dir", str(run)]) == 0
    assert (run / "agents/000_MinAtar+Breakout-v1.safetensors").exists()
    assert any("return/MinAtar/Breakout-v1/mean" in row for row in read_rows(run / "metrics.jsonl"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_agents_learn_a_game_faster_from_what_was_meta_trained_on_it(tmp_path: Path) -> None:
    """On one game, 600,000 agent steps: without the optimizer's metric Leap stays where it is."""
    given = {"meta.meta_steps": 3, "meta.batch_size": 2, "task.agent_steps": 100_000}
    given["task.games"] = '["MinAtar/Breakout-v1"]'
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    run = tmp_path / "run"
    assert main(["train", "--config", "minatar", *words, *LOCALLY, "--run_dir", str(run)]) == 0
    rows = read_rows(run / "metrics.jsonl")
    first, _, last = [row["return/MinAtar/Breakout-v1/mean"] for row in rows[:3]]
    assert last > 1.5 * first


@pytest.mark.parametrize(
    ("package", "game", "domain"),
    [
        ("Box2D", "LunarLander-v3@gravity=-9.0", "vectors"),
        ("minigrid", "minigrid_layouts:Layout-v0@name=Empty-5x5", "images"),
        ("mujoco", "half_cheetah:Run-v0@speed=1.5", "continuous"),
    ],
)
def test_environments_of_other_packages_are_learned(
    package: str, game: str, domain: Domain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package, reason="of the extra families: pip install 'leap-rl[families]'")
    monkeypatch.syspath_prepend(ROOT / "examples")
    games = ["--task.kind", "gymnasium", "--task.games", f"['{game}']", TRUST]
    run = RunFolder(tmp_path / "run")
    assert main(["learn", *games, *SMALL[:4], *LOCALLY, "--run_dir", str(run.path)]) == 0
    assert run.read_config()["agent"].items() >= asdict(DEFAULTS[domain]).items()
    start = load_file(run.path / "checkpoints/000000/initialization.safetensors")
    end = load_file(next(run.path.glob("agents/*.safetensors")))
    for name, part in start.items():
        assert not torch.equal(end[f"encoder.{name}"], part), name


@pytest.fixture
def _cheetahs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco", reason="of the extra families: pip install 'leap-rl[families]'")
    monkeypatch.syspath_prepend(ROOT / "examples")


@pytest.mark.usefixtures("_cheetahs")
@pytest.mark.parametrize("learner", ["a2c", pytest.param("rllib:PPO", marks=pytest.mark.slow)])
def test_cheetahs_stop_and_resume_to_the_same_bits(learner: str, tmp_path: Path) -> None:
    games = "['half_cheetah:Run-v0@speed=1.0', 'half_cheetah:Run-v0@speed=-1.0']"
    words = ["--task.kind", "gymnasium", "--task.games", games, "--meta.batch_size", "2", *SMALL]
    words += ["--agent.algorithm", learner, *LOCALLY]
    if learner == "a2c":
        words += ["--agent.normalize_observations", "true"]
    calm, run = tmp_path / "calm", tmp_path / "run"
    assert main(["train", *words, TRUST, "--run_dir", str(calm)]) == 0
    train_with_stops(run, [*words, TRUST], TRUST)
    assert initializations(run) == initializations(calm)
    assert len(set(initializations(calm))) == 3


@pytest.mark.usefixtures("_cheetahs")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("speed=fast", "speed = fast: must be a number, in m/s"),
        ("speed=true", "speed = True: must be a number, in m/s"),
        ("speed=1,color=red", "unexpected keyword argument 'color'"),
    ],
)
def test_a_cheetah_that_cannot_be_is_refused(arguments: str, reason: str, refused: Refused) -> None:
    games = f"['half_cheetah:Run-v0@{arguments}']"
    line = refused("learn", "--task.kind", "gymnasium", "--task.games", games, TRUST, *LOCALLY)
    assert reason in line


def make_pool(task_id: str, num_envs: int, num_threads: int, seed: int, size: int) -> SyncVectorEnv:
    """What EnvPool gives: dictionaries, NEXT_STEP, and a seed where it is made."""
    assert num_threads == 1
    envs = SyncVectorEnv([lambda: gymnasium.make(task_id, size=size)] * num_envs)
    reset = envs.reset
    envs.reset = lambda: reset(seed=seed)  # type: ignore[method-assign]
    return envs


def test_the_example_of_envpool_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minigrid", reason="of the extra families")
    pool = ModuleType("envpool")
    pool.make_gymnasium = make_pool  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "envpool", pool)
    monkeypatch.syspath_prepend(ROOT / "examples")
    game = "envpool_games:Pool-v0@task=MiniGrid-Empty-5x5-v0,size=6"
    runs = [RunFolder(tmp_path / name) for name in ("run", "again", "other")]
    for seed, run in zip("112", runs, strict=True):
        argv = ["learn", "--task.kind", "gymnasium", "--task.games", f"['{game}']", "--seed", seed]
        assert main([*argv, TRUST, *SMALL[:4], *LOCALLY, "--run_dir", str(run.path)]) == 0
    assert runs[0].read_config()["task"]["gymnasium"]["observation_shape"] == [7, 7, 3]
    ends = [next(run.path.glob("agents/*")).read_bytes() for run in runs]
    assert ends[0] == ends[1] != ends[2]


# -- modules that a config names --------------------------------------------------------------


def test_no_module_is_imported_that_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    (tmp_path / "canary_games.py").write_text("open('canary', 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    games = ["--task.kind", "gymnasium", "--task.games", '["canary_games:A-v0"]']
    for command in ("train", "learn", "plan"):
        line = refused(command, *games)
        assert "canary_games" in line
        assert "--trust_imports" in line
    (tmp_path / "trusting.yaml").write_text("trust_imports: true\n")
    line = refused("train", "--config", "trusting.yaml", *games)
    assert "trust_imports: no such option" in line
    assert "canary_games" not in sys.modules
    assert not (tmp_path / "canary").exists()
    line = refused("learn", *games, TRUST, *LOCALLY)
    assert "cannot be made (NameNotFound" in line
    assert (tmp_path / "canary").exists()


def test_a_run_of_somebody_elses_is_not_resumed_unless_it_is_trusted(
    calm: Path, refused: Refused
) -> None:
    assert MODULE in refused("resume", calm)
    assert MODULE in refused("fork", calm, "--at", 1)


# -- modes and difficulties -----------------------------------------------------------------------

WITH_MODE = "freeway@mode=4,difficulty=1"
OPTIONS = ["--task.games", '["freeway@difficulty=1,mode=4", "pong@mode=1"]']
OPTIONS += ["--task.num_envs", "2", "--task.agent_steps", "40", "--runtime.kind", "local"]
OPTIONS += ["--task.atari.max_frames", "64"]
FINETUNE = ["--meta.method", "pretraining", "--meta.updates_per_round", "3"]
FINETUNE += ["--meta.batch_size", "2"]


def test_agents_and_metrics_have_the_modes_in_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(["learn", *OPTIONS, "--run_dir", str(run)]) == 0
    agents = sorted(path.name for path in (run / "agents").iterdir())
    assert agents == [f"000_{WITH_MODE}.safetensors", "001_pong@mode=1.safetensors"]
    rows = read_rows(run / "metrics.jsonl")
    assert any(f"return/{WITH_MODE}/mean" in row for row in rows)
    assert {*pq.read_table(run / "curves/000000.parquet")["game"].to_pylist()} == {
        WITH_MODE,
        "pong@mode=1",
    }
    tags = {tag for row in tensorboard_file.rows(run / "tensorboard", "at") for tag in row}
    assert "return/freeway_mode_4_difficulty_1/mean" in tags
    lines = [line for line in capsys.readouterr().out.splitlines() if "agent steps" in line]
    starts = {line.index(" agent steps") for line in lines if ".safetensors" in line}
    assert len(starts) == 1, lines  # one column


def test_agents_of_modes_are_carried_over_to_the_same_bits(tmp_path: Path) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    train = ["train", *OPTIONS, *FINETUNE, "--tracking.tensorboard", "false"]
    assert main([*train, "--meta.meta_steps", "3", "--run_dir", str(straight)]) == 0
    assert main([*train, "--meta.meta_steps", "1", "--run_dir", str(stopped)]) == 0
    assert (stopped / f"carried_over/000000/{WITH_MODE}.safetensors").exists()
    assert main(["resume", str(stopped), "--meta.meta_steps", "3"]) == 0
    assert initializations(straight) == initializations(stopped)


def test_two_spellings_define_the_same_run(tmp_path: Path) -> None:
    runs = []
    for number, games in enumerate(('["freeway@mode=0"]', '["Freeway"]')):
        options = [*OPTIONS, "--task.games", games, "--task.agent_steps", "10"]
        options += ["--tracking.tensorboard", "false"]
        assert main(["learn", *options, "--run_dir", str(tmp_path / str(number))]) == 0
        runs.append(RunFolder(tmp_path / str(number)))
    assert runs[0].read_config()["fingerprint"] == runs[1].read_config()["fingerprint"]
    assert runs[0].agent(0, "freeway").read_bytes() == runs[1].agent(0, "freeway").read_bytes()
