"""New agents that choose among the members' agents: a literal recomputation from the episodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.measures import means_of, measure
from leap_rl.evaluation.results import EvaluationResults, LearningCurve, read_evaluation
from leap_rl.evaluation.savings import Reference, make_reference, reached
from leap_rl.runs.child import serve
from leap_rl.storage.run_folder import RunFolder
from leap_rl.studies.arms import total_agent_steps
from leap_rl.studies.cells import Cell, cells_of
from leap_rl.studies.choice import choose, read_choices
from leap_rl.studies.config import StudyConfig
from leap_rl.studies.execution import request_of
from leap_rl.studies.folder import StudyFolder
from leap_rl.studies.results import read_results
from leap_rl.studies.study import report

BUDGET = 8_000
MEMBERS = ("leap_rl/CartPole-v1@gravity=5.0", "CartPole-v1")
FILE = f"""\
games: [{", ".join(MEMBERS)}]
held_out: leap_rl/CartPole-v1@gravity=20.0
arms: [nearest]
runs: 1
agents: 2
random_agents: 2
meta: {{meta_steps: 2}}
task: {{agent_steps: {BUDGET}, num_envs: 4}}
tracking: {{tensorboard: false}}
"""

Episode = tuple[int, float]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyConfig, list[Cell]]:
    """A study whose cells were all computed, one after the other."""
    path = tmp_path_factory.mktemp("nearest")
    (path / "poles.yaml").write_text(FILE)
    config = StudyConfig.from_yaml(path / "poles.yaml")
    cells = cells_of(config, path / "out")
    for cell in cells:
        assert serve(request_of(cell, trusts_imports=False), lambda row: None) == 0
    StudyFolder.at(path / "out").write(config)
    return config, cells


def episodes_of(cell: Cell, seed: int) -> list[Episode]:
    """An agent's episodes, from its cell's Parquet: agent steps at their ends, and returns."""
    rows = pq.read_table(cell.folder.curves(0)).to_pylist()
    return [
        (row["agent_steps"], row["episode_return"])
        for row in sorted(rows, key=lambda row: row["agent_steps"])
        if row["slot"] == seed  # a cell has one start and one game, so that slots are seeds
    ]


def literally(starts: list[list[Episode]]) -> tuple[int, int, list[Episode]]:
    """The start that a new agent goes on from, a probe's agent steps, and all its episodes."""
    count = len(starts)
    for parts in range(4, 21):  # fortieths of the budget, for all probes: from a tenth to a half
        probe = BUDGET * parts // 40 // count
        if all(sum(at <= probe for at, _ in episodes) >= 10 for episodes in starts):
            break
    means = []
    for episodes in starts:
        returns = [value for at, value in episodes if at <= probe]
        means.append(sum(returns) / len(returns))
    best = means.index(max(means))
    merged = [(count * at, value) for each in starts for at, value in each if at <= probe]
    for at, value in starts[best]:
        if at > probe and at + (count - 1) * probe <= BUDGET:
            merged.append((at + (count - 1) * probe, value))
    return best, probe, sorted(merged)


