"""Whole runs of agents that are shared whole, and of games that are mixed, into evaluations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

import leap_rl
from leap_rl import pretrained
from leap_rl.cli import main
from leap_rl.envs.normalized import STATISTICS
from leap_rl.runs.evaluation import configure
from leap_rl.runs.header import read_run
from leap_rl.runs.validation import ValidationConfig
from leap_rl.sharing.card import CARD
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tasks.config import TaskConfig
from leap_rl.tracking.jsonl import read_rows
from tests.commands import Refused
from tests.end_to_end.whole_runs import initializations, train_with_stops

pytestmark = pytest.mark.usefixtures("without_plots")

QUIET = ["--tracking.tensorboard", "false", "--tracking.console", "quiet"]
LOCAL = ["--runtime.kind", "local", *QUIET]
POLES = [f"leap_rl/CartPole-v1@{what}" for what in ("length=0.3", "length=0.8", "gravity=15.0")]
GYMNASIUM = ["--task.kind", "gymnasium", "--task.games", str(POLES)]
AGENT = [
    *["--agent.lr", "0.003", "--agent.initial_weights", "he", "--agent.rmsprop_eps", "1e-5"],
    *["--agent.max_grad_norm", "0.5", "--agent.value_coefficient", "0.02"],
    *["--agent.gamma", "0.99", "--agent.entropy_coefficient", "0.01"],
]
ONE_AGENT = [
    *["--task.mix_games", "true", "--agent.share", "agent"],
    *["--meta.method", "pretraining", "--meta.batch_size", "1"],
]


@pytest.fixture(scope="module")
def randomised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One agent trained on all poles at once, a run of four rounds."""
    run = tmp_path_factory.mktemp("randomised") / "run"
    rounds = ["--meta.meta_steps", "4", "--meta.updates_per_round", "300", "--task.num_envs", "8"]
    argv = [*GYMNASIUM, *AGENT, *ONE_AGENT, *rounds, *LOCAL, "--run_dir", str(run)]
    assert main(["train", *argv]) == 0
    return run


def first_returns(evaluation: Path) -> dict[str, float]:
    """Return the mean return of each group's first five episodes of an agent."""
    curves = pq.read_table(evaluation / "curves/000000.parquet").to_pandas()
    agents = RunFolder(evaluation).read_state(0)["evaluation"]["initializations"]
    means: dict[str, list[float]] = {}
    for slot, episodes in curves.groupby("slot"):
        first = episodes.sort_values("agent_steps")["episode_return"].head(5)
        means.setdefault(agents[int(str(slot)) % len(agents)], []).append(float(first.mean()))
    return {name: float(np.mean(values)) for name, values in means.items()}


def evaluate(run: Path | str, out: Path, *argv: str) -> dict[str, float]:
    budget = ["--games", POLES[1], "--seeds", "3", "--agent_steps", "4000", *argv]
    assert main(["evaluate", "--init", str(run), *budget, *LOCAL, "--out", str(out)]) == 0
    return first_returns(out)


def test_agents_begin_where_the_randomised_one_ended(randomised: Path, tmp_path: Path) -> None:
    config = read_run(RunFolder(randomised)).config
    assert config.task.task_games == ("mixed",)
    rows = read_rows(randomised / "metrics.jsonl")
    assert all("return/mixed/mean" in row for row in rows)
    curves = pq.read_table(randomised / "curves/000000.parquet").to_pydict()
    assert set(curves["game"]) == {"mixed"}

    whole = evaluate(randomised, tmp_path / "whole")
    assert whole["run@4"] > 4 * whole["random"], whole
    evaluation = read_run(RunFolder(tmp_path / "whole")).config
    assert not evaluation.task.mix_games
    assert evaluation.agent.share == "agent"
    encoder = evaluate(randomised, tmp_path / "encoder", "--agent.share", "encoder")
    assert encoder["run@4"] < 0.5 * whole["run@4"], "heads of their own know nothing yet"


