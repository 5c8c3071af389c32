"""The list of families, and that one more is a class and a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner

from leap_rl.envs.small.catch import make_catch
from leap_rl.envs.vector import GameVector
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.task import TaskSpec
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.families import FAMILIES, OPTIONS
from leap_rl.tasks.family import check_games
from leap_rl.tasks.played import PlayedFamily


class Balls(PlayedFamily):
    kind = "balls"
    options = ("agent_steps", "num_envs", "unroll_length")

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        return check_games(self.kind, tuple(games), ("falling", "rising"))

    def observation_shape(self, task: TaskConfig) -> tuple[int, ...]:
        return (84, 84, 3)

    def make_envs(self, tasks: Learner, game: str) -> Callable[[int], GameVector]:
        name = {"falling": "catch", "rising": "catch_up"}[game]
        return lambda seed: make_catch(name, num_envs=tasks.task.num_envs, seed=seed)


def test_each_family_has_the_name_that_it_is_asked_for_by() -> None:
    assert all(family.kind == kind for kind, family in FAMILIES.items())
    assert set(OPTIONS) <= TaskConfig.__dataclass_fields__.keys()


def test_what_no_family_but_one_reads_is_without_effect_on_the_others() -> None:
    others = ("data", "data_sha256", "omniglot", "gymnasium", "rllib", "options")
    assert TaskConfig().without_effect == others
    omniglot = TaskConfig(kind="omniglot", games=["Greek"])
    assert set(omniglot.without_effect) == set(OPTIONS) - {"data", "data_sha256", "omniglot"}
    with pytest.raises(ValueError, match=r"task\.data: has no effect with task\.kind = catch"):
        TaskConfig(kind="catch", data="images")


def test_a_new_family_is_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"task\.kind = 'balls': must be one of atari"):
        TaskConfig(kind="balls")
    monkeypatch.setitem(FAMILIES, "balls", Balls())
    with pytest.raises(ValueError, match="'sinking' is no game of task"):
        TaskConfig(kind="balls", games=["sinking"])
    config = TaskConfig(
        kind="balls", games=["falling", "rising"], agent_steps=80, num_envs=4, unroll_length=5
    )
    assert config.without_effect[0] == "atari"
    tasks = make_learner(task=config, agent=AgentConfig(precision="float32"))
    tasks.check_machine()
    theta0 = tasks.random_initialization(1)
    assert theta0.shape == (tasks.shared_layout().size,)
    ends = []
    for game in config.resolved_games:
        task = tasks(TaskSpec(game=game, seed=3))
        task.start(theta0)
        while not task.done:
            task.advance(lambda point: ends.append(point.theta.clone()))
        task.close()
    assert len(ends) == 2 * config.updates
    assert torch.equal(ends[0], theta0)
    assert not torch.equal(ends[3], ends[7])
