"""What is said is printable, and short enough to show what is wrong."""

from __future__ import annotations

import json
import logging
import re
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from leap_rl.cli import main
from leap_rl.core.errors import explained
from leap_rl.core.lines import escape_logged, printable, say
from leap_rl.runs.display import tell
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.run_lock import this_process
from leap_rl.tracking.console import make_console
from tests.commands import Refused

PACKAGE = Path(__file__).parents[2] / "leap_rl"
TITLE = "\x1b]0;owned\x07\u202e"
ESCAPED = r"\x1b]0;owned\x07\u202e"


def test_what_is_not_printable_is_escaped_and_lines_stay() -> None:
    assert printable(f"Straße, 良い\n{TITLE}\udc80") == f"Straße, 良い\n{ESCAPED}\\udc80"
    assert explained(ValueError(TITLE))[1] == ESCAPED


def test_nothing_is_printed_but_by_say() -> None:
    found = [
        path for path in PACKAGE.rglob("*.py") if re.search(r"(?<![\w.])print\(", path.read_text())
    ]
    assert found == [PACKAGE / "core" / "lines.py"]


@pytest.mark.parametrize("kind", ["plain", "rich"])
def test_whatever_speaks_escapes(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    say(TITLE)
    tell(TITLE)
    make_console(kind).message(TITLE)  # type: ignore[arg-type]
    escape_logged()
    handler = logging.lastResort
    assert handler is not None
    handler.handle(logging.makeLogRecord({"msg": TITLE, "levelno": logging.WARNING}))
    said = capsys.readouterr()
    assert said.out == f"{ESCAPED}\n"
    assert said.err.count(ESCAPED) == 3
    assert "\x1b]" not in said.err


def test_a_locks_host_and_a_configs_key_reach_no_terminal(
    tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--config", "debug", "--runtime.kind", "local", "--runtime.stop_after_s",
                 "0.01", "--run_dir", str(tmp_path / "run")]) == 75  # fmt: skip
    holder = {**asdict(this_process(time.time())), "host": TITLE, "boot": "another machine"}
    (tmp_path / "run/.lock").write_text(json.dumps(holder))
    capsys.readouterr()
    for command in ("watch", "verify"):
        main([command, str(tmp_path / "run"), *(["--once"] if command == "watch" else [])])
    assert capsys.readouterr().out.count(f" on {ESCAPED} (since ") == 2
    (tmp_path / "run/.lock").write_bytes(b"")

    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"\x1b]0;owned\x07": 1}))
    assert r"holds the control character '\x1b'" in refused("train", "--config", path)
    assert RunFolder(tmp_path / "run").worker() is None


def test_a_long_path_is_not_the_whole_message(refused: Refused) -> None:
    line = refused("resume", "runs/" + 5000 * "a", status=1)
    assert len(line) < 500
    assert "runs/aaa" in line
    assert "too long" in line
    assert explained(ValueError(300 * "b"))[1] == 300 * "b"
