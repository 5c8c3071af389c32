"""A script's own loop as a task: watched, counted, and refused in one line that names it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

import leap_rl
from leap_rl.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, main
from leap_rl.cli.study import take_out
from leap_rl.core.errors import RunFailedError
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.meta import Leap, NoMethod, NonFiniteError
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.studies.config import configure
from leap_rl.tasks.config import TaskConfig
from leap_rl.tracking.live import read_live
from tests.commands import LOCALLY, QUIET, Refused, start, wait_until
from tests.end_to_end.whole_runs import initializations, stopped_after
from tests.learners import loops
from tests.learners.whole_task import learned
from tests.training.test_runtime_ray import children

ROOT = Path(__file__).parents[2]
GAME = "CartPole-v1"
BUDGET = 160


def make(name: str = "learn", *, games: tuple[str, ...] = (GAME,), **agent: Any) -> Learner:
    task = TaskConfig(
        kind="gymnasium",
        games=list(games),
        mix_games=len(games) > 1,
        agent_steps=BUDGET,
        num_envs=4,
        unroll_length=5,
    )
    given = {"encoder": f"{loops.MODULE}:odd", **agent}
    return make_learner(task=task, agent=AgentConfig(algorithm=f"{loops.MODULE}:{name}", **given))


def test_each_update_is_seen_at_its_place_in_the_vector() -> None:
    learner = make()
    task, points, progress = learned(learner)
    layout = learner.shared_layout()
    assert layout.size > sum(part.numel() for part in task._encoder.parameters())
    assert torch.equal(points[0].theta, learner.random_initialization(1))
    assert [part.updates for part in progress] == list(range(1, BUDGET // 16 + 1))
    assert len(points) == len(loops.SEEN) == len(progress)
    for point, (theta, grad, loss) in zip(points, loops.SEEN, strict=True):
        for vector, expected in ((point.theta, theta), (point.grad, grad)):
            named = layout.named(vector).values()
            assert torch.equal(torch.cat([part.reshape(-1) for part in named]), expected)
        assert float(point.loss) == loss
    assert [part.losses["total"] for part in progress] == [loss for *_, loss in loops.SEEN]
    end = task.end_point(with_grad=False)
    assert not torch.equal(end.theta, points[-1].theta)
    assert float(end.loss) == loops.SEEN[-1][-1]
    views = layout.named(end.theta)
    saved = task.named_parameters()
    assert torch.equal(saved["0.first.weight"], views["first.weight"])  # of what it returned
    assert saved["1.weight"].shape == (2, 3)


def test_between_two_calls_it_stands_still() -> None:
    learner = make()
    task = learner(TaskSpec(game=GAME, seed=5))
    task.start(learner.random_initialization(1))
    for number in (1, 2, 3):
        task.advance(lambda point: None)
        assert len(loops.SEEN) in (number, number + 1)  # it may have come to the next step's hook
        threads = [one for one in threading.enumerate() if one.name == "script"]
        assert len(threads) == 1
    task.close()
    assert not any(one.name == "script" for one in threading.enumerate())
    assert len(loops.SEEN) == 4  # it left where it was


@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
@pytest.mark.parametrize("option", ["seeded", "explores"])
@pytest.mark.parametrize("given", [True, False])
def test_a_task_is_a_function_of_its_seed(mode: str, option: str, given: bool) -> None:
    learner = make(options={"mode": mode, option: given})
    ends = []
    for seed in (5, 5, 6):
        torch.rand(3)  # moves the global stream
        task, points, progress = learned(learner, seed=seed)
        path = Leap(metric="optimizer", task_unit=True).start(points[0].theta)
        for point in points:
            path.visit(point)
        path.end(task.end_point(with_grad=False))
        ends.append((path.gradient(), progress))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]
    assert not torch.equal(ends[0][0], ends[2][0])


@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
def test_episodes_are_those_that_it_told_and_rewards_those_that_it_got(mode: str) -> None:
    _, _, progress = learned(make(options={"mode": mode}))
    episodes = [episode for part in progress for episode in part.episodes]
    assert len(episodes) > 3
    assert all(e.episode_return == e.length for e in episodes)  # as in this game
    assert all(a.agent_steps <= b.agent_steps for a, b in pairwise(episodes))
    total = sum(part.rewards or 0 for part in progress)
    assert sum(e.episode_return for e in episodes) <= total <= BUDGET
    assert (total == BUDGET) == (mode == "SAME_STEP")  # in the other, some calls are no steps
    assert progress[-1].agent_steps == BUDGET


def test_several_optimizers_make_one_point_a_round() -> None:
    task, points, progress = learned(make("learn_by_two"))
    assert len(points) == len(progress) == BUDGET
    assert all(not torch.equal(a.theta, b.theta) for a, b in pairwise(points))
    assert task.end_point(with_grad=False).theta.isfinite().all()


def test_mixed_games_are_dealt_over_its_environments() -> None:
    games = (GAME, "leap_rl/CartPole-v1@length=1.0")
    learner = make(games=games)
    task: Any = learner(TaskSpec(game="mixed", seed=5))
    task.start(learner.random_initialization(1))
    task.advance(lambda point: None)
    assert [env._envs._parts[0].game for env in task._envs] == [0, 1]
    task.close()
    more = make(games=(*games, "leap_rl/CartPole-v1@length=2.0"))
    with pytest.raises(
        RunFailedError, match=r"makes no environment of .*length=2.0: task.mix_games"
    ):
        learned(more, game="mixed")


def test_a_machine_without_its_module_is_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make()
    learner.check_machine()
    monkeypatch.setitem(sys.modules, loops.MODULE, None)
    with pytest.raises(ValueError, match=rf"{loops.MODULE}:learn: cannot be imported here \(Modu"):
        learner.check_machine()


def test_an_encoder_of_ours_says_how_many_features_it_has_too() -> None:
    task, *_ = learned(make(encoder="mlp"))
    assert task.named_parameters()["1.weight"].shape == (2, 64)


class Torchvisions(torch.nn.Sequential):
    def __init__(self, observation_shape: tuple[int, ...]) -> None:
        super().__init__(torch.nn.Linear(observation_shape[0], 3))
        self.features = torch.nn.ReLU()


def test_an_encoders_own_features_are_no_number() -> None:
    learner = make(encoder=f"{__name__}:Torchvisions")
    with pytest.raises(ValueError, match=r"its attribute features is a ReLU, and a loop's"):
        learner(TaskSpec(game=GAME, seed=5))


WRONG = {
    "overruns": "takes more agent steps than its budget, 160",
    "underruns": "ends after 80 of 160 agent steps",
    "returns_a_number": "returns float; must return None, or a torch.nn.Module",
    "raises": r"raises ZeroDivisionError: of its own \(loops.py, line \d+\)$",
    "exits": "raises SystemExit: 3",
    "watches_nothing": "no step of the encoder's optimizer was seen",
    "watches_another": "report.watch: optimizer 0: steps none of parameters",
    "watches_twice": "calls report.watch twice",
    "draws_again": "changes the encoder before the first step",
    "counts_frames": r"report\(40, 1, 10\): 10 of 160 agent steps are played by then",
    "tells_beyond": r"report\(161, 1, 10\): is beyond the budget of 160 agent steps; play as many",
    "goes_back": r"report\(5, 1, 5\): the call before was at agent step 10",
    "tells_too_much": r"report\(10, 1e\+308, 5\): must be",
    "raises_what_cannot_be_said": "raises MuteError: its message cannot be shown",
    "tells_nan": r"report\(10, nan, 5\): must be",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_learning_is_one_line_that_names_it(name: str) -> None:
    with pytest.raises(
        RunFailedError, match=f"^agent.algorithm = {loops.MODULE}:{name}: {WRONG[name]}"
    ):
        learned(make(name))
    assert not any(one.name == "script" for one in threading.enumerate())


def test_what_is_not_finite_names_it() -> None:
    learner = make("diverges")
    theta0 = learner.random_initialization(1)
    task = learner(TaskSpec(game=GAME, seed=5))
    task.start(theta0)
    path = NoMethod().start(theta0)
    with pytest.raises(NonFiniteError, match=f"^{loops.MODULE}:diverges: loss .*nan"):
        task.advance(path.visit)


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("too_few", {}, r"is called with make_env, .*report, .*too many positional"),
        ("learn", {"rate": 1}, r".*agent.options = \{'rate': 1\} by name: .*'rate'"),
    ],
)
def test_a_function_that_cannot_be_called_so_is_refused(
    name: str, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=f"{loops.MODULE}:{name}: {complaint}"):
        make(name, options=options).resolved_agent()


ARGV = ["train", "--task.kind", "gymnasium", "--task.games", f'["{GAME}"]', *LOCALLY]
ARGV += ["--task.agent_steps", str(BUDGET), "--task.num_envs", "4", "--task.unroll_length", "5"]
ARGV += ["--meta.meta_steps", "2", "--meta.batch_size", "2"]


def script(name: str) -> list[str]:
    return ["--agent.algorithm", f"{loops.MODULE}:{name}", "--trust_imports"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["--meta.method", "fomaml"],
            f"meta.method = fomaml: agent.algorithm = {loops.MODULE}:learn",
        ),
        (["--meta.loss_difference", "same_batch"], "meta.loss_difference = same_batch: agent."),
        (["--meta.method", "pretraining", "--meta.batch_size", "1"], "cannot be carried over"),
        (["--meta.method", "maml"], "meta.method = maml: differentiates"),
        (
            ["--agent.lr", "0.1"],
            f"agent.lr = 0.1: has no effect with agent.algorithm = {loops.MODULE}:",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(words: list[str], complaint: str, refused: Refused) -> None:
    assert complaint in refused(*ARGV, *script("learn"), *words)


def test_importing_it_must_be_trusted(refused: Refused) -> None:
    said = refused(*ARGV, *script("learn")[:-1])
    assert "agent.algorithm: names the module tests.learners.loops" in said


@pytest.mark.parametrize(
    "words",
    [
        ["--agent.algorithm", "exits_at_once:learn"],
        ["--agent.encoder", "exits_at_once:Encoder"],
        ["--task.games", '["exits_at_once:Maze-v0"]'],
    ],
    ids=lambda words: words[0],
)
def test_a_module_that_exits_when_it_is_imported_is_one_line(
    words: list[str], tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exits_at_once.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    line = refused(*ARGV, *words, "--trust_imports", "--run_dir", tmp_path / "run")
    assert "exits_at_once" in line
    assert "SystemExit: 0" in line


@pytest.mark.parametrize("name", ["raises", "diverges"])
def test_a_run_says_in_one_line_what_went_wrong(
    name: str, tmp_path: Path, refused: Refused
) -> None:
    words = [*ARGV, *script(name), "--run_dir", tmp_path / "run"]
    assert f"{loops.MODULE}:{name}: " in refused(*words, status=EXIT_FAILED)


@pytest.mark.parametrize("method", ["leap", "reptile"])
def test_a_stopped_run_learns_its_task_again_to_the_same_bits(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [*ARGV, *script("learn"), "--meta.method", method]
    argv += ["--runtime.stream_every_s", "0.001", "--runtime.snapshot_every_s", "0.001"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert main([*argv, "--run_dir", str(whole)]) == 0
    with stopped_after(1):
        assert main([*argv, "--run_dir", str(stopped)]) == EXIT_INTERRUPTED
    assert main(["watch", str(stopped)]) == 0
    assert main([*argv, "--run_dir", str(stopped)]) == EXIT_USAGE
    captured = capsys.readouterr()
    said, command = captured.out + captured.err, f"resume {stopped} --trust_imports"
    assert said.count(command) == said.count(f"resume {stopped}") == 2, "as they are to be copied"
    assert not list(stopped.glob("slots/*/*.snapshot"))
    assert main(["resume", str(stopped), "--trust_imports"]) == 0
    assert initializations(stopped) == initializations(whole)
    assert len(set(initializations(whole))) == 3
    assert RunFolder(whole).read_config()["agent"]["algorithm"] == f"{loops.MODULE}:learn"


POLES = ["study", "--games", "CartPole-v1", "leap_rl/CartPole-v1@gravity=5.0", "--held_out"]
POLES += ["leap_rl/CartPole-v1@gravity=20.0", "--runs", "1", "--agents", "2", *script("learn")]
POLES += ["--random_agents", "2", "--meta.meta_steps", "2", "--task.agent_steps", "160"]
POLES += ["--task.num_envs", "4"]


def test_an_arm_that_goes_on_is_one_whole_learning_of_its_encoder() -> None:
    words = [word for word in POLES[1:] if word != "--trust_imports"]
    argv, _ = take_out([*words, "--arms", "domain_randomised", "nearest"])
    study = configure(argv, trusts_imports=True)
    mixed, one = (study.arm(name, trusts_imports=True) for name in study.trained_arms)
    assert (mixed.meta.method, mixed.meta.meta_steps, mixed.agent.share) == (
        "reptile",
        1,
        "encoder",
    )
    assert (mixed.task.agent_steps, one.task.agent_steps) == (640, 320)
    assert mixed.task.mix_games


@pytest.mark.parametrize(
    ("arm", "complaint"),
    [
        ("fomaml", "arms.fomaml: meta.method = fomaml: agent.algorithm = tests."),
        ("pretraining", "arms.pretraining: meta.method = pretraining: agents of agent.algorithm"),
        ("leap_agent", "arms.leap_agent: agent.share = agent: has no effect with agent.algorithm"),
    ],
)
def test_an_arm_that_asks_for_more_is_refused(
    arm: str, complaint: str, tmp_path: Path, refused: Refused
) -> None:
    assert complaint in refused(*POLES, "--arms", arm, "--out", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_study_of_all_other_arms_has_an_answer(tmp_path: Path) -> None:
    arms = ["leap", "leap_eq8", "reptile", "pretraining_resets", "domain_randomised", "nearest"]
    assert main([*POLES, "--arms", *arms, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "estimates.json").read_text())
    assert {row["arm"] for row in found["rows"]} == set(arms)
    assert found["answer"]


SIDES = '["MinAtar/Breakout-v1", "MinAtar/Breakout-v1@orientation=1"]'
PPO = ["--agent.algorithm", "ppo_loop:learn", "--agent.encoder", "minatar", "--trust_imports"]
PPO += ["--agent.options", '{"num_envs": 4, "num_steps": 16, "epochs": 1}']


def test_ppo_as_cleanrl_writes_it_is_meta_trained_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    small = ["--task.kind", "gymnasium", "--task.gymnasium.minatar", "palette", *LOCALLY]
    small += ["--task.num_envs", "4", "--task.unroll_length", "16"]
    run, found, exported = (tmp_path / name for name in ("run", "found", "exported"))
    meta = ["--meta.meta_steps", "2", "--meta.batch_size", "2", "--task.agent_steps", "192"]
    assert main(["train", *small, *PPO, *meta, "--task.games", SIDES, "--run_dir", str(run)]) == 0
    assert len(set(initializations(run))) == 3
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["agent_steps"] for row in rows if "agent_steps" in row] == [384, 768]
    agents = ["--agent_steps", "192", "--seeds", "2", "--games", SIDES]
    words = ["evaluate", "--init", str(run), *agents, "--trust_imports", *LOCALLY]
    assert main([*words, "--run_dir", str(found)]) == 0
    capsys.readouterr()
    assert main(["export", str(run), "--out", str(exported)]) == 0
    encoder = leap_rl.load_encoder(exported)  # which knows of no script
    start = load_file(RunFolder(run).checkpoint(2) / INITIALIZATION)
    assert all(torch.equal(part, start[name]) for name, part in encoder.state_dict().items())


@pytest.mark.slow
def test_a_killed_trainers_task_alone_is_learned_again_to_the_same_bits(tmp_path: Path) -> None:
    argv = [*ARGV[:5], *script("learn"), "--task.agent_steps", "1600", *ARGV[-4:], *QUIET]
    argv += ["--agent.options", '{"pause_s": 0.05}', "--task.num_envs", "4"]
    calm, killed = RunFolder(tmp_path / "calm"), RunFolder(tmp_path / "killed")
    assert main([*argv, "--runtime.kind", "local", "--run_dir", str(calm.path)]) == 0
    words = [*argv, "--runtime.kind", "ray", "--runtime.trainers", "1", "--run_dir", killed.path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    process = start(*words, cwd=tmp_path, env=environment)

    def trainers() -> list[int]:
        return [pid for pid, line in children(process.pid).items() if "ray::TrainerActor" in line]

    def agent_steps() -> int:
        live = read_live(killed.path)
        return max((task.agent_steps for task in live.status.running), default=0) if live else 0

    second = killed.slot(0, 1).with_suffix(".lease")
    wait_until(lambda: second.exists() and 200 < agent_steps() < 1000, process)
    os.kill(trainers()[0], signal.SIGKILL)
    _, err = process.communicate()
    assert process.returncode == 0, err
    attempts = [[slot["attempt"] for slot in killed.read_state(n)["slots"]] for n in (1, 2)]
    assert attempts == [[1, 2], [1, 1]]
    assert initializations(killed.path) == initializations(calm.path)
    one, other = (pq.read_table(run.curves(0)).to_pydict() for run in (calm, killed))
    assert one == other
