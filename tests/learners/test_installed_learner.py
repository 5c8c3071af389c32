"""Learners of others: examples/reinforce as an installed package, and named as a class."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from leap_rl.cli import EXIT_INTERRUPTED, main
from leap_rl.learners import registry
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.task import Task, TaskSpec
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tasks.config import TaskConfig
from tests.end_to_end.whole_runs import initializations, stopped_after

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGE = EXAMPLES / "reinforce"
GAME = "MinAtar/Breakout-v1"
OWN = "leap_reinforce:Reinforce"
LOOP = "loop = tests.learners.loops:learn"
LOCAL = ["--runtime.kind", "local", "--tracking.tensorboard", "false"]
SMALL = ["--task.agent_steps", "80", "--task.num_envs", "4", "--meta.meta_steps", "2"]
SMALL += ["--meta.batch_size", "2", *LOCAL]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the package on the path, with the entry points that its pyproject.toml names."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site" / "leap_reinforce-0.1.0.dist-info"
    folder.mkdir(parents=True)
    folder.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = project["entry-points"][registry.ENTRY_POINTS]
    lines = [f"{name} = {value}" for name, value in points.items()]
    folder.joinpath("entry_points.txt").write_text(
        "\n".join(
            [f"[{registry.ENTRY_POINTS}]", *lines, "bad = math:sqrt", "gone = nowhere:It", LOOP]
        )
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.syspath_prepend(PACKAGE)
    yield
    registry._installed.cache_clear()


def make(seed: int, *, algorithm: str = "reinforce", **agent: Any) -> Task:
    task = TaskConfig(kind="gymnasium", games=[GAME], agent_steps=80, num_envs=4, unroll_length=5)
    options = AgentConfig(algorithm=algorithm, encoder="minatar", **agent)
    return registry.make_learner(task=task, agent=options)(TaskSpec(game=GAME, seed=seed))


def learn(task: Task, updates: int, *, theta0: torch.Tensor | None = None) -> list[torch.Tensor]:
    points: list[torch.Tensor] = []
    if theta0 is not None:
        task.start(theta0)
    for _ in range(updates):
        task.advance(lambda point: points.append(point.theta.clone()))
    return points


def test_it_is_unknown_until_it_is_installed() -> None:
    with pytest.raises(ValueError, match=r"algorithm = 'reinforce': must be one of a2c, .*entry"):
        make(0)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("bad", "algorithm = bad: cannot load math:sqrt|must be a class"),
        ("gone", "algorithm = gone: cannot load nowhere:It: ModuleNotFoundError"),
        ("loop", "is a function; name a loop by itself, as agent.algorithm = tests.learners.loops"),
        ("balls", r"must be one of .*, bad, gone, loop, reinforce, or package:Learner"),
        ("rllib:DQN", r"algorithm = 'rllib:DQN': must be one of a2c, rllib:PPO"),
        ("math:sqrt", r"math:sqrt: .* must be a class of leap_rl\.learners\.learner\.Learner"),
        ("math:nothing", "cannot load math:nothing: AttributeError"),
        (f"{__name__}:Nameless", "Nameless'> lacks __call__, name"),
    ],
)
def test_what_is_no_learner_is_refused_in_a_line(algorithm: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(0, algorithm=algorithm)


class Nameless(GameLearner):
    pass


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("left_out", ["initial_weights", "reward_clip"])
def test_an_option_that_all_read_cannot_be_left_out(
    left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reinforce = registry._installed("reinforce")
    options = tuple(name for name in reinforce.options if name != left_out)
    monkeypatch.setattr(reinforce, "options", options)

    def use() -> None:
        task = TaskConfig(kind="gymnasium", games=[GAME])
        reinforce.check(task, AgentConfig(algorithm="reinforce"), 1)
        make(0)

    with pytest.raises(ValueError, match=f"reinforce: its options lack {left_out}, which every"):
        use()


@pytest.mark.usefixtures("installed")
def test_its_tasks_are_functions_of_their_seed_and_resume_from_their_snapshots() -> None:
    theta0 = torch.rand(make(0)._size) / 10  # type: ignore[attr-defined]
    task = make(1)
    points = learn(task, 2, theta0=theta0)
    snapshot = task.state()
    points += learn(task, 2)
    assert task.done
    assert torch.equal(points[0], theta0)
    assert not torch.equal(points[1], points[0])
    other = make(1)
    other.restore({name: np.array(part) for name, part in snapshot.items()})
    for one, again in zip(learn(other, 2), points[2:], strict=True):
        assert torch.equal(one, again)
    assert not torch.equal(learn(make(2), 2, theta0=theta0)[1], points[1])
    faster = learn(make(1, lr=0.1), 2, theta0=theta0)
    assert (faster[1] - theta0).norm() > 10 * (points[1] - theta0).norm()


@pytest.mark.usefixtures("installed")
def test_what_its_loss_draws_is_of_the_seed_and_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    any_of: Any = make(0)
    loss = type(any_of).loss
    monkeypatch.setattr(
        type(any_of), "loss", lambda task, batch: loss(task, batch) * torch.rand(()) * 2
    )
    theta0 = torch.rand(any_of._size) / 10
    task = make(1)
    points = learn(task, 2, theta0=theta0)
    snapshot = task.state()
    points += learn(task, 2)
    other = make(1)
    again = learn(other, 2, theta0=theta0)
    other.restore(snapshot)
    for one, two in zip(again + learn(other, 2), points, strict=True):
        assert torch.equal(one, two)


@pytest.mark.usefixtures("installed")
def test_a_run_meta_trains_over_it_and_names_its_version(tmp_path: Path) -> None:
    run = tmp_path / "run"
    argv = ["--task.kind", "gymnasium", "--task.games", f'["{GAME}"]', "--agent.encoder", "minatar"]
    argv += ["--agent.algorithm", "reinforce", "--agent.options", '{"baseline": false}', *SMALL]
    assert main(["train", *argv, "--run_dir", str(run)]) == 0
    config = RunFolder(run).read_config()
    assert config["agent"]["options"] == {"baseline": False}
    assert config["made_by"][0]["leap_reinforce"] == "0.1.0"
    assert main(["resume", str(run), "--meta.meta_steps", "3"]) == 0
    assert (run / "checkpoints" / "000003" / INITIALIZATION).exists()


def test_a_learner_and_an_environment_of_ones_own_meet_by_two_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.syspath_prepend(PACKAGE)
    games = '["corridor:Corridor-v0@length=7", "corridor:Corridor-v0@length=7,mirrored=true"]'
    argv = ["train", "--task.kind", "gymnasium", "--task.games", games, *SMALL]
    argv += ["--agent.algorithm", OWN, "--run_dir", str(tmp_path / "run")]
    assert main(argv) == 2
    assert "task.games: names the module corridor" in capsys.readouterr().err
    assert main([*argv, "--trust_imports"]) == 0
    assert RunFolder(tmp_path / "run").read_config()["agent"]["algorithm"] == OWN
    assert main(["verify", str(tmp_path / "run")]) == 0


def test_reading_a_strangers_run_imports_no_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(PACKAGE)
    argv = ["train", "--task.kind", "gymnasium", "--task.games", f'["{GAME}"]', *SMALL]
    argv += ["--agent.algorithm", OWN, "--run_dir", str(tmp_path / "run"), "--trust_imports"]
    assert main(argv) == 0
    assert "--open --trust_imports" in capsys.readouterr().out  # or the next command is refused
    called: list[str] = []
    monkeypatch.setattr(registry, "import_module", called.append)
    assert main(["verify", str(tmp_path / "run")]) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    assert not called


FORGETFUL = """
from leap_reinforce import Reinforce, ReinforceTask

