from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from leap_rl.evaluation.cells import CellFile, compute_cells, key_of

CELLS = [{"method": name, "seed": seed} for name in ("a", "b") for seed in (0, 1)]


def square(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {"value": cell["seed"] ** 2, "name": cell["method"]}


def fail(cell: Mapping[str, Any]) -> dict[str, Any]:
    raise RuntimeError("must not be computed again")


def test_finished_cells_are_computed_once(tmp_path: Path) -> None:
    file, said = CellFile(tmp_path / "new" / "cells.jsonl"), []
    results = compute_cells(CELLS, square, file, processes=2, progress=said.append)
    assert results[key_of({"seed": 1, "method": "b"})] == {"value": 1, "name": "b"}
    assert len(results) == 4
    assert said[0] == "0 of 4 cells are done"
    assert said[-1].startswith("4 of 4: ")
    again = compute_cells(CELLS, fail, file, processes=1, progress=said.append)
    assert again == results


def test_a_torn_line_costs_its_cell_alone(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    file = CellFile(path)
    file.add(CELLS[0], {"value": 1.5})
    file.add(CELLS[1], {"value": 2.5})
    path.write_bytes(path.read_bytes()[:-9])
    assert list(file.read()) == [key_of(CELLS[0])]
    file.add(CELLS[2], {"value": 3.5})
    assert [result["value"] for result in file.read().values()] == [1.5, 3.5]


def test_damage_before_the_end_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text('{"cell"\n{"cell": {}, "result": {}}\n')
    with pytest.raises(ValueError, match="line 1: is damaged"):
        CellFile(path).read()
