"""Agents in a user's own VectorEnv: budget, loss, snapshots, and what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from leap_rl.cli import EXIT_INTERRUPTED, main
from leap_rl.envs.vector import EpisodeEnd, VectorStep
from leap_rl.evaluation.results import read_evaluation
from leap_rl.learners.a2c.loss import Targets
from leap_rl.learners.a2c.task import ActorCriticTask
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.registry import make_game_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.meta.gradient_path import Point
from leap_rl.networks.actor_critic import Outputs
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tasks.config import TaskConfig
from leap_rl.tracking.jsonl import read_rows
from tests.commands import LOCALLY, Refused
from tests.end_to_end.whole_runs import initializations, stopped_after
from tests.envs.own_games import WALK
from tests.envs.own_vectors import LIFTS, MODULE, WALKS
from tests.learners.literal_loss import literal_loss

SAVED = f"{MODULE}:SavedLifts-v0"
T, B = 5, 4
GAMMA, C_V, C_E, CLIP = 0.9, 0.5, 0.02, 2.0
AGENT: dict[str, Any] = {
    "gamma": GAMMA,
    "value_coefficient": C_V,
    "entropy_coefficient": C_E,
    "reward_clip": CLIP,
}


def started(game: str, *, budget: int = 1000, seed: int = 0, **agent: Any) -> ActorCriticTask:
    task = TaskConfig(
        kind="gymnasium", games=[game], agent_steps=budget, num_envs=B, unroll_length=T
    )
    learner = make_game_learner(task=task, agent=AgentConfig(**{**AGENT, **agent}))
    made = cast(ActorCriticTask, learner(TaskSpec(game=task.resolved_games[0], seed=seed)))
    made.start(learner.random_initialization(1))
    return made


def nothing(point: Point) -> None:
    pass


def whole(task: ActorCriticTask) -> tuple[list[EpisodeEnd], list[int]]:
    """Use the budget up; return the episodes, and the agent steps after each update."""
    episodes, counts = [], []
    while not task.done:
        progress = task.advance(nothing)
        episodes += progress.episodes
        counts.append(progress.agent_steps)
    return episodes, counts


def test_the_budget_is_of_actions_that_were_taken() -> None:
    played = {}
    for mode in ("NEXT_STEP", "SAME_STEP"):
        task = started(f"{WALKS}@mode={mode},terminates=3,truncates=50")
        episodes, counts = whole(task)
        played[mode] = len(counts)
        assert counts == sorted(counts)
        assert counts[-1] == task.agent_steps_total == 1000
        assert {end.length for end in episodes} == {3}
        assert [end.agent_steps for end in episodes] == [
            3 * B * (1 + n // B) for n in range(len(episodes))
        ]
        assert len(episodes) == B * (1000 // (3 * B))
    # Every fourth action is ignored: 15 agent steps an update.
    assert played == {"NEXT_STEP": 67, "SAME_STEP": 50}


def test_episodes_and_rewards_beyond_the_budget_are_not_told() -> None:
    task = started(f"{WALKS}@terminates=3", budget=20)
    told = [task.advance(nothing) for _ in range(2)]
    assert task.done
    assert [each.agent_steps for each in told] == [16, 20]
    # Updates of 16 and of 12 + ... agent steps; the second one's first step uses the budget up.
    assert [len(each.episodes) for each in told] == [B, 0]


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("ends", ["terminates=2", "truncates=3", "terminates=3,truncates=3"])
@pytest.mark.parametrize("normalize", [False, True])
def test_loss_and_gradient_are_the_literal_ones_over_the_actions_that_were_taken(
    ends: str, continuous: bool, normalize: bool
) -> None:
    game = f"{WALKS}@continuous={str(continuous).lower()},{ends}"
    task = started(game, precision="float32", normalize_observations=normalize)
    for _ in range(3):  # so that an unroll begins within an episode
        task.advance(nothing)
    seen: list[Tensor] = []
    actions: list[Tensor] = []
    steps: list[VectorStep] = []
    act, step = task.learner.act, task.envs.step

    def acting(observations: Tensor) -> Tensor:
        seen.append(observations)
        actions.append(act(observations))
        return actions[-1]

    def stepping(taken: Any) -> VectorStep:
        steps.append(step(taken))
        return steps[-1]

    task.learner.act, task.envs.step = acting, stepping  # type: ignore[method-assign]
    network = copy.deepcopy(task.learner.network)
    loss, _, _, _ = task._unroll()
    gradient = task.learner.backward()

    def values(observations: Tensor) -> Tensor:
        return cast(Tensor, network(observations)[1]).detach().double()

    after = values(torch.from_numpy(steps[-1].observations))
    rows: list[tuple[Tensor, Tensor, Tensor]] = []  # what was seen, done, and its return
    for b in range(B):
        following = after[b]
        for t in reversed(range(T)):
            assert steps[t].ignored is not None
            if steps[t].ignored[b]:
                continue
            if steps[t].terminated[b]:
                following = torch.zeros((), dtype=torch.float64)
            elif steps[t].truncated[b]:
                following = values(torch.from_numpy(steps[t].observations[b : b + 1]))[0]
            following = float(np.clip(steps[t].rewards[b], -CLIP, CLIP)) + GAMMA * following
            rows.append((seen[t][b], actions[t][b], following))
    assert T * B // 2 < len(rows) < T * B
    logits, predicted = map(Tensor.double, network(torch.stack([row[0] for row in rows])))
    returns = torch.stack([row[2] for row in rows])
    literal = literal_loss(
        Outputs(logits, predicted),
        Targets(torch.stack([row[1] for row in rows]), returns, returns - predicted.detach()),
        value_coefficient=C_V,
        entropy_coefficient=C_E,
    )
    for own, exactly in zip(loss, literal, strict=True):
        assert own.item() == pytest.approx(exactly.item(), rel=1e-4)
    grads = torch.autograd.grad(literal.total, list(network.encoder.parameters()))
    expected = torch.cat([each.flatten() for each in grads]).double()
    leaves = [leaf for leaf in task.learner.flat.layout.leaves if leaf.name.startswith("encoder.")]
    own = torch.cat([gradient[leaf.offset : leaf.stop] for leaf in leaves]).double()
    assert expected.norm() > 1e-3
    torch.testing.assert_close(own, expected, rtol=1e-3, atol=1e-5 * float(expected.norm()))


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_snapshot_is_restored_to_the_same_bits(mode: str, at: int) -> None:
    game = f"{SAVED}@mode={mode}"
    calm, stopped, again = (started(game) for _ in range(3))
    for _ in range(at):
        stopped.advance(nothing)
    again.restore(stopped.state())
    for _ in range(at):
        calm.advance(nothing)
    assert whole(again) == whole(calm)
    assert torch.equal(again.learner.flat.vector, calm.learner.flat.vector)


SMALL = ["--task.kind", "gymnasium", "--task.num_envs", "4", "--task.agent_steps", "100"]
TRAIN = [*SMALL, "--meta.meta_steps", "2", "--meta.batch_size", "2", "--trust_imports"]
OFTEN = ["--runtime.stream_every_s", "0.001", "--runtime.snapshot_every_s", "0.001"]


def train(run: Path, *games: str) -> int:
    named = ",".join(f'"{game}"' for game in games)
    return main(
        ["train", *TRAIN, *OFTEN, "--task.games", f"[{named}]", *LOCALLY, "--run_dir", str(run)]
    )


@pytest.mark.parametrize("restorable", [True, False])
def test_a_stopped_run_comes_to_the_same_bits_with_and_without_snapshots(
    restorable: bool, tmp_path: Path
) -> None:
    game = SAVED if restorable else LIFTS
    whole_run, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert train(whole_run, game) == 0
    with stopped_after(1):
        assert train(stopped, game) == EXIT_INTERRUPTED
    assert bool(list(stopped.glob("slots/*/*.snapshot"))) == restorable
    assert main(["resume", str(stopped), "--trust_imports"]) == 0
    assert initializations(stopped) == initializations(whole_run)


PLAIN = f"{WALK}@terminates=7"
PRETRAINING = ["--meta.method", "pretraining", "--meta.batch_size", "1"]
REINFORCE = ["--agent.algorithm", "leap_reinforce:Reinforce"]


@pytest.mark.parametrize(
    ("game", "words", "message"),
    [
        (LIFTS, PRETRAINING, "'tests.envs.own_vectors:Lifts-v0' of task.games has no snapshots"),
        (LIFTS, ["--task.unroll_length", "1"], "task.unroll_length = 1: all actions of an update"),
        (LIFTS, ["--runtime.env_processes", "2"], "runtime.env_processes = 2: has no effect on"),
        (LIFTS, ["--task.mix_games", "true"], "task.mix_games = true: is for single environments"),
        (LIFTS, ["--task.gymnasium.remake", "true"], "task.gymnasium.remake = true: is for single"),
        (
            PLAIN,
            [*REINFORCE, "--validation.every_meta_steps=1", f"--validation.games=['{WALKS}']"],
            "of validation.games ignores those after an end",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    game: str,
    words: list[str],
    message: str,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples/reinforce")
    argv = ["train", *TRAIN, "--task.games", f'["{game}"]', *LOCALLY]
    assert message in refused(*argv, "--run_dir", str(tmp_path / "run"), *words)


def test_single_environments_and_vectors_are_members_of_one_run(tmp_path: Path) -> None:
    games = [f"{WALK}@terminates=7,sees=table", f"{WALKS}@terminates=5,sees=table"]
    assert train(tmp_path / "run", *games) == 0
    # Agents whose updates differ in length, as actions are ignored at other times.
    members = [f"{WALKS}@mode=NEXT_STEP,terminates={ends},sees=table" for ends in (3, 9)]
    evaluate = ["evaluate", "--init", str(tmp_path / "run"), "--games", json.dumps(members)]
    evaluate += ["--seeds", "2", "--agent_steps", "1000", "--trust_imports", *LOCALLY]
    assert main([*evaluate, "--run_dir", str(tmp_path / "evaluation")]) == 0
    results = read_evaluation(RunFolder(tmp_path / "evaluation"))
    lengths = {curve.game: len(set(curve.interval_ends)) for curve in results.curves}
    assert len(set(lengths.values())) == 2
    assert all(curve.interval_ends[-1] == 1000 for curve in results.curves)
    rows = read_rows(tmp_path / "evaluation/metrics.jsonl")
    assert [row["agent_steps"] for row in rows] == sorted({row["agent_steps"] for row in rows})
