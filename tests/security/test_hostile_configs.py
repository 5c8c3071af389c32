"""Configs that would run code, or fill the memory, get one clear line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from leap_rl.storage.run_folder import RunFolder
from tests.commands import LOCALLY, Refused

pytestmark = pytest.mark.usefixtures("without_plots")


TAG = "!!python/object/apply:builtins.open ['{canary}', 'w']"
BOMB = "".join(f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 10) if i else 'x'}]\n" for i in range(12))
DEEP = "seed: " + "[" * 50_000 + "]" * 50_000

HOSTILE = {
    "tag": ("seed: {tag}\n", "could not determine a constructor"),
    "tag in a list": ("task:\n  games: [{tag}]\n", "could not determine a constructor"),
    "class": ("task:\n  class_path: canary_module.Task\n", "names options, never classes"),
    "bomb": ("{bomb}", "refers to an anchor"),
    "bomb in an option": ("{bomb}task:\n  games: *b11\n", "refers to an anchor"),
    "bomb in a text": ("task:\n  games: |\n    [&a [x], *a]\n", "refers to an anchor"),
    "deep": ("{deep}", "nested more than"),
    "long": ("seed: 1 #{long}\n", "characters"),
    "module": ("task:\n  games: [canary_module:Breakout-v5]\n", "no game or pool is named"),
    "module after a slash": ("task:\n  games: [ALE/canary_module:Pong-v5]\n", "no game or pool"),
    "way out": ("task:\n  games: [../../pong]\n", "no game or pool is named"),
}


@pytest.fixture
def module(tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that can be imported, and creates the canary when it is."""
    path = tmp_path / "modules" / "canary_module.py"
    path.parent.mkdir()
    path.write_text(f"open({str(canary)!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(path.parent))
    return path


def hostile(text: str, canary: Path) -> str:
    parts = {"{tag}": TAG.format(canary=canary), "{bomb}": BOMB, "{deep}": DEEP}
    for name, part in {**parts, "{long}": "x" * 2**21}.items():
        text = text.replace(name, part)
    return text


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_config_is_one_line(
    name: str, tmp_path: Path, canary: Path, refused: Refused
) -> None:
    text, says = HOSTILE[name]
    config = tmp_path / "config.yaml"
    config.write_text(hostile(text, canary))
    started = time.monotonic()
    line = refused("train", *LOCALLY, "--config", config, "--run_dir", tmp_path / "new")
    assert time.monotonic() - started < 10
    assert says in line
    assert len(line) < 2000
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_run_of_a_hostile_config_is_one_line(
    name: str, run: Path, canary: Path, refused: Refused
) -> None:
    folder = RunFolder(run)
    before = sorted(path for path in run.rglob("*"))
    own = folder.config_path.read_text()
    stored = folder.read_config()
    text, _ = HOSTILE[name]
    if "games" in text and "b11" not in text:
        stored["task"]["kind"] = "atari"
        stored["task"]["games"] = ["canary_module:Breakout-v5"]
        folder.write_config(stored)  # its sum is right
    else:
        # The sum of a bomb is that of what it stands for, which nobody should work out.
        folder.config_path.write_text(own + hostile(text, canary))
    started = time.monotonic()
    line = refused("resume", run)
    assert time.monotonic() - started < 10
    assert "config.yaml: " in line
    assert len(line) < 2000
    assert sorted(path for path in run.rglob("*")) == before
