"""stable-baselines3's algorithms as learners: as the library learns alone, watched, to the bit."""

from __future__ import annotations

import json
import os
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import leap_rl
from benchmarks.harness.faults import fired_of, write_plan
from leap_rl.cli import main
from leap_rl.cli.study import take_out
from leap_rl.core.errors import RunFailedError
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.meta import Leap, NonFiniteError
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.creation import resolve
from leap_rl.sharing.card import read_card, write_card
from leap_rl.storage.run_folder import RunFolder
from leap_rl.studies.config import configure
from leap_rl.tasks.config import TaskConfig
from leap_rl.training.faults import PLAN_VARIABLE, FaultInjector, FaultPoint
from tests.commands import LOCALLY, Refused, parsed, start
from tests.end_to_end.whole_runs import initializations
from tests.envs import own_games
from tests.learners import loops
from tests.learners.whole_task import learned
from tests.studies.test_config import words_of

stable_baselines3 = pytest.importorskip("stable_baselines3")

BUDGET = 240
GAMES = {"PPO": "CartPole-v1", "A2C": "CartPole-v1", "DQN": "CartPole-v1", "SAC": "Pendulum-v1"}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "PPO": {"n_steps": 20, "batch_size": 20, "n_epochs": 2},
    "A2C": {"n_steps": 5},
    "DQN": {"learning_starts": 40, "batch_size": 16},
    "SAC": {"learning_starts": 40, "batch_size": 16, "policy_kwargs": {"net_arch": [16, 16]}},
}
UPDATES = {"PPO": 24, "A2C": 12, "DQN": 13, "SAC": 50}
"""With 4 environments: 3 batches of 80 by 4 minibatches in 2 epochs; 12 batches of 20; of DQN one
in 16 agent steps after the 40th, of SAC one in 4."""


def make(algorithm: str, *, games: tuple[str, ...] = (), **agent: Any) -> Learner:
    task = TaskConfig(
        kind="gymnasium",
        games=list(games or (GAMES[algorithm],)),
        agent_steps=BUDGET,
        num_envs=4,
        unroll_length=5,
    )
    given = {"sb3": ARGUMENTS[algorithm], **agent}
    return make_learner(task=task, agent=AgentConfig(algorithm=f"sb3:{algorithm}", **given))


