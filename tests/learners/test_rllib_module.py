"""RLlib's learners and environment runners start from the very weights of an initialization.

None of the tests starts Ray: the local learner and the local environment runner are what an
Algorithm with `num_learners=0` and `num_env_runners=0` has.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary
from safetensors.torch import load_file

from leap_rl import pretrained
from leap_rl.networks.actor_critic import ActorCritic
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime

NAME = "pretrained:minatar-leap"
FILE = pretrained.locate(NAME) / "initialization.safetensors"
OBSERVATIONS = Box(0, 255, (10, 10, 3), np.uint8)
MODULE = "default_policy"


@pytest.fixture(autouse=True)
def _ray() -> None:
    make_ray_runtime(trainers=1, address=LOCAL)  # what Ray must find when it is imported


def config_of(algorithm: str, model_config: dict[str, Any]) -> Any:
    """An algorithm's config, small, all of it in this process."""
    from ray.rllib.algorithms.appo import APPOConfig
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec

    from leap_rl.learners.rllib import LeapEncoderModule, LeapEnv

    configs = {"ppo": PPOConfig, "appo": APPOConfig, "impala": IMPALAConfig}
    config = (
        configs[algorithm]()
        .environment(LeapEnv, env_config={"game": "MinAtar/Breakout-v1", "palette": True})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4, rollout_fragment_length=8)
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=32, lr=1e-3)
        .rl_module(
            rl_module_spec=RLModuleSpec(module_class=LeapEncoderModule, model_config=model_config)
        )
        .debugging(seed=3)
    )
    return config.training(minibatch_size=16, num_epochs=2) if algorithm == "ppo" else config


def make_module(model_config: dict[str, Any], **spaces: Any) -> Any:
    from leap_rl.learners.rllib import LeapEncoderModule

    spaces = {"observation_space": OBSERVATIONS, "action_space": Discrete(3), **spaces}
    return LeapEncoderModule(model_config=model_config, inference_only=False, **spaces)


def encoder_of(module: Any) -> dict[str, torch.Tensor]:
    return {name: part.clone() for name, part in module.encoder.state_dict().items()}


def assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, part in left.items():
        assert torch.equal(part, right[name]), name


@pytest.mark.parametrize("algorithm", ["ppo", "appo", "impala"])
def test_learner_and_environment_runner_start_from_the_file(algorithm: str) -> None:
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    config = config_of(algorithm, {"initialization": NAME, "initial_weights": "he"})
    runner = SingleAgentEnvRunner(config=config, worker_index=0)
    learner = config.build_learner(env=runner.env.unwrapped, spaces=runner.get_spaces())
    file = load_file(FILE)
    assert len(file) == 4
    assert_same(encoder_of(runner.module), file)
    assert_same(encoder_of(learner.module[MODULE]), file)
    # What the runner does not need is not there.
    assert {name.partition(".")[0] for name in runner.module.state_dict()} == {"encoder", "policy"}
    if algorithm == "appo":
        assert_same(learner.module[MODULE]._target_encoder.state_dict(), file)
    if algorithm != "ppo":
        learner.shutdown()  # or APPO's thread looks for work, without a pause, in all later tests
        assert not learner._learner_thread.is_alive()


def test_a_learner_trains_encoder_and_heads_on_what_the_runner_saw() -> None:
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    config = config_of("ppo", {"initialization": NAME})
    runner = SingleAgentEnvRunner(config=config, worker_index=0)
    learner = config.build_learner(env=runner.env.unwrapped, spaces=runner.get_spaces())
    before = {name: part.clone() for name, part in learner.module[MODULE].state_dict().items()}
    episodes = runner.sample(num_timesteps=32)
    seen = episodes[0].get_observations()
    assert seen.dtype == np.uint8
    assert seen.shape[1:] == (10, 10, 3)
    assert seen.max() == 255  # nothing has scaled them
    learner.update(
        episodes=episodes,
        timesteps={"num_env_steps_sampled_lifetime": 32},
        num_epochs=2,
        minibatch_size=16,
    )
    for name, part in learner.module[MODULE].state_dict().items():
        assert not torch.equal(part, before[name]), name
    state = learner.get_state(components="rl_module", inference_only=True)
    runner.set_state({"rl_module": state["rl_module"]})
    assert_same(encoder_of(runner.module), encoder_of(learner.module[MODULE]))


