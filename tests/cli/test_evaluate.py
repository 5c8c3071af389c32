"""Initializations are compared by what agents learn from them: whole evaluations of small games."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from leap_rl.cli import EXIT_INTERRUPTED, EXIT_USAGE, main
from leap_rl.cli.evaluate import take_inits
from leap_rl.core.parsing import options_given
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.evaluation.comparison import read_summary
from leap_rl.evaluation.results import LearningCurve, read_evaluation
from leap_rl.learners.task import TaskSpec
from leap_rl.runs.config import EvaluateConfig
from leap_rl.runs.evaluation import configure, warnings_of
from leap_rl.runs.header import read_run
from leap_rl.runs.initializations import find_group
from leap_rl.runs.kinds import EVALUATING, make_tasks
from leap_rl.sharing.initialization import load_tensors, save_tensors
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tasks.config import TaskConfig
from leap_rl.tracking.jsonl import read_rows
from leap_rl.training.rounds.evaluation_slots import RANDOM
from leap_rl.training.trainer.recorder import TaskRecorder
from tests.commands import CATCH, LOCALLY, META, QUIET, Refused, undisturbed
from tests.end_to_end.whole_runs import stopped_after

pytestmark = pytest.mark.usefixtures("without_plots")

GAMES = ["--games", '["catch", "catch_dark"]']


def train(run: Path, *options: str) -> Path:
    return undisturbed(run, *CATCH, *META, *QUIET, *options).path


@pytest.fixture(scope="module")
def unlike(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose agents learn otherwise."""
    short = ["--task.agent_steps", "40", "--meta.meta_steps", "1", "--meta.batch_size", "1"]
    other = ["--agent.encoder", "nature", "--agent.lr", "0.5"]
    return train(tmp_path_factory.mktemp("runs") / "unlike", *short, *other)


def test_inits_may_be_appended_as_the_help_offers_it() -> None:
    words = ["--init", "a", "--init+", "b", "--init+=c", "--seeds", "2"]
    assert take_inits(words) == (["a", "b", "c"], ["--seeds", "2"])
    with pytest.raises(ValueError, match="name a run"):
        take_inits(["--init+"])
    with pytest.raises(ValueError, match="--no_random=true: takes no value; say --no_random alone"):
        take_inits(["--init", "a", "--no_random=true"])


def evaluate(*argv: str | Path, runtime: list[str] = LOCALLY) -> int:
    games = [] if "--games" in argv else GAMES
    return main(["evaluate", *games, "--seeds", "2", *runtime, *map(str, argv)])


@pytest.fixture(scope="module")
def evaluated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluations") / "one"
    assert evaluate("--init", trained, "--init", f"{trained}@1", "--out", out) == 0
    return out


def config_of(out: Path) -> EvaluateConfig:
    config = read_run(RunFolder(out)).config
    assert isinstance(config, EvaluateConfig)
    return config


def same(one: LearningCurve, other: LearningCurve) -> bool:
    columns = ("interval_ends", "rewards", "agent_steps", "returns")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)


@pytest.mark.slow
def test_every_agent_learns_as_it_would_alone(evaluated: Path, trained: Path) -> None:
    config, evaluation = config_of(evaluated), read_evaluation(RunFolder(evaluated))
    tasks = make_tasks(config)
    plan = EVALUATING.plan(config)(RunFolder(evaluated))
    files, _ = RunFolder(trained).read_checkpoint(1)
    assert evaluation.initializations == (RANDOM, "mine@2", "mine@1")
    assert evaluation.complete
    assert len(evaluation.curves) == 3 * 2 * 2
    for curve in evaluation.curves:
        own = derive_seed(0, Purpose.TASK, "evaluation", curve.game, curve.seed)
        task = tasks(TaskSpec(game=curve.game, seed=own))
        start = {"mine@2": 0, "mine@1": 1, RANDOM: 2 + curve.seed}[curve.initialization]
        theta0 = torch.from_numpy(plan.theta0(start))
        if curve.initialization == "mine@1":
            assert save_tensors(tasks.shared_layout().named(theta0)) == files[INITIALIZATION]
        task.start(theta0)
        recorder = TaskRecorder(task.agent_steps_total)
        while not task.done:
            recorder.add(task.advance(lambda *_, **__: None))
        alone = recorder.episodes()
        np.testing.assert_array_equal(curve.rewards, [point.rewards for point in recorder.curve])
        assert curve.interval_ends.tolist() == [point.agent_steps for point in recorder.curve]
        assert not curve.restarted
        np.testing.assert_array_equal(curve.returns, alone.returns)
        np.testing.assert_array_equal(curve.agent_steps, alone.agent_steps)
        assert len(curve.returns) >= 2  # an episode of each environment