def by_the_library_alone(learner: Any, seed: int) -> dict[str, Tensor]:
    """Learn the same in a script's way: a model, what it starts from, `learn`."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    from leap_rl.envs.single import GameEnv

    algorithm = learner.name.partition(":")[2]
    game = learner.task.resolved_games[0]
    envs = DummyVecEnv([lambda: GameEnv(game)] * 4)
    task = learner(TaskSpec(game=game, seed=seed))
    model = getattr(stable_baselines3, algorithm)(
        "MlpPolicy", envs, seed=task._seed, device="cpu", **learner.agent.sb3
    )
    named = learner.shared_layout().named(learner.random_initialization(1))
    state = model.policy.state_dict()
    model.policy.load_state_dict({**state, **{name: part.clone() for name, part in named.items()}})
    if algorithm == "DQN":
        model.q_net_target.load_state_dict(model.q_net.state_dict())
    model.set_random_seed(task._seed)
    model.learn(BUDGET)
    task.close()
    return dict(model.policy.state_dict())


@pytest.mark.parametrize("share", ["encoder", "agent"])
@pytest.mark.parametrize("algorithm", GAMES)
def test_it_learns_what_the_library_learns_alone(algorithm: str, share: str) -> None:
    if (algorithm, share) == ("SAC", "agent"):
        pytest.skip("its target critic starts as the critic, which a script would set itself")
    learner = make(algorithm, share=share)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = by_the_library_alone(learner, seed=5)
    task, _, _ = learned(learner)
    ours = task.named_parameters()
    assert ours.keys() == alone.keys()
    for name, part in alone.items():
        assert torch.equal(ours[name], part), name


@pytest.mark.parametrize("encoder", ["library", "mlp"])
@pytest.mark.parametrize("share", ["encoder", "agent"])
@pytest.mark.parametrize("algorithm", GAMES)
def test_each_update_of_what_is_shared_is_seen(algorithm: str, share: str, encoder: str) -> None:
    learner = make(algorithm, share=share, encoder=encoder)
    task, points, progress = learned(learner)
    assert len(points) == UPDATES[algorithm] == progress[-1].updates
    assert torch.equal(points[0].theta, learner.random_initialization(1))
    end = task.end_point(with_grad=False)
    thetas = [*(point.theta for point in points), end.theta]
    assert not any(torch.equal(before, after) for before, after in pairwise(thetas))
    assert len({float(point.loss) for point in points}) > UPDATES[algorithm] // 2
    path = Leap(p=2).start(points[0].theta)
    for point in points:
        path.visit(point)
    path.end(end)
    assert path.gradient().isfinite().all()
    assert progress[-1].agent_steps == BUDGET
    named = learner.shared_layout().named(end.theta)
    saved = task.named_parameters()
    place = {
        "PPO": "features_extractor.encoder.",
        "A2C": "features_extractor.encoder.",
        "DQN": "q_net.features_extractor.encoder.",
        "SAC": "actor.features_extractor.encoder.",
    }[algorithm]
    prefix = place if (share, encoder) == ("encoder", "mlp") else ""
    for name, part in named.items():
        assert torch.equal(saved[prefix + name], part), name
    last = "q_net.q_net.4" if encoder == "library" else "q_net.q_net.0"
    heads = ("action_net", "value_net", last, "actor.mu", "critic.")
    assert any(name.startswith(heads) for name in named) == (share == "agent")
    assert not any(name.startswith(("q_net_target", "critic_target")) for name in named)


@pytest.mark.parametrize("share", ["encoder", "agent"])
@pytest.mark.parametrize(
    ("algorithm", "places"),
    [
        ("PPO", ("features_extractor", "vf_features_extractor")),
        ("DQN", ("q_net.features_extractor", "q_net_target.features_extractor")),
        ("SAC", tuple(f"{net}.features_extractor" for net in ("actor", "critic", "critic_target"))),
    ],
)
def test_all_copies_of_an_encoder_start_alike(
    algorithm: str, places: tuple[str, ...], share: str
) -> None:
    """SAC's critic has an encoder of its own, and PPO's value if it is asked to."""
    given = ARGUMENTS[algorithm]
    if algorithm == "PPO":
        given = {**given, "policy_kwargs": {"share_features_extractor": False}}
    learner = make(algorithm, encoder="mlp", share=share, sb3=given)
    task = learner(TaskSpec(game=GAMES[algorithm], seed=5))
    start = learner.random_initialization(1)
    task.start(start)
    saved = task.named_parameters()
    task.close()
    first, *others = places
    named = learner.shared_layout().named(start)
    prefix = f"{first}.encoder." if share == "agent" else ""
    encoder = {
        name.removeprefix(prefix): each for name, each in named.items() if name.startswith(prefix)
    }
    assert len(encoder) == 4
    for place in (first, *others):
        for name, part in encoder.items():
            assert torch.equal(saved[f"{place}.encoder.{name}"], part), place


@pytest.mark.parametrize("algorithm", ["PPO", "A2C"])
def test_a_task_is_a_function_of_its_seed(algorithm: str) -> None:
    learner = make(algorithm, normalize_observations=True)
    ends = []
    for seed in (5, 5, 6):
        torch.rand(3)  # moves the global stream
        task, points, progress = learned(learner, seed=seed)
        ends.append((task.end_point(with_grad=False).theta, points[3].grad, progress))
    assert torch.equal(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], ends[1][1])
    assert ends[0][2] == ends[1][2]
    assert not torch.equal(ends[0][0], ends[2][0])


def test_episodes_and_rewards_are_those_that_were_played() -> None:
    _, _, progress = learned(make("A2C"))
    episodes = [episode for part in progress for episode in part.episodes]
    assert len(episodes) >= 4
    assert all(e.episode_return == e.length for e in episodes)  # as in this game
    assert sum(part.rewards or 0 for part in progress) == BUDGET
    assert [part.agent_steps for part in progress] == list(range(20, BUDGET + 1, 20))


def test_statistics_of_observations_are_saved_with_the_agent() -> None:
    plain, _, _ = learned(make("PPO"))
    task, _, _ = learned(make("PPO", normalize_observations=True))
    saved = task.named_parameters()
    new = saved.keys() - plain.named_parameters().keys()
    assert new == {"observations.mean", "observations.variance"}
    assert saved["observations.mean"].shape == (4,)
    assert saved["observations.variance"].min() > 0


def test_bytes_are_learned_from_as_they_are_normalized() -> None:
    task, _, _ = learned(
        make(
            "A2C", games=(f"{own_games.MODULE}:Walk-v0@sees=numbers",), normalize_observations=True
        )
    )
    stored = task._model.rollout_buffer.observations
    assert stored.dtype == np.float32
    assert stored.min() < 0 < stored.max()
    assert not np.array_equal(stored, stored.round())


def test_the_loss_is_what_the_library_descends_and_torch_is_left_as_it_was() -> None:
    backward = Tensor.backward
    learner = make("A2C", sb3={"n_steps": 5, "vf_coef": 0.0})
    learner_of_values = make("A2C", sb3={"n_steps": 5, "vf_coef": 1000.0})
    _, plain, _ = learned(learner)
    _, scaled, _ = learned(learner_of_values)
    assert float(scaled[0].loss) > 10 * abs(float(plain[0].loss))
    assert Tensor.backward is backward


def test_numbers_that_go_bad_are_a_divergence() -> None:
    with pytest.raises(NonFiniteError):
        learned(make("A2C", sb3={"n_steps": 5, "learning_rate": 1e38, "max_grad_norm": 1e38}))


def test_a_task_that_cannot_be_learned_says_why() -> None:
    with pytest.raises(RunFailedError, match=r"makes no update in task.agent_steps = 240; give"):
        learned(make("DQN", sb3={"learning_starts": 10_000}))
    with pytest.raises(ValueError, match="sb3:DQN cannot be made: "):
        learned(make("DQN", sb3={"buffer_size": "100k"}))


def test_images_go_through_our_encoder_as_they_are() -> None:
    learner = make("A2C", games=("MinAtar/Breakout-v1",), encoder="minatar")
    task, points, _ = learned(learner)
    model = task._model
    seen = task._envs.reset() if hasattr(task._envs, "venv") else model.env.reset()
    features = model.policy.extract_features(torch.as_tensor(seen))
    ours = model.policy.features_extractor.encoder(
        torch.as_tensor(seen).permute(0, 2, 3, 1).contiguous()
    )
    assert model.observation_space.shape[0] == learner.observation_shape[-1]
    assert torch.equal(features, ours)
    assert len(points) == UPDATES["A2C"]


OPTIONS = [
    *("--task.kind", "gymnasium", "--task.games", '["CartPole-v1"]', "--task.num_envs", "4"),
    *("--task.agent_steps", "80", "--meta.batch_size", "1", "--meta.meta_steps", "2"),
]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["sb3:PPO", "--agent.sb3", '{"n_step": 5}'], "agent.sb3.n_step = 5: is no argument of"),
        (["sb3:PPO", "--agent.sb3", '{"seed": 5}'], "agent.sb3.seed = 5: is given by leap_rl"),
        (["sb3:PPO", "--agent.sb3", '{"n_steps": 0}'], "agent.sb3.n_steps = 0: must be a whole"),
        (["sb3:PPO", "--agent.sb3", '{"n_steps": true}'], "agent.sb3.n_steps = True: must be a"),
        (["sb3:PPO"], "must be a whole number of batches of task.num_envs × agent.sb3.n_steps"),
        (["sb3:A2C", "--agent.share", "convolutions"], "agent.share = convolutions: has no effect"),
        (["sb3:A2C", "--agent.gamma", "0.9"], "agent.gamma = 0.9: has no effect"),
        (["sb3:A2C", "--meta.method", "fomaml"], "computes no loss but those that it learns from"),
        (["sb3:A2C", "--meta.method", "pretraining"], "cannot be carried over"),
        (["sb3:SAC"], "learns continuous actions, and some of task.games"),
        (["sb3:TD9"], "agent.algorithm = 'sb3:TD9': must be one of"),
        (["a2c", "--agent.encoder", "library"], "agent.encoder = 'library': must be one of"),
        (
            ["sb3:A2C", "--agent.sb3", '{"policy_kwargs": {"net_arch": []}}'],
            "agent.share = encoder: the policy has no layers but its heads",
        ),
        (
            ["sb3:A2C", "--agent.sb3", '{"policy_kwargs": {"depth": 3}}'],
            "agent.sb3: sb3:A2C cannot be made: TypeError",
        ),
        (["sb3:A2C", "--agent.sb3", '{"policy_kwargs": [64]}'], "must be arguments by name"),
        (["sb3:A2C", "--agent.encoder_arguments", '{"width": 8}'], "agent.encoder_arguments = "),
        (["sb3:A2C", "--agent.initial_weights", "he"], "whose weights the library draws"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str], complaint: str, refused: Refused
) -> None:
    assert complaint in refused("train", *OPTIONS, *LOCALLY, "--agent.algorithm", *words)


def test_a_budget_is_of_the_librarys_own_batches(tmp_path: Path, refused: Refused) -> None:
    words = ["--agent.algorithm", "sb3:PPO", "--agent.sb3", '{"n_steps": 8, "batch_size": 8}']
    assert "= 32 agent steps; take 64 or 96" in refused("train", *OPTIONS, *words, *LOCALLY)
    argv = ["train", *OPTIONS, *words, *LOCALLY, "--task.agent_steps", "96"]
    assert main([*argv, "--run_dir", str(tmp_path / "run")]) == 0
    assert RunFolder(tmp_path / "run").read_state(2)["agent_steps"] == 2 * 96


@pytest.mark.parametrize(("algorithm", "batch"), [("PPO", 2048 * 16), ("DQN", 4 * 16), ("A2C", 80)])
def test_a_budget_that_is_left_open_is_of_the_librarys_batches(algorithm: str, batch: int) -> None:
    words = ["--task.kind", "gymnasium", "--task.games", "CartPole-v1", "--meta.meta_steps", "2"]
    config = resolve(parsed(TrainConfig, *words, "--agent.algorithm", f"sb3:{algorithm}"))
    assert config.task.agent_steps == round(100_000 / batch) * batch
    assert config.task.unroll_length == 5, "which another algorithm may take over"


@pytest.mark.parametrize("encoder", ["library", f"{loops.MODULE}:odd"])
def test_bytes_that_are_vectors_come_scaled(encoder: str) -> None:
    task = TaskConfig(
        kind="gymnasium", games=["FrozenLake-v1"], agent_steps=32, num_envs=2, unroll_length=4
    )
    agent = AgentConfig(algorithm="sb3:PPO", sb3={"n_steps": 8, "batch_size": 8}, encoder=encoder)
    learner = make_learner(task=task, agent=agent)
    made, points, _ = learned(learner, game="FrozenLake-v1")
    assert len(points) > 1
    seen = made._model.rollout_buffer.observations
    assert seen.dtype == np.float32
    assert set(np.unique(seen)) == {0.0, 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["A2C", "PPO"])
def test_a_trainer_that_is_killed_costs_its_task_alone_and_no_bit(
    algorithm: str, tmp_path: Path
) -> None:
    words = [*OPTIONS, "--agent.algorithm", f"sb3:{algorithm}"]
    words += ["--agent.sb3", json.dumps({"n_steps": 5}), "--tracking.tensorboard", "false"]
    assert main(["train", *words, *LOCALLY, "--run_dir", str(tmp_path / "calm")]) == 0

    faults = FaultInjector(str(tmp_path), {FaultPoint.TRAINER_TRAINING: [3, 7]})
    write_plan(faults, tmp_path / "plan.json")
    process = start(
        *("train", *words, "--runtime.trainers", "1", "--run_dir", "run"),
        cwd=tmp_path,
        env={**os.environ, PLAN_VARIABLE: str(tmp_path / "plan.json")},
    )
    _, error = process.communicate(timeout=250)
    assert process.returncode == 0, error
    assert len(fired_of(faults)) == 2
    attempts = [
        slot["attempt"]
        for number in (1, 2)
        for slot in RunFolder(tmp_path / "run").read_state(number)["slots"]
    ]
    assert sum(attempts) == 4, "two tasks, and each failure learns one again"
    assert initializations(tmp_path / "run") == initializations(tmp_path / "calm")


def run_words(algorithm: str, **arguments: Any) -> list[str]:
    given = {"n_steps": 10, "batch_size": 20, "n_epochs": 2, **arguments}
    return ["--agent.algorithm", f"sb3:{algorithm}", "--agent.sb3", json.dumps(given), *LOCALLY]


LOADS = """
import sys
import stable_baselines3
model = stable_baselines3.PPO("MlpPolicy", "CartPole-v1", device="cpu")
from safetensors.torch import load_file
start = load_file("FOLDER/initialization.safetensors")
found = model.policy.load_state_dict(start, strict=False)
assert not found.unexpected_keys, "the model has another network"
assert not any(name.startswith("leap_rl") for name in sys.modules)
stable_baselines3.common.utils  # nothing else is needed
import torch
torch.save(model.policy.state_dict(), "loaded.pt")
"""


def test_a_meta_trained_start_is_learned_from_and_loads_in_the_library_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    assert main(["train", *OPTIONS, *run_words("PPO"), "--run_dir", str(run)]) == 0
    first, last = (
        load_file(run / f"checkpoints/{number:06}/initialization.safetensors") for number in (0, 2)
    )
    assert first.keys() == last.keys()
    assert not any(torch.equal(first[name], last[name]) for name in first)
    tasks = OPTIONS[: OPTIONS.index("--meta.batch_size")]
    words = [*tasks, *run_words("PPO"), "--init", str(run)]
    assert main(["learn", *words, "--run_dir", str(tmp_path / "learned")]) == 0
    evaluation = [*words, "--seeds", "2", "--run_dir", str(tmp_path / "evaluated")]
    assert main(["evaluate", *evaluation]) == 0

    folder = tmp_path / "FOLDER"
    assert main(["export", str(run), "--out", str(folder)]) == 0
    card = (folder / "README.md").read_text()
    assert "_target" not in card
    known = read_card(folder)
    for name, follows in (("DQN", "q_net"), ("SAC", "critic")):
        line = f"model.{follows}_target.load_state_dict(model.{follows}.state_dict())\n```"
        assert line in write_card(known, algorithm=f"sb3:{name}")
    lines = LOADS.strip().splitlines()[3:7]
    assert "\n".join(lines) in card
    assert 'model = PPO("MlpPolicy", env)' in card
    process = start(cwd=tmp_path, program=("-c", LOADS), env={**os.environ, "PYTHONPATH": ""})
    _, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    loaded = torch.load(tmp_path / "loaded.pt", weights_only=True)
    for name, part in last.items():
        assert torch.equal(loaded[name], part)
    assert last.keys() < loaded.keys()
    assert main(["learn", *words[:-1], str(folder), "--run_dir", str(tmp_path / "again")]) == 0
    to_onnx = refused("export", str(run), "--out", str(tmp_path / "onnx"), "--to", "onnx")
    assert "agent.encoder = library, the network of sb3:PPO" in to_onnx
    with pytest.raises(ValueError, match=r"a network of its library's own .* shows how the lib"):
        leap_rl.load_encoder(run)


@pytest.mark.parametrize("encoder", ["library", "mlp"])
def test_a_whole_agents_file_starts_whole_agents_and_bodies_alone(
    encoder: str, tmp_path: Path
) -> None:
    words = [*run_words("PPO"), "--agent.encoder", encoder]
    run = tmp_path / "run"
    whole = ["--agent.share", "agent", "--run_dir", str(run)]
    assert main(["train", *OPTIONS, *words, *whole]) == 0
    tasks = OPTIONS[: OPTIONS.index("--meta.batch_size")]
    for share in ("agent", "encoder"):
        learn = ["--agent.share", share, "--init", str(run), "--run_dir", str(tmp_path / share)]
        assert main(["learn", *tasks, *words, *learn]) == 0


def test_arms_of_one_agent_that_goes_on_learn_whole_tasks() -> None:
    given = {
        "games": ["CartPole-v1", "CartPole-v1@sutton_barto_reward=true"],
        "also_seen": "true",
        "arms": "[domain_randomised, nearest, reptile]",
        "task.agent_steps": 80,
        "task.num_envs": 4,
        "meta.meta_steps": 3,
        "agent.algorithm": "sb3:A2C",
    }
    study = configure(take_out(words_of(given))[0])
    arms = {name: study.arm(name) for name in ("domain_randomised", "nearest", "reptile")}
    total = 3 * 2 * 80
    for name, agent_steps in (("domain_randomised", total), ("nearest", total // 2)):
        arm = arms[name]
        assert (arm.meta.method, arm.meta.outer, arm.meta.meta_steps) == ("reptile", ("sgd", 1), 1)
        assert (arm.meta.batch_size, arm.task.agent_steps) == (1, agent_steps)
        assert arm.agent.share == "agent"
    assert (arms["reptile"].task.agent_steps, arms["reptile"].meta.meta_steps) == (80, 3)
    given["arms"] = "[pretraining]"
    with pytest.raises(ValueError, match=r"arms\.pretraining: .* cannot be carried over"):
        configure(take_out(words_of(given))[0]).arm("pretraining")
