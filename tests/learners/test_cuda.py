"""What `agent.device cuda` computes, where there is a GPU; it promises no bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from leap_rl.cli import main
from leap_rl.learners.a2c.a2c import A2CLearner
from leap_rl.learners.a2c.distributions import Categorical
from leap_rl.learners.config import AgentConfig
from leap_rl.networks.encoders import initialize, make_encoder
from leap_rl.networks.parameters import flatten_parameters

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

T, B = 5, 8
SHAPES = {"mnih2013": (84, 84, 3), "nature": (84, 84, 4), "minatar": (10, 10, 4), "mlp": (6,)}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def observations(shape: tuple[int, ...], seed: int) -> Tensor:
    if len(shape) == 1:
        return torch.randn(B, *shape, generator=seeded(seed))
    return torch.randint(0, 256, (B, *shape), dtype=torch.uint8, generator=seeded(seed))


def learned(config: AgentConfig, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the first update's gradient and all parameters after ten."""
    encoder = make_encoder(config.encoder, shape)
    start = flatten_parameters(encoder).vector
    initialize(encoder, seeded(0))
    learner = A2CLearner(
        config,
        observation_shape=shape,
        policies=Categorical(4),
        head_generator=seeded(1),
        action_generator=seeded(2),
    )
    learner.load_shared(start)
    gradients = []
    none = torch.zeros(B, dtype=torch.bool)
    for update in range(10):
        for step in range(T):
            learner.act(observations(shape, 100 * update + step))
            rewards = torch.randn(B, generator=seeded(1000 + 100 * update + step))
            learner.record(rewards, terminated=none, truncated=none, last_observations={})
        learner.losses(observations(shape, 100 * update + T))
        gradients.append(learner.backward().clone().cpu())
        learner.step()
    return gradients[0], learner.flat.vector.clone().cpu()


@pytest.mark.parametrize("encoder", SHAPES)
def test_an_agent_learns_on_a_gpu_as_on_a_cpu(encoder: str) -> None:
    config = AgentConfig(encoder=encoder, precision="float32")
    gradient, parameters = learned(replace(config, device="cuda"), SHAPES[encoder])
    expected_gradient, expected = learned(replace(config, device="cpu"), SHAPES[encoder])
    error = (gradient - expected_gradient).norm() / expected_gradient.norm()
    print(encoder, "gradient", float(error), "parameters", float((parameters - expected).norm()))
    assert error < 1e-5
    # RMSProp turns the signs of gradients near 0 into steps.
    assert (parameters - expected).norm() < 1e-2 * expected.norm()


def test_a_run_on_a_gpu_learns_and_is_evaluated(tmp_path: Path) -> None:
    here = ["--runtime.kind", "local", "--tracking.console", "quiet", "--agent.device", "cuda"]
    train = [
        "train",
        "--task.games",
        "[pong,breakout]",
        "--task.agent_steps",
        "640",
        "--task.num_envs",
        "4",
    ]
    assert not main(
        [
            *train,
            "--meta.meta_steps",
            "2",
            "--meta.batch_size",
            "2",
            *here,
            "--run_dir",
            f"{tmp_path}/run",
        ]
    )
    evaluate = ["evaluate", "--init", f"{tmp_path}/run", "--task.games", "[pong]"]
    small = ["--task.agent_steps", "640", "--task.num_envs", "4", "--seeds", "1"]
    assert not main([*evaluate, *small, *here, "--run_dir", f"{tmp_path}/evaluation"])