@pytest.mark.parametrize("normalized", [False, True])
def test_a_trained_agents_file_is_a_start_for_whole_agents(
    normalized: bool, tmp_path: Path
) -> None:
    run, budget = tmp_path / "run", ["--task.agent_steps", "400", "--task.num_envs", "8"]
    budget += ["--agent.normalize_observations", str(normalized).lower()]
    assert main(["learn", *GYMNASIUM, *budget, *LOCAL, "--run_dir", str(run)]) == 0
    (file, *_) = sorted((run / "agents").iterdir())
    argv = ["learn", *GYMNASIUM, *budget, *LOCAL, "--agent.share", "agent", "--init", str(file)]
    assert main([*argv, "--run_dir", str(tmp_path / "again")]) == 0
    start = load_file(tmp_path / "again/checkpoints/000000" / INITIALIZATION)
    agent = load_file(file)
    assert agent.keys() - start.keys() == (set(STATISTICS) if normalized else set())
    assert all(torch.equal(agent[name], start[name]) for name in start)


def test_one_agent_a_round_is_plain_training(tmp_path: Path) -> None:
    """Rounds of one agent end where it ends when it learns the same updates in one go."""
    small = [*GYMNASIUM, *AGENT, "--task.mix_games", "true", "--agent.share", "agent"]
    small += ["--task.num_envs", "4", "--agent.precision", "float32", *LOCAL]
    rounds = ["--meta.method", "pretraining", "--meta.batch_size", "1", "--meta.meta_steps", "3"]
    rounds += ["--meta.updates_per_round", "20", "--run_dir", str(tmp_path / "rounds")]
    assert main(["train", *small, *rounds]) == 0
    once = ["--meta.method", "reptile", "--meta.batch_size", "1", "--meta.meta_steps", "1"]
    once += ["--task.agent_steps", "1200", "--run_dir", str(tmp_path / "once")]
    assert main(["train", *small, *once]) == 0
    ends = [
        load_file(tmp_path / run / f"checkpoints/{number}" / INITIALIZATION)
        for run, number in (("rounds", "000003"), ("once", "000001"), ("once", "000000"))
    ]
    for name, part in ends[0].items():
        torch.testing.assert_close(part, ends[1][name], rtol=1e-3, atol=1e-5)
        assert not torch.equal(part, ends[2][name])


STOPPED = [
    *["--task.kind", "catch", "--task.games", "all", "--task.mix_games", "true"],
    *["--task.num_envs", "5", "--task.agent_steps", "250", "--agent.share", "agent"],
    *["--meta.batch_size", "2", "--meta.meta_steps", "2", *QUIET],
]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("calm") / "run"
    assert main(["train", *STOPPED, "--runtime.kind", "local", "--run_dir", str(run)]) == 0
    return run


def test_a_stop_in_mid_task_and_a_resume_give_the_same_bits(calm: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped = train_with_stops(run, [*STOPPED, "--runtime.kind", "local"])
    assert stopped == {(step, slot) for step in range(2) for slot in range(2)}
    assert initializations(run) == initializations(calm)
    assert len(set(initializations(calm))) == 3


@pytest.mark.slow
def test_ray_gives_the_same_bits(calm: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["train", *STOPPED, "--runtime.trainers", "2", "--run_dir", str(run)]) == 0
    assert initializations(run) == initializations(calm)


def test_validation_judges_single_games(tmp_path: Path) -> None:
    run = tmp_path / "run"
    judged = ["--validation.every_meta_steps", "1", "--validation.games", '["catch_up"]']
    argv = [*STOPPED, *judged, "--meta.batch_size", "1", "--runtime.kind", "local"]
    assert main(["train", *argv, "--run_dir", str(run)]) == 0
    # More games than environments, with other actions: each is judged by itself.
    mix = TaskConfig(games=["pong", "qbert"], mix_games=True)
    judging = ValidationConfig(every_meta_steps=1, games="all").of(mix)
    assert len(judging.task_games) == 62 > mix.num_envs
    row = read_rows(run / "metrics.jsonl")[0]
    assert any(name.startswith("validation/") and "catch_up" in name for name in row), row


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (
            ["--games", "MountainCar-v0", "--task.gymnasium.observation_shape", "[4]"],
            ("policy has 2 outputs", "take 3", "agent.share = encoder takes its encoder alone"),
        ),
        (
            ["--games", '["CartPole-v1", "MountainCar-v0"]'],
            ("agent.share = agent", "2 actions (CartPole-v1), 3 actions (MountainCar-v0)"),
        ),
    ],
)
def test_games_of_other_actions_take_no_whole_agent(
    argv: list[str],
    told: tuple[str, ...],
    randomised: Path,
    tmp_path: Path,
    refused: Refused,
) -> None:
    given = ["evaluate", "--init", str(randomised), "--agent_steps", "4000", *argv, *LOCAL]
    given += ["--task.gymnasium.pad", "zeros", "--out", str(tmp_path / "out")]
    line = refused(*given)
    assert all(part in line for part in told), line
    assert main([*given, "--agent.share", "encoder", "--seeds", "1"]) == 0


