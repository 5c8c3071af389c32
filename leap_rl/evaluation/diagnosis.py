"""Why a start does not help: its features in a game before anything is learned there.

Dimensions: N observations, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.games import random_actions
from leap_rl.evaluation.statistics import FloatArray
from leap_rl.learners.config import LIBRARYS_OWN

if TYPE_CHECKING:
    from torch import Tensor

    from leap_rl.envs.vector import GameVector
    from leap_rl.learners.game_learner import GameLearner

OBSERVATIONS: Final = 1024
"""That features are judged by: of agents that act at random."""
DEAD_SHARE: Final = 0.2
"""Dead units beyond random's, as a share, that are worth a sentence."""
RANK_SHARE: Final = 0.5
"""Of random's effective rank, below which the start's is worth a sentence."""
ALIKE: Final = 0.05
"""A mean cosine that is further from 0 says that members agree, or contradict each other."""


class Features(NamedTuple):
    """An encoder's features over N observations."""

    units: int
    dead: float
    """The share of features that are the same in all observations: of a rectifier's units, 0."""
    rank: float
    """The effective rank of their matrix: exp of the entropy of its singular values' shares (Roy
    and Vetterli 2007)."""


def judge(features: FloatArray) -> Features:
    """Judge features [N, F]; the effective rank is 0 if all of them are."""
    spread = np.ptp(features, axis=0)
    dead = spread <= 1e-6 * max(float(spread.max()), 1e-30)
    values = np.linalg.svd(features, compute_uv=False)
    shares = values[values > 0] / max(float(values.sum()), 1e-30)
    rank = float(np.exp(-np.sum(shares * np.log(shares)))) if len(shares) else 0.0
    return Features(features.shape[1], float(dead.mean()), rank)


def observe(learner: GameLearner, game: str, *, seed: int = 0) -> NDArray[Any]:
    """Return observations of a game played by random actions, [N, ...].

    ValueError: there is no such game.
    """
    envs = learner.make_envs(game)(derive_seed(seed, Purpose.ENVIRONMENTS, "diagnosis", game))
    rng = np.random.default_rng(derive_seed(seed, Purpose.ACTIONS, "diagnosis", game))
    with closing(envs):
        return played_at_random(envs, rng)


def played_at_random(envs: GameVector, rng: np.random.Generator) -> NDArray[Any]:
    """Return what new environments show to random actions, the first `OBSERVATIONS`, [N, ...]."""
    seen = [envs.reset()]
    while len(seen) * envs.num_envs < OBSERVATIONS:
        seen.append(envs.step(random_actions(envs, envs.num_envs, rng)).observations)
    return np.concatenate(seen)[:OBSERVATIONS]


def start_features(learner: GameLearner, start: Tensor, observations: NDArray[Any]) -> Features:
    """Judge the features of a start, shared parameters float32 [P], over observations [N, ...].

    ValueError: it holds no whole encoder.
    """
    import torch

    from leap_rl.networks.encoders import make_encoder
    from leap_rl.networks.parameters import load_parameters
    from leap_rl.sharing.initialization import encoder_part

    spec = learner.agent_config.encoder_spec
    if spec.name == LIBRARYS_OWN:
        raise ValueError(f"agent.encoder = {LIBRARYS_OWN}: is no encoder of leap_rl's")
    encoder = make_encoder(spec, learner.observation_shape)
    named = learner.shared_layout().named(start)
    load_parameters(encoder, encoder_part(named))
    with torch.no_grad():
        features = encoder(torch.from_numpy(observations))
    return judge(features.numpy().astype(np.float64))


def in_words(name: str, game: str, start: Features, random: Features) -> list[str]:
    """Return what the features say, a sentence each; none where they are as random ones."""
    said = []
    if start.dead - random.dead > DEAD_SHARE:
        said.append(
            f"{start.dead:.0%} of {name}'s features are the same whatever is seen in {game} "
            f"({random.dead:.0%} of a random encoder's), so that nothing can be learned from them: "
            "a start mixed with a random one (--init RUN@mix=0.5) brings them back."
        )
    if start.rank < RANK_SHARE * random.rank:
        said.append(
            f"{name}'s features span {start.rank:.1f} directions in {game}, a random encoder's "
            f"{random.rank:.1f}: what they tell apart is what mattered in the members that were "
            "learned from."
        )
    return said


def contributions_in_words(cosines: Mapping[tuple[str, str], float]) -> str | None:
    """Return what the mean cosines between members' contributions say; none without any."""
    if not cosines:
        return None
    mean = float(np.mean(list(cosines.values())))
    if mean > ALIKE:
        what = "members pull the start the same way, so that one start can serve them all"
    elif mean < -ALIKE:
        what = "members pull the start against each other: they contradict one another"
    else:
        what = "members pull the start in unrelated directions: they have little in common to learn"
    return f"Contributions of different members have a mean cosine of {mean:+.2f}: {what}."
