"""Games that judge the initialization while it is meta-trained, and change nothing of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leap_rl.cli import EXIT_INTERRUPTED, main
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.task import TaskSpec
from leap_rl.runs.evaluation import warnings_of
from leap_rl.runs.header import read_run
from leap_rl.runs.initializations import find_group, find_initialization
from leap_rl.runs.kinds import make_tasks
from leap_rl.runs.validation import ValidationConfig
from leap_rl.sharing.initialization import read_initialization
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.images.config import ImagesConfig
from leap_rl.tracking.jsonl import read_rows
from leap_rl.training.messages import Complete, CurvePoint, TaskRecord, Ticket
from leap_rl.training.rounds.plan import FilledSlot
from leap_rl.training.rounds.validation import Validation, ValidationState, learning_curve
from leap_rl.training.runtime.local import LocalClient
from leap_rl.training.trainer.recorder import TaskRecorder
from tests.commands import LOCALLY, Refused
from tests.tasks.omniglot_images import write_zip
from tests.training.fakes import FakePlan, assigned, claim, complete, make_server
from tests.training.test_divergence import diverged

BOWLS = ["--config", "debug", "--task.agent_steps", "100", *LOCALLY]
BOWLS += ["--task.games", '["bowl_0", "bowl_1", "bowl_2"]', "--meta.meta_steps", "5"]
JUDGED = ["--validation.every_meta_steps", "2", "--validation.games", '["bowl_5", "bowl_6"]']


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "judged"
    assert main(["train", *BOWLS, *JUDGED, "--run_dir", str(run)]) == 0
    return run


MESSAGE = complete(Ticket(fingerprint="f", round=0, slot=0, attempt=1), claim())


def sums(run: Path) -> list[str]:
    folder = RunFolder(run)
    return [folder.read_state(number)["sha256"][INITIALIZATION] for number in folder.checkpoints()]


def metrics(run: Path) -> list[dict[str, float]]:
    rows = read_rows(run / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k.startswith("validation/")} for row in rows]


def test_being_judged_changes_no_bit(judged: Path, tmp_path: Path) -> None:
    assert main(["train", *BOWLS, "--run_dir", str(tmp_path / "blind")]) == 0
    assert sums(judged) == sums(tmp_path / "blind")
    assert [bool(one) for one in metrics(judged)] == [True, False, True, False, True]
    blind = read_rows(tmp_path / "blind" / "metrics.jsonl")
    for row, other in zip(read_rows(judged / "metrics.jsonl"), blind, strict=True):
        assert {key for key in row if not key.startswith("validation/")} == other.keys()
        assert row["agent_steps"] == other["agent_steps"]


def test_a_version_is_judged_as_an_agent_would_learn_from_it(judged: Path) -> None:
    config = read_run(RunFolder(judged)).config
    tasks = make_tasks(config)
    found = metrics(judged)
    for version in (0, 4):
        file = RunFolder(judged).checkpoint(version) / INITIALIZATION
        theta0, _ = read_initialization(str(file), tasks.shared_layout())
        task = tasks(
            TaskSpec(game="bowl_5", seed=derive_seed(0, Purpose.TASK, "validation", "bowl_5"))
        )
        task.start(theta0)
        recorder = TaskRecorder(task.agent_steps_total)
        while not task.done:
            recorder.add(task.advance(lambda *_, **__: None))
        area = -np.mean([point.losses["total"] for point in recorder.curve])
        assert found[version]["validation/bowl_5/area"] == pytest.approx(area, rel=1e-12)
    gained = found[4]["validation/bowl_5/area"] - found[0]["validation/bowl_5/area"]
    assert found[4]["validation/bowl_5/gain"] == pytest.approx(gained)
    assert found[0]["validation/gain"] == 0


def test_the_best_version_is_kept_and_found(judged: Path) -> None:
    found = metrics(judged)
    gains = {version: found[version]["validation/gain"] for version in (0, 2, 4)}
    best = max(gains, key=lambda version: gains[version])
    assert best > 0  # bowls whose lowest points lie about one place are learned faster from there
    assert found[4]["validation/best"] == best
    assert RunFolder(judged).best() == best
    one = find_initialization(f"{judged}@best")
    assert one.path == str(RunFolder(judged).checkpoint(best) / INITIALIZATION)


def test_a_stop_and_a_resume_change_no_figure(
    judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped within meta-step 2, whose first validation task is complete by then."""
    completed = []
    original = LocalClient.complete

    def complete_some(client: LocalClient, message: Complete) -> object:
        completed.append(message.ticket)
        if (message.ticket.round, len(completed)) == (2, 13):
            raise KeyboardInterrupt
        return original(client, message)

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(LocalClient, "complete", complete_some)
        argv = ["train", *BOWLS, *JUDGED, "--run_dir", str(run)]
        assert main(argv) == EXIT_INTERRUPTED
    assert [ticket.round for ticket in completed][-1] == 2
    assert main(["resume", str(run)]) == 0
    assert metrics(run) == metrics(judged)
    assert sums(run) == sums(judged)
    assert RunFolder(run).best() == RunFolder(judged).best()


