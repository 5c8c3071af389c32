"""Features of a start before learning, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from leap_rl.evaluation.diagnosis import (
    OBSERVATIONS,
    Features,
    contributions_in_words,
    in_words,
    judge,
    observe,
    start_features,
)
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.registry import make_learner
from leap_rl.tasks.config import TaskConfig


def test_the_effective_rank_counts_directions_by_their_share() -> None:
    rng = np.random.default_rng(0)
    of_four = np.linalg.qr(rng.normal(size=(1000, 4)))[0]
    found = judge(np.concatenate([of_four, np.zeros((1000, 4))], axis=1))
    assert (found.units, found.dead) == (8, 0.5)
    assert found.rank == pytest.approx(4.0)
    assert judge(of_four @ np.ones((4, 1)) @ np.ones((1, 4))).rank == pytest.approx(1.0)
    # Shares 3/4 and 1/4: exp(-3/4 ln 3/4 - 1/4 ln 1/4) = 4 / 3^(3/4).
    assert judge(np.diag([3.0, 1.0])).rank == pytest.approx(4 / 3**0.75)
    # Dead is what is the same in all, also where it is not 0, as it may be behind a tanh.
    assert judge(np.concatenate([of_four, np.full((1000, 4), 0.3)], axis=1)).dead == 0.5
    assert judge(np.zeros((10, 3))) == Features(3, 1.0, 0.0)


def test_features_are_the_encoders_over_random_play() -> None:
    task = TaskConfig(kind="catch", games=["catch"], num_envs=4)
    found = {}
    for share in ("encoder", "agent"):
        agent = AgentConfig(share=share)  # type: ignore[arg-type]
        learner = make_learner(task=task, agent=agent)
        assert isinstance(learner, GameLearner)
        seen = observe(learner, "catch")
        assert seen.shape == (OBSERVATIONS, 84, 84, 3)
        np.testing.assert_array_equal(seen, observe(learner, "catch"))
        start = learner.random_initialization(0)
        found[share] = start_features(learner, start, seen)
        dead = start_features(learner, torch.zeros_like(start), seen)
        assert (dead.dead, dead.rank) == (1.0, 0.0)
    assert found["encoder"] == found["agent"], "the encoder is drawn first"
    assert 1.0 < found["encoder"].rank < found["encoder"].units


def test_only_what_is_worse_than_random_is_said() -> None:
    random = Features(128, 0.1, 24.0)
    assert in_words("leap", "maze", Features(128, 0.25, 20.0), random) == []
    dead, narrow = in_words("leap", "maze", Features(128, 0.39, 3.5), random)
    assert dead.startswith("39% of leap's features are the same whatever is seen in maze (10% of")
    assert "--init RUN@mix=0.5" in dead
    assert narrow.startswith("leap's features span 3.5 directions in maze, a random encoder's 24.0")


@pytest.mark.parametrize(
    ("cosine", "said"),
    [(0.3, "pull the start the same way"), (0.0, "unrelated"), (-0.3, "contradict one another")],
)
def test_cosines_say_how_members_pull(cosine: float, said: str) -> None:
    assert said in (contributions_in_words({("a", "b"): cosine, ("a", "c"): cosine}) or "")
    assert contributions_in_words({}) is None
