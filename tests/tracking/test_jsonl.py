from __future__ import annotations

from pathlib import Path

import pytest

from leap_rl.tracking.jsonl import JsonlSink, read_rows
from leap_rl.tracking.metrics import by_game

ROWS = [{"meta_step": 0, "meta/step_norm": 0.1}, {"meta_step": 1, "meta/step_norm": 1e-17}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def write(path: Path, rows: list[dict[str, float | int]]) -> None:
    sink = JsonlSink(path)
    for row in rows:
        sink.write(row, "meta_step")
    sink.close()


def test_rows_are_appended_and_can_be_read_at_once(path: Path) -> None:
    assert read_rows(path) == []
    write(path, ROWS[:1])
    sink = JsonlSink(path)
    sink.write(ROWS[1], "meta_step")
    assert read_rows(path) == ROWS
    sink.close()
    assert path.read_text().count("\n") == 2


@pytest.mark.parametrize("rows", [ROWS, []])
@pytest.mark.parametrize(
    "torn",
    [
        b'{"meta_step": 2, "meta/st',  # no newline, no JSON
        b'{"meta_step": 2}',  # no newline, though the JSON is whole
        b'{"meta_step": 2, "meta\n',  # a newline, but no JSON
        b"\0\0\0\0\n",
        b"2\n",  # JSON, but not a row
    ],
)
def test_a_torn_last_line_is_not_read_and_is_cut_off(
    path: Path, torn: bytes, rows: list[dict[str, float | int]]
) -> None:
    write(path, rows)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert read_rows(path) == rows
    JsonlSink(path).close()
    assert path.read_bytes() == whole
    write(path, [{"meta_step": 2}])
    assert read_rows(path) == [*rows, {"meta_step": 2}]


def test_damage_before_the_last_line_is_an_error_that_numbers_the_line(path: Path) -> None:
    path.write_bytes(b'{"meta_step": 0}\nxx\n{"meta_step": 2}\n')
    with pytest.raises(ValueError, match=r"line 2: not a JSON object"):
        read_rows(path)


def test_a_metric_of_games_is_found_by_their_whole_names() -> None:
    row = {
        "loss/a/total": 1.0,
        "loss/MinAtar/Breakout-v1/total": 3.0,
        "loss/a/validation": 9.0,
        "path/a/total": 9.0,
        "losses/a/total": 9.0,
        "loss/total": 9.0,
        "meta_step": 0,
    }
    assert by_game(row, "loss", "total") == {"a": 1.0, "MinAtar/Breakout-v1": 3.0}