def test_pairs_share_everything_but_the_encoder(evaluated: Path, tmp_path: Path) -> None:
    """Given the very encoder that a baseline's agent starts with, an agent learns as that one."""
    config = config_of(evaluated)
    plan = EVALUATING.plan(config)(RunFolder(evaluated))
    random = [torch.from_numpy(plan.theta0(2 + seed)) for seed in range(2)]
    assert not torch.equal(*random)
    file = tmp_path / "first.safetensors"
    file.write_bytes(save_tensors(make_tasks(config).shared_layout().named(random[0])))
    options = [*CATCH[:2], *CATCH[4:]]  # a file knows no run
    assert evaluate("--init", file, *options, "--out", tmp_path / "out") == 0
    evaluation = read_evaluation(RunFolder(tmp_path / "out"))
    for game in evaluation.games:
        first, second = evaluation.of("first", game)
        baseline = evaluation.of(RANDOM, game)
        assert same(first, baseline[0])
        assert not same(second, baseline[1])


def curves_of(out: Path) -> Any:
    return pq.read_table(out / "curves" / "000000.parquet")


@pytest.mark.slow
def test_ray_gives_the_same_curves(evaluated: Path, trained: Path, tmp_path: Path) -> None:
    inits = ["--init", str(trained), "--init", f"{trained}@1"]
    on_ray = ["--runtime.trainers", "2", *QUIET]
    assert evaluate(*inits, "--out", tmp_path / "ray", runtime=on_ray) == 0
    assert curves_of(tmp_path / "ray").equals(curves_of(evaluated))


def test_a_stopped_evaluation_gives_the_same_curves(
    evaluated: Path, trained: Path, tmp_path: Path
) -> None:
    inits = ["--init", str(trained), "--init", f"{trained}@1"]
    with stopped_after(3):
        assert evaluate(*inits, "--out", tmp_path / "stopped") == EXIT_INTERRUPTED
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "stopped").rglob("*")}
    partial = read_evaluation(RunFolder(tmp_path / "stopped"))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "stopped").rglob("*")} == before
    assert not partial.complete
    assert [curve.initialization for curve in partial.curves] == list(partial.initializations)
    whole = read_evaluation(RunFolder(evaluated))
    assert all(same(curve, whole.of(curve.initialization, "catch")[0]) for curve in partial.curves)

    assert main(["resume", str(tmp_path / "stopped")]) == 0
    assert curves_of(tmp_path / "stopped").equals(curves_of(evaluated))


@pytest.fixture(scope="module")
def other_seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "other_seed", "--seed", "1")


