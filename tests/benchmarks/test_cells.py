from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.cells import CellFile, compute_cells, key_of
from leap_rl.core.errors import RunFailedError

pytestmark = pytest.mark.usefixtures("forked")

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


def test_a_line_that_lacks_its_newline_alone_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    file = CellFile(path)
    file.add(CELLS[0], {"value": 1.5})
    path.write_text(path.read_text().rstrip("\n"))
    file.add(CELLS[1], {"value": 2.5})
    assert [result["value"] for result in file.read().values()] == [1.5, 2.5]


@pytest.mark.parametrize("line", ["{", "{}", '{"cell": {}}', '{"cell": 1, "result": {}}', "[]"])
def test_damage_is_told_even_in_the_last_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    CellFile(path).add(CELLS[0], {"value": 1.5})
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match="line 2: is damaged"):
        CellFile(path).read()


def test_damage_before_the_end_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text('{"cell"\n{"cell": {}, "result": {}}\n')
    with pytest.raises(ValueError, match="line 1: is damaged"):
        CellFile(path).read()


def fail_beside_another(cell: Mapping[str, Any], *, sign: Path) -> dict[str, Any]:
    if cell == CELLS[0]:
        sign.touch()
        raise ValueError("cell 0 asks for too much")
    while not sign.exists():
        time.sleep(0.02)
    time.sleep(0.5)
    return square(cell)


def test_a_cell_that_fails_costs_none_of_those_under_way(tmp_path: Path) -> None:
    file = CellFile(tmp_path / "cells.jsonl")
    work = partial(fail_beside_another, sign=tmp_path / "sign")
    with pytest.raises(ValueError, match="cell 0 asks for too much"):
        compute_cells(CELLS, work, file, processes=2, progress=lambda _: None)
    assert list(file.read()) == [key_of(CELLS[1])]


def kill_oneself(cell: Mapping[str, Any]) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_a_process_that_is_killed_is_told(tmp_path: Path) -> None:
    file = CellFile(tmp_path / "cells.jsonl")
    with pytest.raises(RunFailedError, match="a process that computed a cell was killed"):
        compute_cells(CELLS, kill_oneself, file, processes=1, progress=lambda _: None)


def test_a_long_silence_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.harness.cells.SILENCE_S", 0.2)
    said: list[str] = []
    (tmp_path / "sign").touch()
    work = partial(fail_beside_another, sign=tmp_path / "sign")
    file = CellFile(tmp_path / "cells.jsonl")
    compute_cells(CELLS[1:3], work, file, processes=1, progress=said.append)
    assert re.fullmatch(r"0 of 2, 1 under way, 0:00:\d\d elapsed", said[1])
    assert re.fullmatch(r"1 of 2, 1 under way, 0:00:\d\d elapsed, about 0:00:\d\d left", said[-2])
