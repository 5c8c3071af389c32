"""The tables in docs/results.md are those that their protocols make of the cells beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import layers, meta_training, sb3
from benchmarks.harness.cells import CellFile

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
PAGE = (ROOT / "docs/results.md").read_text()
_MINATAR = ["--games", "MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1"]
_ATARI = ["--games", "breakout", "assault", "--seeds", "3", "--agent_steps", "200000"]
GAMES = ["Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"]
_LAYERS = ["--init", "pretrained:minatar-leap", "--agent_steps", "200000"]
_LAYERS += ["--games", *(f"MinAtar/{game}-v1" for game in GAMES)]
AGENTS = {
    "sb3_starts": (sb3, "sb3_starts.md", "docs/your_own_code.md", ["starts"]),
    "sb3_agents": (sb3, "sb3_agents.md", "docs/results.md", ["agents", *_MINATAR]),
    "sb3_agents_atari": (sb3, "sb3_agents.md", "docs/results.md", ["agents", *_ATARI]),
    "layers": (layers, "layers.md", "docs/results.md", _LAYERS),
}
"""Experiments without a protocol: their command, table, page, and arguments."""
NAMES = sorted({path.name for path in RESULTS.iterdir()} - AGENTS.keys())


def protocol_of(name: str) -> Path:
    """An experiment that this version cannot run any more has its protocol beside its cells."""
    own = RESULTS / name / f"{name}.yaml"
    return own if own.exists() else ROOT / f"benchmarks/protocols/{name}.yaml"


@pytest.mark.parametrize("name", NAMES)
def test_tables_and_plots_are_made_again_from_their_cells(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leap_rl.evaluation.plots.FORMATS", ("svg",))
    argv = [str(protocol_of(name)), "--out", str(tmp_path)]
    given = meta_training.options().parse_args(argv)
    meta_training.report(given, CellFile(RESULTS / name / "cells.jsonl").read())
    made = {path.name: path.read_text() for path in tmp_path.glob("*.md")}
    assert made == {path.name: path.read_text() for path in (RESULTS / name).glob("*.md")}
    assert all(text.strip() in PAGE for text in made.values())
    drawn = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert drawn == sorted(path.name for path in (RESULTS / name).glob("*.svg"))
    assert all(f"results/{name}/{each}" in PAGE for each in drawn)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_was_asked_and_how_it_was_run(name: str) -> None:
    protocol = meta_training.read_protocol(protocol_of(name))
    assert protocol["question"] in PAGE
    path = protocol_of(name).relative_to(ROOT)
    assert str(path) in PAGE


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
    assert f"results/{name}/{plot}" in (ROOT / page).read_text()


IN_SHORT = {
    "| Breakout | Breakout |": ("single_game", "MinAtar Breakout"),
    "| six sides of Breakout |": ("orientations", "Breakout from six sides"),
    "| three turns of Breakout, mirrored too |": ("unseen_turn", "Breakout in three turns"),
} | {
    f"| the four other games | {game} |": ("leave_one_out", f"without {game}")
    for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "Space Invaders")
}
"""Rows of the table in short, by how they begin: their experiment and its pool."""


@pytest.mark.parametrize("start", IN_SHORT)
@pytest.mark.parametrize("page", [PAGE, (ROOT / "README.md").read_text()], ids=["page", "readme"])
def test_what_is_said_in_short_is_what_the_verdicts_say(start: str, page: str) -> None:
    name, pool = IN_SHORT[start]
    verdicts = (RESULTS / name / f"{name}_evaluation_verdicts.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith(start))
    for method, cell in zip(
        ("leap", "reptile", "pretraining"), row.strip("| ").split(" | ")[-3:], strict=True
    ):
        said = re.search(
            rf"^\* {pool}: {method} against random: .*?area under the curve ([+-]\d+) % "
            r"\(95 % interval ([+-]\d+) % to ([+-]\d+) %\)",
            verdicts,
            re.MULTILINE,
        )
        assert said
        shown = re.fullmatch(r"([+-]?\d+) % \((-?\d+) to (-?\d+)\)", cell)
        assert shown
        assert [int(value) for value in shown.groups()] == [int(value) for value in said.groups()]
