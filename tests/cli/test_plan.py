from __future__ import annotations

import json
from pathlib import Path

import pytest

from leap_rl.cli import main

PAPER = str(Path(__file__).parents[2] / "configs/atari_paper.yaml")


def test_the_papers_run_is_planned_from_a_given_speed(capsys: pytest.CaptureFixture[str]) -> None:
    argv = f"plan --config {PAPER} --trainers 12 --agent_steps_per_s 2500 --json".split()
    assert main(argv) == 0
    figures = json.loads(capsys.readouterr().out)
    # 5 million agent steps take 2,000 s; 16 tasks on 12 trainers two rounds; 100 meta-steps.
    assert figures["hours"] == pytest.approx(100 * 2 * 2000 / 3600)
    assert figures["core_hours"] == pytest.approx(12 * figures["hours"])
    assert figures["idle_share"] == pytest.approx(1 / 3)
    assert figures["floor_hours"] == pytest.approx(figures["hours"] / 2)


def test_the_plan_is_printed_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--agent_steps_per_s", "2500", "--runtime.trainers", "16"]) == 0
    text = capsys.readouterr().out
    assert "100 meta-steps of 16 tasks, 5,000,000 agent steps each, on 16 trainers" in text
    assert "55.6 hours" in text
    assert "as given" in text


@pytest.mark.slow
def test_the_speed_is_measured_where_it_is_not_given(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", "--task.games", '["pong"]', "--task.num_envs", "2", "--seconds", "1"]
    assert main([*argv, "--trainers", "16", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    (rate,) = figures["agent_steps_per_s_per_trainer"].values()
    assert figures["hours"] == pytest.approx(100 * 5e6 / rate / 3600, rel=0.01)
    assert any("others used" in line for line in figures["assumed"])


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--trainers 0", ["trainers = 0", "at least 1"]),
        ("--agent_steps_per_s 0", ["agent_steps_per_s = 0.0", "greater than 0"]),
        ("--seconds -1", ["seconds = -1.0"]),
        ("--task.kind catch", ["task.kind = catch", "--agent_steps_per_s"]),
        ("--meta.meta_stepps 3", ["meta.meta_stepps", "meta.meta_steps"]),
    ],
)
def test_bad_input_gets_one_line(
    words: str, parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert all(part in captured.err for part in parts), captured.err
