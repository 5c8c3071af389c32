"""Tables of agents in the docs are those that their commands make of the cells beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import layers, sb3
from benchmarks.harness.cells import CellFile

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
_MINATAR = ["--games", "MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1"]
_ATARI = ["--games", "breakout", "assault", "--seeds", "3", "--agent_steps", "200000"]
GAMES = ["Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"]
_LAYERS = ["--init", "pretrained:minatar-leap", "--agent_steps", "200000"]
_LAYERS += ["--games", *(f"MinAtar/{game}-v1" for game in GAMES)]
AGENTS = {
    "sb3_starts": (sb3, "sb3_starts.md", "docs/your_own_code.md", ["starts"]),
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


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_what_a_page_says_of_the_encoder_that_comes_along_is_in_its_table(page: str) -> None:
    said = " ".join((ROOT / page).read_text().split())
    table = (RESULTS / "layers/layers.md").read_text()
    for numbers in ("71,000 of at most 84,200", "58,800 to 83,200", "18,200", "10,300 to 26,100"):
        assert numbers in said
        assert numbers in table