def test_new_agents_go_on_from_the_start_that_was_best_in_their_probes(
    study: tuple[StudyConfig, list[Cell]],
) -> None:
    config, cells = study
    trained = [cell for cell in cells if cell.members is None]
    assert [cell.alone for cell in trained] == [*MEMBERS]
    assert sum(cell.agent_steps for cell in trained) == total_agent_steps(config.base())
    found = read_results(config, cells)
    assert found.complete
    assert found.training["nearest"].games == MEMBERS
    assert found.training["nearest"].agent_steps == total_agent_steps(config.base())
    evaluations = [cell for cell in cells if cell.arm == "nearest" and cell.members is not None]
    for curve in found.of("nearest", found.games[0]):
        best, probe, episodes = literally([episodes_of(cell, curve.seed) for cell in evaluations])
        assert sorted(zip(curve.agent_steps, curve.returns, strict=True)) == episodes
        assert list(curve.agent_steps) == sorted(curve.agent_steps)
        # CartPole's rewards are 1 an agent step, whoever earns them: none is lost or doubled.
        np.testing.assert_allclose(np.cumsum(curve.rewards), curve.interval_ends)
        later = [at for at, _ in episodes if at > len(MEMBERS) * probe]
        assert later[0] - probe in [at for at, _ in episodes_of(evaluations[best], curve.seed)]


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_a_new_agent_chooses_a_start_with_which_it_diverges_later(
    dropped: int, study: tuple[StudyConfig, list[Cell]], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, cells = study
    before = list(read_choices(cells))
    first = before[0].member

    def read(folder: RunFolder) -> EvaluationResults:
        found = read_evaluation(folder)
        (member,) = {cell.alone for cell in cells if cell.path == folder.path}
        diverged = member == first
        curves = tuple(replace(c, restarted=diverged) for c in found.curves)
        return replace(found, curves=curves[dropped:] if diverged else curves)

    monkeypatch.setattr("leap_rl.studies.choice.read_evaluation", read)
    after = list(read_choices(cells))
    if dropped:  # what its probe would have shown is not known
        assert [c.member for c in after] == [c.member for c in before[dropped:]]
        results = read_results(config, cells)
        assert results.dropped == (dropped if after else 0)
        assert results.complete
        return
    assert [(c.member, c.charged) for c in after] == [(c.member, c.charged) for c in before]
    assert [c.curve.restarted for c in after] == [c.member == first for c in before]
    said = summarize(read_results(config, cells)).verdict
    assert any("agents diverged and were restarted" in sentence for sentence in said)


def test_the_page_says_the_rule_what_was_chosen_and_what_it_cost(
    study: tuple[StudyConfig, list[Cell]],
) -> None:
    config, cells = study
    folder = StudyFolder.at(cells[0].path.parent.parent)
    report(folder, config)
    evaluations = [cell for cell in cells if cell.arm == "nearest" and cell.members is not None]
    chosen = [literally([episodes_of(cell, seed) for cell in evaluations]) for seed in range(2)]
    table = (folder.path / "tables" / "starts_that_new_agents_chose.csv").read_text().splitlines()
    assert all(MEMBERS[best] in table[1] for best, _, _ in chosen)
    charged = sum(probe for _, probe, _ in chosen) / 2
    assert f"{charged:,.0f}" in table[1]
    assert "goes on from the one with the highest mean return" in folder.page.read_text()
    # The start that most chose, or that the first did.
    best_start = json.loads(folder.estimates.read_text())["best_start"]
    trained = {cell.alone: cell.name for cell in cells if cell.members is None}
    assert best_start.split("/")[1] in [trained[MEMBERS[best]] for best, _, _ in chosen]


def test_as_long_as_one_start_is_missing_nothing_is_chosen(
    study: tuple[StudyConfig, list[Cell]], tmp_path: Path
) -> None:
    config, cells = study
    missing = next(c for c in cells if c.alone == MEMBERS[1] and c.members is not None)
    aside = missing.path.rename(tmp_path / "aside")
    try:
        assert read_results(config, cells).initializations == ("random",)
    finally:
        aside.rename(missing.path)


def curve(*, level: float, after: int = 0, length: int = 20) -> LearningCurve:
    """An agent at 0 until so many agent steps, then at a level; episodes of the same length."""
    at = np.arange(length, BUDGET + 1, length)
    return LearningCurve(
        initialization="",
        game="maze",
        seed=0,
        interval_ends=at,
        rewards=np.ones(len(at)),
        agent_steps=at,
        returns=np.where(at > after, level, 0.0) + 0.01 * np.sin(at),
    )


def reference() -> Reference:
    ramps = [curve(level=1.0) for _ in range(5)]
    for number, ramp in enumerate(ramps):
        ramp.returns[:] = ramp.agent_steps / BUDGET * (1 + 0.02 * number)
    return make_reference(ramps, BUDGET)


def test_what_the_choice_costs_is_in_the_measures() -> None:
    """The best start is there at once; one that tries four is as good only after the probes."""
    useless = {str(number): curve(level=-0.2) for number in range(3)}
    best, charged, found = choose({**useless, "good": curve(level=1.0)}, BUDGET)
    assert (best, charged) == ("good", 3 * BUDGET // 40)
    random = reference()
    alone, tried = (
        means_of([measure([each] * 3, BUDGET, random.windows)])
        for each in (curve(level=1.0), found)
    )
    assert reached(alone.curve, 0.5, BUDGET).bound == "at most"
    then = reached(tried.curve, 0.5, BUDGET)
    assert then.bound == ""
    assert then.agent_steps == pytest.approx(BUDGET / 10, rel=0.1)  # once all were tried
    assert tried.final == pytest.approx(alone.final, abs=0.01)
    # A start that is good later only is not seen, and one without any episode comes last.
    late = curve(level=2.0, after=BUDGET // 2)
    slow = curve(level=9.0, length=BUDGET // 3)
    assert choose({"late": late, "good": curve(level=1.0)}, BUDGET)[0] == "good"
    best, charged, _ = choose({"slow": slow, "good": curve(level=1.0)}, BUDGET)
    assert (best, charged) == ("good", BUDGET // 4)  # half of the budget, at most, is for probes
