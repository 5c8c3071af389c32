"""Tables of agents in the docs are those that their commands make of the cells beside them."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks import layers, sb3
from benchmarks.harness.cells import CellFile
from leap_rl.sharing.card import CARD
from leap_rl.sharing.pretrained import locate

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
_MINATAR = ["--games", "MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1"]
_ATARI = ["--games", "breakout", "assault", "--seeds", "3", "--agent_steps", "200000"]
GAMES = ["Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"]
_LAYERS = ["--init", "pretrained:minatar-leap", "--agent_steps", "200000"]
_LAYERS += ["--games", *(f"MinAtar/{game}-v1" for game in GAMES)]
AGENTS = {
    "sb3_starts": (sb3, "sb3_starts.md", "docs/results/other_algorithms.md", ["starts"]),
    "sb3_agents": (sb3, "sb3_agents.md", "docs/results/sb3_agents.md", ["agents", *_MINATAR]),
    "sb3_agents_atari": (sb3, "sb3_agents.md", "docs/results/sb3_agents.md", ["agents", *_ATARI]),
    "layers": (layers, "layers.md", "docs/results/layers.md", _LAYERS),
}
"""Experiments: their command, table, page, and arguments."""


@pytest.mark.parametrize("name", AGENTS)
def test_tables_of_agents_are_made_again_from_their_cells(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leap_rl.evaluation.plots.FORMATS", ("svg",))
    command, table, page, words = AGENTS[name]
    given = command.options().parse_args([*words, "--out", str(tmp_path)])
    command.report(given, CellFile(RESULTS / name / "cells.jsonl").read())
    made = (tmp_path / table).read_text()
    assert made == (RESULTS / name / table).read_text()
    assert made.strip() in (ROOT / page).read_text()
    plot = Path(table).with_suffix(".svg").name
    assert (RESULTS / name / plot).exists()
    assert f"{name}/{plot})" in (ROOT / page).read_text()


def results_page() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools/results_page.py"))


def test_a_page_of_a_study_has_its_answer_figures_and_tables(tmp_path: Path) -> None:
    beside = tmp_path / "maze"
    beside.mkdir()
    members = [{"name": "my_mazes:Maze-v0"}]
    document = {"question": "Sooner?", "answer": ["leap saves 7."], "members": members}
    (beside / "estimates.json").write_text(json.dumps(document))
    (beside / "agent_steps_saved.csv").write_text("arm,saved,human\nleap,7|8,–\n")
    (beside / "config.csv").write_text("option,value\nquick,true\nseed,1\n")
    text = results_page()["page"](beside)
    assert text.startswith("# Sooner?\n")
    command = "leap-rl study studies/maze.yaml --quick --trust_imports --out runs/maze"
    assert f"\nexport PYTHONPATH=examples\n{command}\n" in text
    assert "* leap saves 7.\n" in text
    assert "](maze/saved.svg)" in text
    assert "## Agent steps saved\n\n| arm | saved |\n| --- | --- |\n| leap | 7\\|8 |\n" in text
    assert "seed" not in text


def test_the_figure_of_distances_has_a_panel_of_each_study_that_is_there(tmp_path: Path) -> None:
    estimate = {"measure": "agent_steps_saved_share", "estimate": 0.5, "low": 0.25}
    studies = {"minatar_left_out": ("seen", "new", "all"), "minatar_sides": ("all",)}
    for name, members in studies.items():
        (tmp_path / name).mkdir()
        rows = [
            estimate | {"arm": arm, "member": member, "runs": 1 + len(members), "high": high}
            for member in members
            for arm, high in (("leap", 0.75), ("unknown", None))
        ]
        (tmp_path / name / "estimates.json").write_text(json.dumps({"rows": rows}))
    results_page()["draw_distances"](tmp_path)
    drawn = (tmp_path / "distance.svg").read_text()
    titles = ["the same games", "another game", "mirror images of what was seen"]
    assert [drawn.count(f"<!-- {title} -->") for title in titles] == [1, 1, 1]
    assert (drawn.count("<!-- leap -->"), drawn.count("<!-- unknown -->")) == (3, 0)


def test_the_figure_of_distances_is_of_the_studies_in_the_docs(tmp_path: Path) -> None:
    for estimates in RESULTS.glob("*/estimates.json"):
        shutil.copytree(estimates.parent, tmp_path / estimates.parent.name)
    results_page()["draw_distances"](tmp_path)
    if not any(tmp_path.iterdir()):
        pytest.skip("no study is in the docs yet")
    assert texts_of(tmp_path / "distance.svg") == texts_of(RESULTS / "distance.svg")


def texts_of(drawing: Path) -> list[str]:
    return re.findall("<!-- (.*) -->", drawing.read_text())


@pytest.mark.parametrize("beside", sorted(path.parent for path in RESULTS.glob("*/estimates.json")))
def test_pages_of_studies_are_made_again_from_what_lies_beside_them(beside: Path) -> None:
    assert (ROOT / "studies" / f"{beside.name}.yaml").exists()
    assert beside.with_suffix(".md").read_text() == results_page()["page"](beside)


CARD_OF_LEAP, OF_BREAKOUT = (locate(f"{name}-leap") / CARD for name in ("minatar", "breakout"))
LEFT_OUT, TURN = RESULTS / "minatar_left_out.md", RESULTS / "minatar_turn.md"
ORDERS, CHEETAH = RESULTS / "minatar_permutations.md", RESULTS / "half_cheetah.md"
EQ8, UNSEEN = RESULTS / "minatar_eq8.md", RESULTS / "minatar_unseen.md"


@pytest.mark.parametrize(
    ("page", "source", "numbers"),
    [
        ("docs/results.md", CARD_OF_LEAP, "80,600|75,900 to 85,300|99,300|68,200|30,500|15,900"),
        ("docs/results.md", LEFT_OUT, "53,500|43,800 to 63,100|60,600|-774 to 12,200"),
        ("docs/results.md", TURN, "44,700|74,300|19,700 to 30,900|5,400 to 27,500"),
        ("docs/results.md", ORDERS, "49,700 to 92,000|10,100 to 11,800|-18,200 to 24,100|56,500"),
        ("docs/results.md", CHEETAH, "52,600|90,500|68,400|74,700|70,500|61,200 to 79,900|33,800"),
        ("docs/results.md", EQ8, "46,800|42,800 to 50,800|75,500|58,600|11,800 (8,120 to 15,400)"),
        ("docs/results.md", UNSEEN, "10,300|2,620 to 18,000|4,770|42,100|56,000|72,400"),
        (
            "docs/results.md",
            OF_BREAKOUT,
            "111,000|94,600 to 128,000|113,000|51,400|8,420 to 94,300",
        ),
        ("README.md", OF_BREAKOUT, "111,000|94,600 to 128,000|113,000|29|51,400|82,200"),
        ("README.md", CHEETAH, "52,600|29,100 to 76,100|90,500|122|68,400|70,500|91"),
        ("README.md", ORDERS, "67,900|65,300 to 70,400|75,300|107"),
        ("README.md", TURN, "44,700|74,300|35,700 to 53,600|25,300|162|285"),
        ("README.md", LEFT_OUT, "87,200|82,500 to 91,900|102,000|13,800"),
    ],
)
def test_what_a_page_says_of_starts_on_games_is_what_was_measured(
    page: str, source: Path, numbers: str
) -> None:
    said = " ".join((ROOT / page).read_text().split())
    measured = source.read_text()
    for number in numbers.split("|"):
        assert number in said
        assert number in measured
