"""Study files and folders of strangers: one line, at once, and nothing written outside."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from leap_rl.core import plain_yaml
from leap_rl.studies.progress import clock_of
from tests.commands import Refused

STUDY = "games: [CartPole-v1]\nheld_out: [leap_rl/CartPole-v1@gravity=20.0]\n"

DIGITS = "1" + "0" * 399


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("runs: 1000000000", "runs = 1000000000: must be at least 1 and at most 1,000"),
        ("agents: 1000000000", "agents = 1000000000: must be at least 1 and at most 1,000"),
        ("random_agents: 1001", "random_agents = 1001: must be at least 1 and at most 1,000"),
        ("arms: {1: {meta.p: 1}}", "arms = 1: a name has letters"),
        ("arms: {null: {meta.p: 1}}", "arms = None: a name has letters"),
        ("arms: {true: {meta.p: 1}}", "arms = True: a name has letters"),
        (f"agent: {{lr: {DIGITS}}}", "line 3: a number has 400 digits"),
        (f"arms: {{mine: {{agent.lr: -{DIGITS}}}}}", "line 3: a number has 401 digits"),
        ('question: "a\\0b"', r"line 3: a text holds the control character '\x00'"),
        ('arms: {"\\e[2J": {meta.p: 1}}', r"line 3: a text holds the control character '\x1b'"),
    ],
    ids=lambda text: text[:40],
)
def test_a_study_file_that_lies_is_one_line(
    text: str, says: str, tmp_path: Path, refused: Refused
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"{STUDY}{text}\n")
    started = time.monotonic()
    line = refused("study", file, "--out", tmp_path / "out")
    assert says in line
    assert len(line) < 500
    assert time.monotonic() - started < 10
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", ["0x" + "f" * 20, "0b" + "1" * 20, "1:" * 10 + "1"])
def test_whole_numbers_have_no_more_digits_than_64_bits(number: str) -> None:
    with pytest.raises(plain_yaml.NotPlainError, match=r"a number has 2. digits"):
        plain_yaml.load(f"seed: {number}")


def test_what_only_looks_like_a_long_number_is_a_text() -> None:
    digest = "0b" + "5a" * 31
    text = f"a: {digest}\nb: '{DIGITS}'\nc: {2**64 - 1}\nd: a\tb\u00e9\U0001f3ae\n"
    assert plain_yaml.load(text) == {"a": digest, "b": DIGITS, "c": 2**64 - 1, "d": "a\tbé🎮"}


@pytest.mark.parametrize("seconds", [1e20, float("inf")])
def test_a_time_without_end_has_words(seconds: float) -> None:
    assert clock_of(seconds) == "999999999 days, 23:59:59"
