from __future__ import annotations

import numpy as np
import pytest
import torch

from leap_rl.core.determinism import Precision, has_bfloat16_units
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.atari.games import ACTION_COUNTS
from leap_rl.envs.atari.settings import AtariConfig, AtariSettings
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.tasks.config import TaskConfig
from leap_rl.video.playing import Frame, Player, play
from tests.envs.vectors import make_atari

SETTINGS = AtariSettings(max_frames=64, sticky=0.25)
PRECISIONS: list[Precision] = ["float32"]
if has_bfloat16_units():
    PRECISIONS.append("bfloat16")


def trained(precision: Precision, game: str = "breakout") -> tuple[Learner, TaskSpec]:
    atari = AtariConfig(max_frames=64, sticky=0.25)
    task = TaskConfig(games=[game], agent_steps=20, num_envs=2, atari=atari)
    return make_learner(task=task, agent=AgentConfig(precision=precision, lr=0.01)), TaskSpec(
        game=game, seed=0
    )


def ignore(*args: object, **kwargs: object) -> None:
    pass


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_acts_is_the_network_that_learned(precision: Precision) -> None:
    make, spec = trained(precision)
    task = make(spec)
    task.start(make.random_initialization(1))
    while not task.done:
        task.advance(ignore)
    seed = 5
    player = Player(
        make.agent,
        task.named_parameters(),
        observation_shape=SETTINGS.observation_shape,
        num_actions=ACTION_COUNTS["breakout"],
        seed=seed,
        greedy=False,
    )
    learner = task.learner  # type: ignore[attr-defined]
    learner.action_generator.manual_seed(derive_seed(seed, Purpose.ACTIONS))
    rng = np.random.default_rng(0)
    for _ in range(20):
        observations = rng.integers(256, size=(2, 84, 84, 3), dtype=np.uint8)
        own = learner.act(torch.from_numpy(observations))
        assert np.array_equal(player.act(observations), own.numpy())
        none = np.zeros(2, dtype=np.bool_)
        rewards = np.zeros(2, dtype=np.float32)
        learner.record(rewards, terminated=none, truncated=none, last_observations={})
    task.close()


def player(
    game: str = "breakout", *, greedy: bool = False, seed: int = 1, bias: float = 0.0
) -> Player:
    """An agent that likes action 1, which is FIRE, the more, the greater the bias."""
    make, spec = trained("float32", game)
    task = make(spec)
    task.start(make.random_initialization(1))
    parameters = task.named_parameters()
    parameters["policy.bias"][1] += bias
    task.close()
    return Player(
        make.agent,
        parameters,
        observation_shape=SETTINGS.observation_shape,
        num_actions=ACTION_COUNTS[game],
        seed=seed,
        greedy=greedy,
    )


def test_a_greedy_agent_takes_the_likeliest_action() -> None:
    observations = np.zeros((30, 84, 84, 3), dtype=np.uint8)
    assert set(player(greedy=True, bias=1.0).act(observations)) == {1}
    assert set(player(greedy=False, bias=1.0).act(observations)) > {1}


def recorded(**changes: int | None) -> list[Frame]:
    options = {"seed": 1, "episodes": 2, "max_agent_steps": None, **changes}
    return list(play("breakout", player(), settings=SETTINGS, **options))  # type: ignore[arg-type]


def test_episodes_are_recorded_to_their_ends() -> None:
    pictures = recorded()
    assert len(pictures) == 128
    assert [(p.episode, p.agent_steps) for p in pictures[60:68]] == [(1, 16)] * 4 + [(2, 1)] * 4
    assert [index for index, picture in enumerate(pictures) if picture.last] == [63, 127]
    assert [picture.agent_steps for picture in pictures[:9]] == [1] * 4 + [2] * 4 + [3]


def test_as_many_agent_steps_as_were_asked_for_are_recorded() -> None:
    pictures = recorded(max_agent_steps=18)
    assert len(pictures) == 72
    assert (pictures[-1].episode, pictures[-1].agent_steps, pictures[-1].last) == (2, 2, False)


def test_the_score_is_the_sum_of_the_raw_rewards() -> None:
    settings = AtariSettings(max_frames=1200)
    firing = player("space_invaders", greedy=True, bias=50.0)
    pictures = list(play("space_invaders", firing, settings=settings, seed=0, episodes=1))
    games = make_atari(
        "space_invaders",
        num_envs=1,
        seed=derive_seed(0, Purpose.ENVIRONMENTS),
        settings=settings,
    )
    games.reset()
    total = 0.0
    for _ in range(300):
        step = games.step(np.array([1]))
        total += step.rewards[0]
        if step.terminated[0] or step.truncated[0]:
            break
    assert pictures[-1].score == total > 5  # more than learning's clipped reward