@pytest.mark.parametrize(
    ("options", "keeps_baseline"),
    [([], True), (["--meta.meta_lr", "0.01"], True), (["--agent.lr", "0.02"], False)],
)
def test_a_fork_is_judged_by_its_parents_baseline_if_its_agents_learn_alike(
    options: list[str], keeps_baseline: bool, judged: Path, tmp_path: Path
) -> None:
    run = tmp_path / "fork"
    words = ["fork", str(judged), "--at", "1", "--run_dir", str(run), *options]
    assert main([*words, "--meta.meta_steps", "2"]) == 0  # a step without a validation
    assert main(["resume", str(run), "--meta.meta_steps", "5"]) == 0
    (_, first, _, last), parents = metrics(run), metrics(judged)
    assert (first["validation/gain"] == 0) == (not keeps_baseline)
    assert first["validation/best"] == 2  # version 0 is the parent's
    assert RunFolder(run).best() in (2, 4)
    if not options:
        assert first["validation/gain"] == parents[2]["validation/gain"]
        assert last["validation/gain"] == parents[4]["validation/gain"]


def curve(*rewards: float | None) -> TaskRecord:
    """Intervals of 1,000 agent steps each, in which no episode ends."""
    points = [
        CurvePoint(
            agent_steps=1000 * (place + 1),
            losses={"total": 2.0},
            episodes=0,
            return_sum=0.0,
            agent_steps_per_s=1.0,
            rewards=reward,
        )
        for place, reward in enumerate(rewards)
    ]
    return replace(MESSAGE.record, curve=tuple(points), losses={"total": 2.0})


def judging(game: str, *rewards: float | None, seed: int = 0, restarts: int = 0) -> FilledSlot:
    return FilledSlot(
        spec=TaskSpec(game=game, seed=seed, validates=True),
        attempt=1,
        restarts=restarts,
        contribution=MESSAGE.contribution,
        record=curve(*rewards),
        episodes=MESSAGE.episodes,
    )


def test_a_curve_is_of_rewards_whether_episodes_end_or_not() -> None:
    record = curve(3.0, 0.0, -4.0)
    assert learning_curve(record) == [3.0, 0.0, -4.0]
    short = replace(record.curve[1], agent_steps=1500)
    uneven = replace(
        record, curve=(record.curve[0], short, replace(short, agent_steps=1600, rewards=2.0))
    )
    assert learning_curve(uneven) == [3.0, 0.0, 20.0]
    assert learning_curve(curve(None, None)) == [-2.0, -2.0]


def test_tasks_that_judge_learn_their_whole_budget() -> None:
    task = TaskConfig(kind="images", games=["mnist"], images=ImagesConfig(patience=10))
    judging = ValidationConfig(every_meta_steps=1, games=["fashion"]).of(task)
    assert (judging.games, judging.images.patience) == (["fashion"], None)


def test_gains_are_in_deviations_of_version_0() -> None:
    nothing, row = ValidationState().judge(0, [])
    assert (nothing, row) == (ValidationState(), {})
    first, row = nothing.judge(0, [judging("a", 0.0, 2.0), judging("b", 10.0, 30.0)])
    assert row == {
        "validation/a/area": 1.0,
        "validation/a/gain": 0.0,
        "validation/b/area": 20.0,
        "validation/b/gain": 0.0,
        "validation/gain": 0.0,
        "validation/best": 0,
        "validation/agents": 1,
    }
    restored = ValidationState.from_state(first.state())
    assert restored == first
    second, row = restored.judge(3, [judging("a", 3.0, 3.0), judging("b", 25.0, 25.0)])
    assert row["validation/a/gain"] == 2.0
    assert row["validation/b/gain"] == 5.0
    assert row["validation/gain"] == (2.0 / 1.0 + 5.0 / 10.0) / 2
    assert (second.best, row["validation/best"]) == (3, 3)
    third, row = second.judge(6, [judging("a", 1.5, 1.5)])
    assert row["validation/gain"] == 0.5
    assert (third.best, third.best_gain) == (3, 1.25)