def test_an_encoder_starts_no_whole_agent(tmp_path: Path, refused: Refused) -> None:
    catch, one = ["--task.kind", "catch", "--task.games", "catch"], ["--meta.meta_steps", "1"]
    small = ["--task.num_envs", "4", "--task.agent_steps", "20", "--meta.batch_size", "1"]
    run = tmp_path / "run"
    assert main(["train", *catch, *small, *one, *LOCAL, "--run_dir", str(run)]) == 0
    argv = ["learn", *catch, *small[:4], *LOCAL, "--run_dir", str(tmp_path / "out")]
    line = refused(*argv, "--agent.share", "agent", "--init", str(run))
    assert "has no heads" in line
    assert line.endswith("take agent.share = encoder")


def test_what_a_mix_cannot_do_is_said(tmp_path: Path, refused: Refused) -> None:
    def line_of(*argv: str) -> str:
        given = ["--task.agent_steps", "160", *LOCAL, "--run_dir", str(tmp_path / "out")]
        return refused(*argv, *given)

    mix = ["--task.mix_games", "true"]
    line = line_of("train", *mix, "--task.games", '["pong", "breakout"]')
    assert "task.mix_games = true: the games must have the same number of actions" in line
    assert "4 actions (breakout), 6 actions (pong)" in line
    minatar = '["MinAtar/Breakout-v0", "MinAtar/Seaquest-v0"]'
    line = line_of("learn", *mix, "--task.kind", "gymnasium", "--task.games", minatar)
    assert "MinAtar/Breakout-v0 [10, 10, 4]" in line, "of observations, by its own option"
    line = line_of("train", *mix, "--task.kind", "catch", "--meta.method", "pretraining")
    assert "keeps one agent a game, and task.mix_games = true makes 1" in line
    line = line_of("evaluate", *mix, "--init", "pretrained:atari-leap", "--clips", "true")
    assert "clips = true: task.mix_games" in line
    judged = ["--validation.every_meta_steps", "1", "--validation.games", '["breakout"]']
    line = line_of("train", "--agent.share", "agent", "--task.games", '["pong"]', *judged)
    assert "agent.share = agent: the games must" in line


def test_a_whole_agents_run_is_exported_and_gives_its_encoder(
    randomised: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine"
    assert main(["export", str(randomised), "--to", "onnx", "--out", str(out)]) == 0
    assert "starting weights of an agent, its encoder and heads" in (out / CARD).read_text()
    assert pretrained.read_card(out).games == tuple(POLES)
    saved = load_file(out / INITIALIZATION)
    assert "policy.weight" in saved
    for place in (randomised, out):
        parts = dict(leap_rl.load_encoder(place).named_parameters())
        assert all(torch.equal(part, saved[f"encoder.{name}"]) for name, part in parts.items())
    config, _ = configure([str(out)], {"task.games": [POLES[0]], "task.agent_steps": 400})
    assert (config.agent.share, config.task.mix_games) == ("agent", False)
    # Where nothing says that the heads are wanted too, their loss is told.
    capsys.readouterr()
    budget = ["--task.agent_steps", "400", "--task.num_envs", "8"]
    argv = ["learn", *GYMNASIUM, *budget, *LOCAL, "--init", str(out)]
    assert main([*argv, "--run_dir", str(tmp_path / "learned")]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "heads" in line]
    assert "agent.share = encoder takes the encoder alone" in line