def test_continuous_actions_get_means_and_log_standard_deviations() -> None:
    module = make_module({"encoder": "minatar"}, action_space=Box(-1, 1, (2,)))
    batch = {"obs": torch.zeros(5, 10, 10, 3, dtype=torch.uint8)}
    logits = module.forward_train(batch)["action_dist_inputs"]
    policies = module.get_train_action_dist_cls().from_logits(logits)
    assert policies.sample().shape == (5, 2)
    ours = torch.distributions.Normal(logits[:, :2], logits[:, 2:].exp())
    torch.testing.assert_close(policies.entropy(), ours.entropy().sum(1))


def test_it_computes_what_our_own_agents_network_computes() -> None:
    module = make_module({"initialization": NAME})
    ours = ActorCritic("minatar", observation_shape=(10, 10, 3), num_logits=3)
    ours.load_state_dict(module.state_dict())
    observations = torch.randint(256, (5, 10, 10, 3), dtype=torch.uint8)
    logits, values = ours(observations)
    trained = module.forward_train({"obs": observations})
    assert torch.equal(
        module.forward_exploration({"obs": observations})["action_dist_inputs"], logits
    )
    assert torch.equal(trained["action_dist_inputs"], logits)
    assert torch.equal(module.compute_values({"obs": observations}), values)
    assert torch.equal(
        module.compute_values({"obs": observations}, embeddings=trained["embeddings"]), values
    )


def test_heads_and_random_encoders_are_drawn_as_our_agents_are() -> None:
    torch.manual_seed(1)
    he = make_module({"encoder": "minatar", "initial_weights": "he", "value_gain": 0.001})
    torch.manual_seed(1)
    again = make_module({"encoder": "minatar", "initial_weights": "he", "value_gain": 0.001})
    assert_same(he.state_dict(), again.state_dict())
    features = he.encoder.features
    assert he.policy.weight.abs().max() < 0.01 * 3**0.5 / features**0.5
    assert he.value.weight.abs().max() < 0.001 * 3**0.5 / features**0.5
    assert not he.policy.bias.any()
    plain = make_module({"encoder": "minatar"})
    bound = 1 / features**0.5
    assert bound / 2 < plain.policy.weight.abs().max() <= bound
    assert plain.policy.bias.any()


def test_a_folder_that_was_exported_is_an_initialization() -> None:
    module = make_module({"initialization": str(pretrained.locate(NAME))})
    assert_same(encoder_of(module), load_file(FILE))


@pytest.mark.parametrize(
    ("model_config", "spaces", "complaint"),
    [
        ({}, {}, "give either initialization"),
        ({"initialization": NAME, "encoder": "minatar"}, {}, "give either initialization"),
        ({"initialisation": NAME}, {}, "does not know ['initialisation']"),
        ({"initialization": "pretrained:none"}, {}, "there is no pretrained 'none'"),
        ({"initialization": "nowhere"}, {}, "nowhere: is no folder that leap-rl export wrote"),
        ({"initialization": "pretrained:breakout-leap"}, {}, "takes observations of [84, 84, 4]"),
        ({"encoder": "resnet"}, {}, "agent.encoder = 'resnet': must be one of"),
        ({"encoder": "minatar", "initial_weights": "xavier"}, {}, "must be one of torch, he"),
        ({"encoder": "minatar"}, {"action_space": MultiBinary(2)}, "must be a Box and a Discrete"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    model_config: dict[str, Any], spaces: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        make_module(model_config, **spaces)
