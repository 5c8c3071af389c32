"""A2C as one jitted function of JAX: acting, the games and the update, on gymnax's games.

The network and the settings are leap_rl's for small games. The convolution is a matrix product of
the cells that each output sees: XLA's own convolution on a CPU takes ten times as long.
"""

from __future__ import annotations

import argparse
import os
import re

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import optax
from common import Step, measure, options, report

UNROLL = 5
UPDATES = 50
"""Of a call."""
SETTINGS = {
    "images": {"lr": 7e-4, "gamma": 0.99, "value": 0.5, "clip": 0.5},
    "vectors": {"lr": 2e-3, "gamma": 0.97, "value": 0.005, "clip": 1e9},
}


class Network(nn.Module):
    """A convolution of 16 filters and 128 units for images, two layers of 64 tanh for vectors."""

    actions: int

    @nn.compact
    def __call__(self, seen):
        """Return logits [N, A] and values [N]."""
        hidden = seen.astype(jnp.float32)
        if seen.ndim == 4:
            height, width = seen.shape[1] - 2, seen.shape[2] - 2
            parts = [hidden[:, y : y + height, x : x + width] for y in range(3) for x in range(3)]
            hidden = nn.relu(nn.Dense(16)(jnp.concatenate(parts, -1)))
            hidden = nn.relu(nn.Dense(128)(hidden.reshape((len(hidden), -1))))
        else:
            for _ in range(2):
                hidden = nn.tanh(nn.Dense(64)(hidden))
        return nn.Dense(self.actions)(hidden), nn.Dense(1)(hidden)[:, 0]


def name_of(game: str) -> str:
    """Return gymnax's name of a Gymnasium id: MinAtar/Breakout-v1 is Breakout-MinAtar."""
    found = re.fullmatch(r"MinAtar/(\w+)-v1", game)
    return f"{found[1]}-MinAtar" if found else game


def make_step(given: argparse.Namespace, index: int) -> Step:
    """Return a call of many updates."""
    envs, params = gymnax.make(name_of(given.game))
    network = Network(envs.action_space(params).n)
    key = jax.random.PRNGKey(index)
    seen, states = jax.vmap(envs.reset, in_axes=(0, None))(
        jax.random.split(key, given.envs), params
    )
    with_ = SETTINGS["images" if seen.ndim == 4 else "vectors"]
    optimizer = optax.chain(
        optax.clip_by_global_norm(with_["clip"]),
        optax.rmsprop(with_["lr"], decay=0.99, eps=1e-5),
    )
    theta = network.init(key, seen)

    def act(carry, key, theta):
        states, seen = carry
        to_draw, to_step = jax.random.split(key)
        actions = jax.random.categorical(to_draw, network.apply(theta, seen)[0])
        keys = jax.random.split(to_step, given.envs)
        after, states, rewards, terminated, truncated, _ = jax.vmap(
            envs.step, in_axes=(0, 0, 0, None)
        )(keys, states, actions, params)
        return (states, after), (seen, actions, rewards, terminated | truncated)

    def loss(theta, seen, actions, returns):
        logits, values = network.apply(theta, seen)
        log_policy = jax.nn.log_softmax(logits)
        advantages = jax.lax.stop_gradient(returns - values)
        taken = jnp.take_along_axis(log_policy, actions[:, None], 1)[:, 0]
        entropy = -(jnp.exp(log_policy) * log_policy).sum(1).mean()
        value = ((returns - values) ** 2).mean()
        return -(advantages * taken).mean() + with_["value"] * value - 0.01 * entropy

    def update(carry, key):
        theta, optimized, states, seen = carry
        (states, seen), (acted_on, actions, rewards, done) = jax.lax.scan(
            lambda carry, key: act(carry, key, theta),
            (states, seen),
            jax.random.split(key, UNROLL),
        )

        def add(following, step):
            reward, ended = step
            following = reward + with_["gamma"] * following * (1 - ended)
            return following, following

        last = network.apply(theta, seen)[1]
        steps = (rewards, done.astype(jnp.float32))
        _, returns = jax.lax.scan(add, last, steps, reverse=True)
        batch = (part.reshape((-1, *part.shape[2:])) for part in (acted_on, actions, returns))
        change, optimized = optimizer.update(jax.grad(loss)(theta, *batch), optimized, theta)
        return (optax.apply_updates(theta, change), optimized, states, seen), None

    @jax.jit
    def learn(carry, key):
        return jax.lax.scan(update, carry, jax.random.split(key, UPDATES))[0]

    carry = learn((theta, optimizer.init(theta), states, seen), key)  # compiled

    def step() -> int:
        nonlocal carry, key
        key, own = jax.random.split(key)
        carry = jax.block_until_ready(learn(carry, own))
        return UPDATES * UNROLL * given.envs

    return step


if __name__ == "__main__":
    given = options(__doc__ or "").parse_args()
    packages = ["jax", "gymnax", "flax", "optax", "numpy"]
    report("jax_a2c", given, measure(make_step, given), packages)