def test_a_games_gain_is_the_mean_of_its_agents_each_against_its_own() -> None:
    at_first = [judging("a", 0.0, 2.0), judging("a", 4.0, 12.0, seed=1), judging("b", 0.0, 2.0)]
    first, row = ValidationState().judge(0, at_first)
    assert (row["validation/a/area"], row["validation/a/gain"]) == (4.5, 0.0)
    assert row["validation/agents"] == 1
    first = ValidationState.from_state(first.state())
    later = [judging("a", 3.0, 3.0), judging("a", 9.0, 9.0, seed=1)]
    second, row = first.judge(5, later)
    assert (row["validation/a/area"], row["validation/a/gain"]) == (6.0, 1.5)
    assert row["validation/gain"] == 1.5 / ((1.0 + 4.0) / 2)
    assert (row["validation/agents"], second.best) == (2, 5)
    # One that began again with another seed, or was not there at first, has nothing to heartbeat.
    others = [judging("a", 9.0, 9.0, seed=1), judging("a", 99.0, 99.0, restarts=1)]
    _, row = first.judge(7, [*others, judging("c", 50.0, 60.0)])
    assert (row["validation/a/gain"], row["validation/agents"]) == (1.0, 1)
    assert row["validation/gain"] == 1.0 / 4.0
    assert "validation/c/gain" not in row
    assert first.judge(9, [judging("c", 1.0)])[0] == first


def test_what_an_earlier_version_measured_is_not_compared_with() -> None:
    state = {"validation": {"baseline": {"a": [1.0, 2.0]}, "best": 0, "best_gain": 0.0}}
    with pytest.raises(ValueError, match="is of an earlier leap_rl"):
        ValidationState.from_state(state)


def test_whoever_takes_the_best_of_one_agent_a_game_is_told(judged: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["train", *BOWLS, *JUDGED, "--validation.agents", "2", "--run_dir", str(run)]) == 0
    assert [row.get("validation/agents") for row in metrics(run)] == [2, None, 2, None, 2]
    assert find_initialization(f"{judged}@best").chosen_from == 1
    assert find_initialization(f"{run}@best").chosen_from == 2
    assert find_initialization(f"{run}@2").chosen_from is None
    assert sums(run) == sums(judged)
    for one, told in ((judged, True), (run, False)):
        said = " ".join(warnings_of([find_group(f"{one}@best")]))
        assert (
            f"{one.name}@{RunFolder(one).best()} was chosen from one agent a game" in said
        ) == told


def test_tasks_are_the_same_for_every_version() -> None:
    plan = Validation(every_meta_steps=3, games=("a", "b"))
    assert plan.specs(7, 1) == plan.specs(7, 2) == []
    assert plan.specs(7, 0) == plan.specs(7, 6)
    assert plan.specs(8, 0) != plan.specs(7, 0)
    assert len({spec.seed for spec in plan.specs(7, 0)}) == 2
    three = replace(plan, agents=3).specs(7, 0)
    assert [spec.game for spec in three] == ["a"] * 3 + ["b"] * 3
    assert len({spec.seed for spec in three}) == 6
    assert three[::3] == plan.specs(7, 0)


class JudgingPlan(FakePlan):
    """A round of one task that contributes and one that judges."""

    def open(self, round_number: int) -> list[TaskSpec]:
        specs = super().open(round_number)
        return [*specs[:-1], replace(specs[-1], validates=True)]


def test_a_round_is_not_closed_on_what_judges_alone(tmp_path: Path) -> None:
    plan = JudgingPlan(batch=2)
    server = make_server(RunFolder(tmp_path), plan, on_divergence="drop_task")
    server.diverged(diverged(assigned(server.claim(claim("a"))).ticket))
    judging_one = assigned(server.claim(claim("b")))
    server.complete(complete(judging_one.ticket, claim("b", number=2)))
    assert not plan.closed
    assert "round 0 has no task left" in (server.status().failure or "")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--validation.every_meta_steps", "0"], "validation.every_meta_steps = 0: must be"),
        (["--validation.games", "pong"], "validation.games = pong: has no effect without"),
        (["--validation.agents", "2"], "validation.agents = 2: has no effect without"),
        ([*JUDGED, "--validation.agents", "0"], "validation.agents = 0: must be at least 1"),
        (["--validation.every_meta_steps", "1"], "validation.games = null: name the games"),
        (
            ["--validation.every_meta_steps", "1", "--validation.games", "bowl_99"],
            "validation.games: 'bowl_99' is no game",
        ),
        ([*JUDGED, "--meta.method", "pretraining"], "with meta.method = pretraining"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    options: list[str], expected: str, tmp_path: Path, refused: Refused
) -> None:
    assert expected in refused("train", *BOWLS, *options, "--run_dir", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--meta.method", "maml"], "with meta.method = maml a task's budget is the few updates"),
        (["--validation.games", "Grek"], "validation.games: 'Grek' is no alphabet"),
    ],
)
def test_what_alphabets_cannot_judge_is_one_line(
    options: list[str], expected: str, tmp_path: Path, refused: Refused
) -> None:
    write_zip(tmp_path / "images_background.zip", {"Greek": 20, "Latin": 20})
    words = ["--task.kind", "omniglot", "--task.data", str(tmp_path), "--task.games", "Latin"]
    words += ["--validation.every_meta_steps", "1", "--validation.games", "Greek", *options]
    assert expected in refused("train", *words, "--run_dir", tmp_path / "run")
    assert not (tmp_path / "run").exists()
