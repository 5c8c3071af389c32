"""A family that another package brings: examples/reinforce, as if it were installed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from leap_rl.learners.registry import make_learner

from leap_rl.cli import main
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.task import Task, TaskSpec
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tasks import families
from leap_rl.tasks.config import TaskConfig

PACKAGE = Path(__file__).parents[2] / "examples" / "reinforce"
GAME = "MinAtar/Breakout-v1"
LOCAL = ["--runtime.kind", "local", "--tracking.tensorboard", "false"]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the package on the path, with the entry points that its pyproject.toml names."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site" / "leap_reinforce-0.1.0.dist-info"
    folder.mkdir(parents=True)
    folder.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = project["entry-points"][families.ENTRY_POINTS]
    lines = [f"{name} = {value}" for name, value in points.items()]
    folder.joinpath("entry_points.txt").write_text(
        "\n".join([f"[{families.ENTRY_POINTS}]", *lines, "bad = math:sqrt", "gone = nowhere:It"])
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.syspath_prepend(PACKAGE)
    yield
    families._installed.cache_clear()


def make(seed: int, **options: Any) -> Task:
    task = TaskConfig(
        kind="reinforce", games=[GAME], agent_steps=80, num_envs=4, unroll_length=5, **options
    )
    agent = AgentConfig(encoder="minatar", precision="float32")
    return make_learner(task=task, agent=agent)(TaskSpec(game=GAME, seed=seed))


def learn(task: Task, updates: int, *, theta0: torch.Tensor | None = None) -> list[torch.Tensor]:
    points: list[torch.Tensor] = []
    if theta0 is not None:
        task.start(theta0)
    for _ in range(updates):
        task.advance(lambda point: points.append(point.theta.clone()))
    return points


def test_it_is_unknown_until_it_is_installed() -> None:
    with pytest.raises(ValueError, match=r"task.kind = 'reinforce': must be one of atari, .*entry"):
        TaskConfig(kind="reinforce")


@pytest.mark.usefixtures("installed")
def test_what_is_no_family_is_refused_in_a_line() -> None:
    for kind, message in (("bad", "cannot load math:sqrt: TypeError"), ("gone", "ModuleNotFound")):
        with pytest.raises(ValueError, match=f"task.kind = {kind}: .*{message}"):
            TaskConfig(kind=kind)
    with pytest.raises(ValueError, match=r"must be one of .*, bad, gone, reinforce;"):
        TaskConfig(kind="balls")
    with pytest.raises(ValueError, match=r"task\.options: has no effect with task\.kind = catch"):
        TaskConfig(kind="catch", options={"rate": 1.0})


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
    faster = learn(make(1, options={"rate": 0.1}), 2, theta0=theta0)
    assert (faster[1] - theta0).norm() > 10 * (points[1] - theta0).norm()


@pytest.mark.usefixtures("installed")
def test_a_run_meta_trains_over_it_and_names_its_version(tmp_path: Path) -> None:
    run = tmp_path / "run"
    argv = ["--task.kind", "reinforce", "--task.games", f'["{GAME}"]', "--agent.encoder", "minatar"]
    argv += ["--task.options", '{"rate": 0.01}', "--task.agent_steps", "80", "--task.num_envs", "4"]
    argv += ["--meta.meta_steps", "2", "--meta.batch_size", "2", *LOCAL, "--run_dir", str(run)]
    assert main(["train", *argv]) == 0
    config = RunFolder(run).read_config()
    assert config["task"]["options"] == {"rate": 0.01}
    assert config["made_by"][0]["leap_reinforce"] == "0.1.0"
    assert main(["resume", str(run), "--meta.meta_steps", "3"]) == 0
    assert (run / "checkpoints" / "000003" / INITIALIZATION).exists()