class ForgetfulTask(ReinforceTask):
    def state(self):
        raise AssertionError("asked for a snapshot")

class Forgetful(Reinforce):
    name = "forgetful"
    restorable = False
    carries_over = False

    def __call__(self, spec):
        return ForgetfulTask(self, spec)
"""


@pytest.mark.parametrize("restorable", [True, False])
def test_without_snapshots_a_stopped_run_comes_to_the_same_bits(
    restorable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    monkeypatch.syspath_prepend(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    argv = ["train", "--task.kind", "gymnasium", "--task.games", f'["{GAME}"]', *SMALL]
    argv += ["--agent.algorithm", OWN if restorable else "forgetful:Forgetful", "--trust_imports"]
    argv += ["--runtime.stream_every_s", "0.001", "--runtime.snapshot_every_s", "0.001"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert main([*argv, "--run_dir", str(whole)]) == 0
    with stopped_after(1):
        assert main([*argv, "--run_dir", str(stopped)]) == EXIT_INTERRUPTED
    assert bool(list(stopped.glob("slots/*/*.snapshot"))) == restorable
    assert main(["resume", str(stopped), "--trust_imports"]) == 0
    assert initializations(stopped) == initializations(whole)


def test_what_cannot_be_carried_over_is_refused_once_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    monkeypatch.syspath_prepend(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    argv = ["train", "--task.kind", "gymnasium", "--task.games", f'["{GAME}"]', *SMALL]
    argv += ["--agent.algorithm", "forgetful:Forgetful", "--trust_imports"]
    argv += ["--meta.method", "pretraining", "--meta.batch_size", "1"]
    assert main([*argv, "--run_dir", str(tmp_path / "run")]) == 2
    assert "agent.algorithm = forgetful:Forgetful cannot be carried over" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
