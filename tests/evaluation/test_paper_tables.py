"""The tables in docs/paper.md are those that their commands make of the results beside them."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/paper.md").read_text()
COMMANDS = [shlex.split(line) for line in re.findall(r"^\.venv/bin/python (.*)$", PAGE, re.M)]


def table_of(folder: Path) -> str:
    (table,) = folder.glob("*.md")
    return table.read_text().strip()


@pytest.mark.parametrize("table", ["scores", "ablation"])
def test_a_table_is_made_again_from_its_results(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (words,) = [words for words in COMMANDS if words[0].endswith(f"omniglot_{table}.py")]
    out = tmp_path / table
    out.mkdir()
    shutil.copy(ROOT / "docs/paper" / table / "cells.jsonl", out)
    data = words.index("--data")
    words[data + 1] = str(tmp_path / "no drawings are needed")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", [*words, "--out", str(out)])
    runpy.run_path(words[0], run_name="__main__")
    assert not (out / "runs").exists()
    assert table_of(out) == table_of(ROOT / "docs/paper" / table)
    assert table_of(out) in PAGE


@pytest.mark.parametrize("table", ["jacobian", "jacobian_layer"])
def test_the_jacobians_are_those_that_were_measured(table: str) -> None:
    folder = ROOT / "docs/paper" / table
    made = table_of(folder)
    assert made in PAGE
    cells = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    rows = [row.strip("| ").split(" | ") for row in made.splitlines()[2:]]
    found: list[Any] = [
        [str(cell["cell"]["lr"]), update, f"{value:.2e}"]
        for cell in cells
        for update, value in cell["result"]["precision"].items()
    ]
    assert sorted(rows) == sorted(found)


def test_every_command_of_the_page_has_its_table() -> None:
    assert [Path(words[0]).stem for words in COMMANDS] == [
        "omniglot_scores",
        "omniglot_ablation",
        "omniglot_jacobian",
        "omniglot_jacobian",
    ]
