"""Which learning rate and budget a calibration chooses, and what it says where none will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from leap_rl.cli import EXIT_FAILED, main
from leap_rl.cli.study import take_out
from leap_rl.evaluation.results import EvaluationResults
from leap_rl.evaluation.savings import Reference, make_reference
from leap_rl.storage.run_folder import RunFolder
from leap_rl.studies import calibration
from leap_rl.studies.calibration import (
    BUDGETS,
    RATES,
    Choice,
    calibrated,
    choose,
    lines_of,
    nothing_learned,
)
from leap_rl.studies.cells import Cell, cells_of
from leap_rl.studies.config import StudyConfig, configure
from leap_rl.studies.execution import Failure
from leap_rl.studies.folder import StudyFolder
from leap_rl.training.messages import Diverged
from tests.commands import Refused
from tests.evaluation.agents import agent, evaluation, flat, learner
from tests.training.fakes import FakePlan, assigned, claim, make_server

BUDGET = 100_000
WORDS = [
    *["--games", "CartPole-v1", "leap_rl/CartPole-v1@gravity=5.0"],
    *["--held_out", "leap_rl/CartPole-v1@gravity=20.0", "--agents", "5"],
    *["--task.num_envs", "8", "--tracking.tensorboard", "false"],
]


def reference(*, end: float, half: float = 0.3, budget: int = BUDGET, agents: int = 5) -> Reference:
    """Agents whose returns rise from 10 to ``end``; none that learn where it is 10."""
    curves = [
        learner("random", "maze", seed, end=end, half=half, budget=budget, luck=0.5, noise=1.0)
        if end != 10
        else flat(10.0, seed=seed, budget=budget)
        for seed in range(agents)
    ]
    return make_reference(curves, budget)


def test_the_best_rate_at_the_end_and_the_least_budget_that_shows_a_gain() -> None:
    still, rises, higher = reference(end=10), reference(end=40), reference(end=60)
    budgets = (25_000, 50_000, 100_000)
    found = {(lr, budget): {"a": still, "b": still} for lr in (0.001, 0.003) for budget in budgets}
    found[0.001, 100_000] = {"a": rises, "b": rises}
    found[0.003, 25_000] = {"a": rises, "b": still}
    found[0.003, 50_000] = {"a": rises, "b": rises}
    found[0.003, 100_000] = {"a": higher, "b": rises}
    assert choose(found) == Choice(lr=0.003, agent_steps=50_000)
    # A rate with which all agents of a member diverge is no more than the last choice.
    none = make_reference([], BUDGET)
    for highest in (none, reference(end=90)):
        found |= {(0.009, budget): {"a": highest, "b": none} for budget in budgets}
        assert choose(found) == Choice(lr=0.003, agent_steps=50_000)
    # Nor is one with which some diverge; what is left of them may be luck.
    found |= {
        (0.009, budget): dict.fromkeys("ab", reference(end=90, agents=2)) for budget in budgets
    }
    assert choose(found) == Choice(lr=0.003, agent_steps=50_000)
    assert any(line.endswith("; 3 of 5 agents diverged") for line in lines_of(found))
    # A difference below the noise decides nothing.
    near = {"a": reference(end=20), "b": reference(end=40.2)}
    found |= {(0.0001, budget): near for budget in budgets}
    found[0.009, 100_000] = dict.fromkeys("ab", none)
    found[0.001, 100_000] = {"a": reference(end=25), "b": rises}
    found[0.003, 100_000] = {"a": higher, "b": reference(end=39.8)}
    assert choose(found) == Choice(lr=0.003, agent_steps=50_000)
    assert choose({key: dict.fromkeys(members, none) for key, members in found.items()}) is None
    nothing = {key: dict.fromkeys(members, still) for key, members in found.items()}
    assert choose(nothing) is None


def test_a_calibration_writes_the_study_that_it_speaks_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    out = tmp_path / "study"
    words = ["study", *WORDS, "--task.agent_steps", "16000", "--calibrate", "--out", str(out)]
    (out / "runs/other-0").mkdir(parents=True)
    assert "holds runs, and no study" in refused(*words)
    (out / "runs/other-0").rename(out / "runs/calibration-0-seen-12345678")
    assert main([*words, "--trust_imports"]) == 0, "what is there of a calibration does not stop it"
    said = capsys.readouterr().out
    assert said.splitlines()[-1].endswith(f" study {out} --trust_imports")
    assert said.count("CartPole-v1: ") == len(RATES) * len(BUDGETS) * 2 // 2
    written = StudyFolder(out).read()
    assert isinstance(written, StudyConfig)
    assert (
        f"agent.lr = {written.agent.lr:g} and task.agent_steps = {written.task.agent_steps}" in said
    )
    assert written.task.agent_steps in {4_000, 8_000, 16_000}
    assert configure(["--config", str(out / "study.yaml")]) == written, "which is carried out next"
    assert "holds a study already; calibrate in a new folder" in refused(*words)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--arms", "{mine: {meta.nope: 1}}"], "arms.mine: meta.nope: no such option"),
        (["--agent_steps", "8000"], "agent_steps = 8000: --calibrate looks for the budget"),
    ],
)
def test_what_could_not_be_carried_out_is_refused_at_once(
    words: list[str], complaint: str, tmp_path: Path, refused: Refused
) -> None:
    assert complaint in refused("study", *WORDS, *words, "--calibrate", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_budget_is_one_that_all_arms_can_have(tmp_path: Path) -> None:
    arms = ["--arms", "{pretraining: {meta.updates_per_round: 20}, leap: {}}"]
    sizes = ["--task.agent_steps", "8000", "--task.unroll_length", "5", "--meta.meta_steps", "7"]
    study = configure(take_out([*WORDS, *arms, *sizes])[0])
    assert cells_of(study, tmp_path)
    for chosen, budget in ((2_000, 4_000), (4_000, 4_000), (8_000, 8_000)):
        found = calibrated(study, Choice(lr=0.5, agent_steps=chosen), StudyFolder(tmp_path))
        assert (found.agent.lr, found.task.agent_steps) == (0.5, budget)


def test_that_episodes_are_too_long_is_said() -> None:
    study = configure(take_out([*WORDS, "--task.agent_steps", "8000"])[0])
    long = make_reference([agent([BUDGET], [1.0], seed=seed) for seed in range(5)], BUDGET)
    for references, said in (
        ([long], "episodes of "),
        ([long, reference(end=10)], "agents learn "),
    ):
        found = {(0.1, 100 * i): {"a": one} for i, one in enumerate(references)}
        assert nothing_learned(study, found).startswith(said)


def test_a_learner_without_a_rate_of_ours_is_not_calibrated(
    tmp_path: Path, refused: Refused
) -> None:
    pytest.importorskip("stable_baselines3")
    words = ["study", *WORDS[:-4], "--agent.algorithm", "sb3:A2C", "--out", str(tmp_path / "study")]
    said = refused(*words, "--calibrate")
    assert "agent.algorithm = sb3:A2C: learns without agent.lr" in said


@pytest.mark.slow
def test_members_that_nobody_learns_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["study", *WORDS, "--agent.lr", "1e-9", "--task.agent_steps", "8000", "--calibrate"]
    assert main([*words, "--out", str(tmp_path / "study")]) == EXIT_FAILED
    *_, line = capsys.readouterr().err.splitlines()
    assert "agents learn CartPole-v1 and leap_rl/CartPole-v1@gravity=5.0 in no budget up to" in line
    assert line.endswith("--task.agent_steps 32000")
    assert not (tmp_path / "study" / "study.yaml").exists()


@pytest.mark.parametrize(
    ("diverging", "reason", "says"),
    [
        ([2], "", ""),
        ([0, 1, 2], "", "all agents diverge with each learning rate from"),
        ([2], "No space left on device", "No space left on device"),
    ],
)
def test_a_rate_with_which_all_agents_diverge_is_judged_and_not_chosen(
    diverging: list[int],
    reason: str,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = make_server(RunFolder(tmp_path / "run"), FakePlan(batch=1), on_divergence="drop_task")
    ticket = assigned(server.claim(claim())).ticket
    server.diverged(Diverged(ticket=ticket, agent_steps=40, reason="went wrong"))
    reason = reason or server.status().failure or ""

    def fail(study: object, cells: list[Cell], *_: object, **__: object) -> tuple[object, None]:
        return [Failure(cell=cells[number], reason=reason) for number in diverging], None

    def read(folder: RunFolder) -> EvaluationResults:
        assert not any(f"calibration-{number}-" in folder.path.name for number in diverging)
        games = [WORDS[1], WORDS[2]]
        curves = [learner("random", game, seed, noise=1.0) for game in games for seed in range(5)]
        return evaluation(curves, games=games)

    monkeypatch.setattr(calibration, "compute", fail)
    monkeypatch.setattr(calibration, "read_evaluation", read)
    monkeypatch.setattr(Cell, "finished", property(lambda cell: cell.run not in diverging))
    words = ["study", *WORDS, "--task.agent_steps", "100000", "--calibrate"]
    assert main([*words, "--out", str(tmp_path / "study")]) == (EXIT_FAILED if says else 0)
    captured = capsys.readouterr()
    assert says in captured.err
    if not says:
        assert captured.out.count(": agents diverged\n") == len(BUDGETS) * 2
        assert "nan" not in captured.out
        assert StudyFolder(tmp_path / "study").read() is not None
