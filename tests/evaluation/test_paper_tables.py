"""The tables in docs/paper.md are rows of those that their commands make of the kept results."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/paper.md").read_text()
COMMANDS = [shlex.split(line) for line in re.findall(r"^\.venv/bin/python -m (.*)$", PAGE, re.M)]
TABLES = {
    "scores": "omniglot_scores",
    "share_all": "omniglot_scores",
    "ablation": "omniglot_ablation",
    "jacobian": "omniglot_jacobian",
    "jacobian_layer": "omniglot_jacobian",
    "multi_cv": "multi_cv",
}
"""The script of each, in the order of the page."""


def tables_of(folder: Path, kind: str = "md") -> dict[str, str]:
    return {file.name: file.read_text().strip() for file in sorted(folder.glob(f"*.{kind}"))}


def command_of(table: str) -> list[str]:
    return list(COMMANDS[list(TABLES).index(table)])


@pytest.mark.parametrize("table", ["scores", "share_all", "ablation", "multi_cv"])
def test_a_table_is_made_again_from_its_results(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = command_of(table)
    made_by = TABLES[table].removeprefix("omniglot_")
    out = tmp_path / table
    out.mkdir()
    shutil.copy(ROOT / "docs/paper" / table / "cells.jsonl", out)
    data = words.index("--data")
    words[data + 1] = str(tmp_path / "no drawings are needed")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", [*words, "--out", str(out)])
    assert import_module(words[0]).main() == 0
    assert not (out / "runs").exists()
    made = tables_of(out)
    assert made == tables_of(ROOT / "docs/paper" / table)
    assert list(made) in ([f"{made_by}.md"], [f"{made_by}.md", f"{made_by}_differences.md"])
    assert tables_of(out, "csv") == tables_of(ROOT / "docs/paper" / table, "csv")


@pytest.mark.parametrize("table", ["jacobian", "jacobian_layer"])
def test_the_jacobians_are_those_that_were_measured(table: str) -> None:
    folder = ROOT / "docs/paper" / table
    (made,) = tables_of(folder).values()
    cells = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    rows = [row.strip("| ").split(" | ") for row in made.splitlines()[2:]]
    found: list[Any] = [
        [str(cell["cell"]["lr"]), update, f"{value:.2e}"]
        for cell in cells
        for update, value in cell["result"]["precision"].items()
    ]
    assert sorted(rows) == sorted(found)


def test_the_page_has_rows_of_the_tables_and_links_to_what_it_leaves_out() -> None:
    files = sorted((ROOT / "docs/paper").glob("*/*.md"))
    tables = {file: file.read_text().strip() for file in files}
    for shown in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        head, rows = shown.splitlines()[:2], set(shown.splitlines()[2:])
        made = [table.splitlines() for table in tables.values()]
        assert any(head == table[:2] and rows <= set(table[2:]) for table in made), shown
    for file, table in tables.items():
        assert table in PAGE or f"(paper/{file.parent.name}/{file.stem}.csv)" in PAGE, file


def test_every_command_of_the_page_has_its_table() -> None:
    assert [words[0].rpartition(".")[2] for words in COMMANDS] == list(TABLES.values())
    folders = {path.name for path in (ROOT / "docs/paper").iterdir()}
    assert folders == set(TABLES)