def test_runs_of_a_method_are_one_group_beside_their_own_starts(
    trained: Path, other_seed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    inits = ["--init", f"leap={trained},{other_seed}@1", "--own_start", "true"]
    assert evaluate(*inits, "--agent_steps", "240", "--out", out) == 0
    evaluation = read_evaluation(RunFolder(out))
    assert evaluation.complete
    assert evaluation.agents == len(evaluation.curves) == (1 + 2 + 2) * 2 * 2
    assert evaluation.initializations == (RANDOM, "leap", "leap@0")
    assert evaluation.runs == {
        RANDOM: [RANDOM],
        "leap": ["mine@2", "other_seed@1"],
        "leap@0": ["mine@0", "other_seed@0"],
    }
    assert evaluation.own_starts == {"leap": "leap@0"}
    config = config_of(out)
    assert config.init == [
        f"leap={trained}/checkpoints/000002/{INITIALIZATION},{other_seed}/checkpoints/000001/{INITIALIZATION}"
    ]
    plan, layout = EVALUATING.plan(config)(RunFolder(out)), make_tasks(config).shared_layout()
    for slot, agent in enumerate(plan.agents()):
        spec = plan.open(0)[slot]
        assert spec.seed == derive_seed(0, Purpose.TASK, "evaluation", agent.game, agent.seed)
        if agent.initialization == RANDOM:
            continue
        run, version = [
            *((trained, 2), (other_seed, 1), (trained, 0), (other_seed, 0)),
        ][2 * (agent.initialization == "leap@0") + agent.run]
        files, _ = RunFolder(run).read_checkpoint(version)
        theta0 = torch.from_numpy(plan.theta0(spec.start_index))
        assert save_tensors(layout.named(theta0)) == files[INITIALIZATION]
    said = " ".join(capsys.readouterr().out.split())
    assert "Two runs are few for a claim about a method: leap." in said
    summary = read_summary(RunFolder(out))
    # Both kinds of random starts are the reference.
    assert [each.initialization for each in summary.comparisons] == ["leap"]
    agents = {name: len(game.reference.agents) for name, game in summary.games.items()}
    assert agents == dict.fromkeys(evaluation.games, (1 + 2) * 2)


def test_the_groups_of_two_unnamed_runs_have_names_and_starts_of_their_own(
    trained: Path, other_seed: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved" / "mine"
    shutil.copytree(other_seed, moved)
    out = tmp_path / "out"
    argv = ["--init", trained, "--init", f"{trained}@1", "--init", moved, "--own_start", "true"]
    assert evaluate(*argv, "--agent_steps", "40", "--seeds", "1", "--out", out) == 0
    evaluation = read_evaluation(RunFolder(out))
    assert evaluation.own_starts == {
        "mine@2": "mine@0",
        "mine@1": "mine@0",  # of the same run
        "mine@2-2": "mine@0-2",
    }


def test_a_learned_start_is_no_random_one(trained: Path, tmp_path: Path, refused: Refused) -> None:
    run, started = tmp_path / "run", ["--meta.init", str(trained), *LOCALLY]
    assert main(["train", *CATCH, *META, *started, "--run_dir", str(run)]) == 0
    line = refused("evaluate", "--init", run, "--games", "catch", "--own_start", "true")
    assert f"own_start = true: the run of {run} begins at a learned start" in line


def theta0_of(run: Path, version: int) -> Tensor:
    files, _ = RunFolder(run).read_checkpoint(version)
    layout = make_tasks(read_run(RunFolder(run)).config).shared_layout()
    return layout.pack(load_tensors(files[INITIALIZATION]))


def test_a_mix_starts_each_agent_between_its_random_encoder_and_the_learned_one(
    trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    argv = ["--init", trained, "--init", f"{trained}@1@mix=0.25", "--agent_steps", "40"]
    assert evaluate(*argv, "--out", out) == 0
    evaluation, config = read_evaluation(RunFolder(out)), config_of(out)
    assert evaluation.initializations == (RANDOM, "mine@2", "mine@1@mix=0.25")
    assert config.init == [
        f"{trained}/checkpoints/000002/{INITIALIZATION}",
        f"{trained}/checkpoints/000001/{INITIALIZATION}@mix=0.25",
    ]
    plan = EVALUATING.plan(config)(RunFolder(out))
    theta0 = {
        agent: plan.theta0(spec.start_index)
        for agent, spec in zip(plan.agents(), plan.open(0), strict=True)
    }
    learned = theta0_of(trained, 1).numpy().astype(np.float64)
    for agent, start in theta0.items():
        if agent.initialization == "mine@1@mix=0.25":
            random = theta0[agent._replace(initialization=RANDOM)].astype(np.float64)
            np.testing.assert_array_equal(start, np.float32(0.25 * learned + 0.75 * random))
    assert len({start.tobytes() for start in theta0.values()}) == 2 + 1 + 2

    with stopped_after(5):
        assert evaluate(*argv, "--out", tmp_path / "stopped") == EXIT_INTERRUPTED
    assert main(["resume", str(tmp_path / "stopped")]) == 0
    assert curves_of(tmp_path / "stopped").equals(curves_of(out))


def test_whatever_names_an_initialization_may_be_mixed(trained: Path) -> None:
    file = f"{trained}/checkpoints/000001/{INITIALIZATION}"
    for given, name, option in (
        (f"{trained}@1@mix=0.5", "mine@1@mix=0.5", f"{file}@mix=0.5"),
        (f"{file}@mix=.5", "mine@1@mix=0.5", f"{file}@mix=0.5"),
        (f"warm={trained}@1@mix=0.5", "warm", f"warm={file}@mix=0.5"),
        ("pretrained:minatar-leap@mix=0.5", "minatar-leap@mix=0.5", None),
    ):
        group = find_group(given)
        assert (group.name, group.option) == (name, option or given)
        again = find_group(group.option)
        assert (again.option, again.runs[0].mix) == (group.option, 0.5)


def test_a_mix_needs_no_baseline_and_all_of_it_is_the_initialization(
    trained: Path, other_seed: Path, tmp_path: Path
) -> None:
    few = ["--no_random", "--agent_steps", "40", "--seeds", "1"]
    group = f"leap={trained}@mix=0.5,{other_seed}@mix=5e-1"
    assert evaluate("--init", group, *few, "--out", tmp_path / "mixed") == 0
    plan = EVALUATING.plan(config_of(tmp_path / "mixed"))(RunFolder(tmp_path / "mixed"))
    assert len({plan.theta0(spec.start_index).tobytes() for spec in plan.open(0)}) == 2
    prints = []
    for number, given in enumerate((trained, f"{trained}@mix=1", f"{trained}@mix=0.5")):
        assert evaluate("--init", given, *few, "--out", tmp_path / str(number)) == 0
        prints.append(read_run(RunFolder(tmp_path / str(number))).header.fingerprint)
    assert prints[0] == prints[1] != prints[2]


def test_mixed_and_random_agents_have_starts_of_their_own(trained: Path, tmp_path: Path) -> None:
    argv = ["--init", f"{trained}@mix=0.5", "--init", f"{trained}@1@mix=0.5", "--agent_steps", "40"]
    assert evaluate(*argv, "--random_agents", "5", "--out", tmp_path / "out") == 0
    plan = EVALUATING.plan(config_of(tmp_path / "out"))(RunFolder(tmp_path / "out"))
    starts = {spec.start_index for spec in plan.open(0)}
    assert len({plan.theta0(index).tobytes() for index in starts}) == 5 + 2 * 2


def test_runs_start_from_a_mix_with_their_own_random_initialization(
    trained: Path, tmp_path: Path
) -> None:
    prints = []
    for share in (0.5, 0.75):
        for command, init, options in (
            ("learn", "--init", [*CATCH[:10], "--task.agent_steps", "40"]),
            ("train", "--meta.init", [*CATCH, "--meta.meta_steps", "1"]),
        ):
            run = tmp_path / f"{command}-{share}"
            words = [command, *options, *LOCALLY, "--seed", "3", "--run_dir", str(run)]
            assert main([*words, init, f"{trained}@1@mix={share}"]) == 0
            tasks = make_tasks(read_run(RunFolder(run)).config)
            random = tasks.random_initialization(derive_seed(3, Purpose.INITIALIZATION))
            learned = theta0_of(trained, 1).double()
            wanted = (share * learned + (1 - share) * random.double()).float()
            assert torch.equal(theta0_of(run, 0), wanted)
            prints.append(read_run(RunFolder(run)).header.fingerprint)
            assert main(["resume", str(run)]) == 0
    assert len(set(prints)) == 4


def test_a_restart_is_read_and_an_evaluation_without_rewards_is_told(
    evaluated: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(evaluated, old)
    folder = RunFolder(old)
    files, state = folder.read_checkpoint(1)
    state["slots"][3]["restarts"] = 1
    folder.write_checkpoint(1, files, {"slots": state["slots"]})
    (one,) = (curve for curve in read_evaluation(folder).curves if curve.restarted)
    assert (one.initialization, one.game, one.seed) == (RANDOM, "catch_dark", 0)
    folder.write_checkpoint(1, {}, {"slots": state["slots"]})
    with pytest.raises(ValueError, match=r"has no rewards.safetensors: .*; evaluate again"):
        read_evaluation(folder)


def test_it_logs_means_over_seeds(evaluated: Path) -> None:
    evaluation = read_evaluation(RunFolder(evaluated))
    rows = read_rows(evaluated / "metrics.jsonl")
    last = [row for row in rows if "evaluation/mine@1/catch/mean_return" in row][-1]
    before = [row["agent_steps"] for row in rows if row["agent_steps"] < last["agent_steps"]][-1]
    returns = [
        value
        for curve in evaluation.of("mine@1", "catch")
        for step, value in zip(curve.agent_steps, curve.returns, strict=True)
        if before < step <= last["agent_steps"]
    ]
    assert last["evaluation/mine@1/catch/mean_return"] == pytest.approx(np.mean(returns))


def test_agents_are_kept_where_that_is_asked_for(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = ["--init", trained, "--no_random", "--save_agents", "true", "--out", out]
    assert evaluate(*argv, "--agent_steps", "40") == 0
    assert read_evaluation(RunFolder(out)).initializations == ("mine@2",)
    assert len(list((out / "agents").iterdir())) == 4
    assert config_of(out).task.agent_steps == 40
    assert config_of(out).task.num_envs == 2  # as in the run


def test_a_bad_initialization_is_one_line(
    trained: Path, unlike: Path, evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    young = tmp_path / "young"
    shutil.copytree(trained, young)
    (young / "checkpoints" / "latest").write_text("000000\n")
    (tmp_path / "file.safetensors").write_bytes(b"no tensors")
    loose = tmp_path / "loose.safetensors"
    shutil.copy(RunFolder(trained).checkpoint(1) / INITIALIZATION, loose)
    capsys.readouterr()
    for argv, expected in {
        (): "init: name a run or an initialization, as --init runs/mine",
        ("--init", "nowhere"): "init = nowhere: there is no such run or file",
        ("--init", young): "the run has made no meta-step yet",
        ("--init", f"{trained}@7"): "has no version 7; it has 0 to 2",
        ("--init", f"{unlike}@best"): "no version of the run was validated",
        ("--init", evaluated): "is a run of leap-rl evaluate, which makes no initialization",
        ("--init", tmp_path): "no run is here",
        ("--init", trained, "--init", unlike): f"init = {unlike}: ",
        ("--init", tmp_path / "file.safetensors", *CATCH[:2]): "no safetensors file",
        ("--init", trained, "--games", "catchh"): "task.kind = catch; did you mean 'catch'?",
        (
            "--init",
            trained,
            *GAMES,
            "--games=catch",
        ): "--games: is given twice; give one list",
        ("--init", trained, "--seeds", "0"): "seeds = 0: must be at least 1",
        ("--init", trained, "--random_agents", "0"): "random_agents = 0: must be at least 1",
        ("--init", trained, "--no_random", "--random_agents", "9"): "random = false leaves these",
        ("--init", f"random={trained}"): "random names the baseline; take another name",
        ("--init", f"leap={trained},"): "name runs, as --init leap=runs/a,runs/b",
        ("--init", f"leap={trained},nowhere"): "init = nowhere: there is no such run or file",
        ("--init", f"leap={trained},{trained}"): "two of its runs have the same initialization",
        ("--init", f"a={trained}", "--init", f"a={trained}@1"): "a comes twice; list all its runs",
        ("--init", f"{trained}@0", "--own_start", "true"): "is its run's start; leave one out",
        ("--init", loose, *CATCH[:2], "--own_start", "true"): "lies in no run, so its start is not",
        ("--init", f"{trained}@mix=0"): f"init = {trained}@mix=0: mix = 0: must be a share of",
        ("--init", f"{trained}@mix=1.5"): "mix = 1.5: must be a share of the learned parameters",
        ("--init", f"{trained}@mix=half"): "mix = half: must be a share of the learned parameters",
        ("--init", "nowhere@mix=0.5"): "init = nowhere: there is no such run or file",
        ("--init", f"a={trained}@mix=0.5,{unlike}"): "a method mixes all its runs alike",
    }.items():
        out = tmp_path / "out"
        assert evaluate(*argv, "--out", out) == EXIT_USAGE, argv
        line = capsys.readouterr().err.splitlines()[-1]  # behind warnings
        assert line.startswith("leap-rl: ")
        assert expected in line
        assert not out.exists()


@pytest.mark.parametrize(
    ("kind", "way_out"), [("omniglot", "omniglot_scores.py"), ("quadratic", "evaluate games")]
)
def test_what_has_no_episodes_is_compared_elsewhere(kind: Any, way_out: str) -> None:
    data = "drawings" if kind == "omniglot" else None
    with pytest.raises(ValueError, match=f"task.kind = {kind}: has no episodes .*{way_out}"):
        EvaluateConfig(init=["file"], task=TaskConfig(kind=kind, games="all", data=data))


def test_games_have_to_be_named_where_no_pool_is_held_out(
    trained: Path, tmp_path: Path, refused: Refused
) -> None:
    line = refused("evaluate", "--init", trained, "--out", tmp_path / "out")
    assert line.endswith("say which to learn, as --games catch; task.kind = catch holds none out")
    assert not any(tmp_path.iterdir())


def test_what_learns_otherwise_is_told(trained: Path, unlike: Path) -> None:
    (line,) = warnings_of([find_group(str(path)) for path in (trained, unlike)])
    assert line == (
        "unlike@1 was meta-trained with agent.encoder = nature (here mnih2013), agent.lr = 0.5 "
        "(here 0.003); all agents learn as mine@2's did"
    )


def test_other_agents_take_what_they_have_of_the_runs_options() -> None:
    ppo = {"task.kind": "gymnasium", "agent.algorithm": "rllib:PPO", "task.unroll_length": 128}
    ppo |= {"task.agent_steps": 204800}
    ppo["task.games"] = ["MinAtar/Asterix-v1"]
    config, (group,) = configure(["pretrained:minatar-leap"], ppo)
    (found,) = group.runs
    assert found.options is not None
    assert config.agent.rmsprop_eps != found.options["agent"]["rmsprop_eps"] == 1e-5
    assert config.agent.initial_weights == found.options["agent"]["initial_weights"] == "he"
    assert config.task.gymnasium.minatar == "palette"


@pytest.mark.parametrize("how", ["word", "group", "file"])
def test_a_budget_is_seen_however_it_is_given(how: str, tmp_path: Path) -> None:
    """The rounds of a finetuned run have another budget than agents of theirs would have."""
    few = ["--meta.updates_per_round", "1", "--meta.meta_steps", "1"]
    run = train(tmp_path / "run", "--meta.method", "pretraining", *few)
    with pytest.raises(ValueError, match="agent_steps: say how many each agent learns for"):
        configure([str(run)], {})
    (tmp_path / "options.yaml").write_text("task:\n  agent_steps: 40\n")
    words = {
        "word": ["--task.agent_steps", "40"],
        "group": ["--task", '{"agent_steps": 40}'],
        "file": ["--config", str(tmp_path / "options.yaml")],
    }[how]
    config, _ = configure(
        [str(run)], options_given(EvaluateConfig, ["--task.games", "catch", *words])
    )
    assert config.task.agent_steps == 40


def test_what_is_no_evaluation_cannot_be_read_as_one(trained: Path) -> None:
    with pytest.raises(ValueError, match="is no evaluation"):
        read_evaluation(RunFolder(trained))
