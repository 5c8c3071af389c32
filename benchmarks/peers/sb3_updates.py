"""An update of stable-baselines3's A2C, as its `learn` does it; for the peers that measure it."""

from __future__ import annotations

from common import Step
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback


class Nothing(BaseCallback):
    """A callback that does nothing."""

    def _on_step(self) -> bool:
        return True


def updates_of(model: A2C) -> Step:
    """Return an update: a rollout and a step of the optimizer."""
    _, callback = model._setup_learn(10**12, Nothing())
    length = model.n_steps

    def step() -> int:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=length)
        model.train()
        return model.n_envs * length

    return step
