from __future__ import annotations

from dataclasses import replace

import pytest

from leap_rl.tracking.rows import (
    MetaFigures,
    SlotFigures,
    dropped_row,
    learn_row,
    meta_step_row,
)

META = MetaFigures(contribution_norm=2.0, step_norm=0.5, initialization_norm=10.0, meta_step_s=4.0)
PONG = SlotFigures(
    game="pong",
    agent_steps=1000,
    frames_per_agent_step=4,
    path={"energy": 1.0, "loss_pull": 2.0, "displacement": 3.0},
    contribution_norm=4.0,
    cosine=0.5,
    losses={"total": 1.0, "policy": 0.25, "value": 2.0, "entropy": 1.5},
    episode_return_sum=-42.0,
    episodes=2,
    working_s=6.0,
    waiting_s=1.0,
)


def test_the_row_of_one_game() -> None:
    row = meta_step_row(meta_step=3, slots=[PONG], meta=META, agent_steps_before=3000)
    assert row == {
        "meta_step": 3,
        "agent_steps": 4000,
        "frames": 16000,
        "meta/contribution_norm": 2.0,
        "meta/step_norm": 0.5,
        "meta/initialization_norm": 10.0,
        "meta/step_ratio": 0.05,
        "path/pong/energy": 1.0,
        "path/pong/loss_pull": 2.0,
        "path/pong/displacement": 3.0,
        "path/pong/contribution_norm": 4.0,
        "path/pong/cosine": 0.5,
        "return/pong/mean": -21.0,
        "return/pong/episodes": 2,
        "loss/pong/total": 1.0,
        "loss/pong/policy": 0.25,
        "loss/pong/value": 2.0,
        "loss/pong/entropy": 1.5,
        "tasks/restarted": 0,
        "tasks/cut_off": 0,
        "tasks/dropped": 0,
        "time/working_s": 6.0,
        "time/waiting_s": 1.0,
        "time/meta_step_s": 4.0,
        "throughput/agent_steps_per_s": 250.0,
    }


def test_what_went_wrong_is_counted() -> None:
    meta = replace(META, tasks_restarted=2, tasks_cut_off=1, dropped=["pong", "alien", "pong"])
    row = meta_step_row(meta_step=0, slots=[PONG], meta=meta, agent_steps_before=0)
    told = {key: value for key, value in row.items() if key.startswith("tasks/")}
    assert told == {
        "tasks/restarted": 2,
        "tasks/cut_off": 1,
        "tasks/dropped": 3,
        "tasks/pong/dropped": 2,
        "tasks/alien/dropped": 1,
    }
    assert dropped_row(game="pong", agent_steps=7) == {"agent_steps": 7, "tasks/pong/dropped": 1}


def test_two_games_cosine_is_the_mean_over_their_slots() -> None:
    cosines = {("breakout", "pong"): [0.5, 0.1], ("pong", "pong"): [0.9]}
    row = meta_step_row(
        meta_step=0, slots=[PONG], meta=replace(META, cosines=cosines), agent_steps_before=0
    )
    told = {key: value for key, value in row.items() if key.startswith("cosine/")}
    assert told == {"cosine/breakout/pong": pytest.approx(0.3), "cosine/pong/pong": 0.9}


def test_a_game_in_several_slots_is_averaged_and_its_episodes_pooled() -> None:
    other = replace(PONG, game="breakout", working_s=10.0)
    again = replace(
        PONG,
        path={"energy": 3.0, "loss_pull": 6.0, "displacement": 5.0},
        contribution_norm=8.0,
        cosine=None,
        losses={"total": 2.0, "policy": 0.75, "value": 4.0, "entropy": 0.5},
        episode_return_sum=21.0,
        episodes=1,
        working_s=2.0,
    )
    row = meta_step_row(meta_step=0, slots=[PONG, other, again], meta=META, agent_steps_before=0)
    assert row["path/pong/energy"] == 2.0
    assert row["path/pong/loss_pull"] == 4.0
    assert row["path/pong/displacement"] == 4.0
    assert row["path/pong/contribution_norm"] == 6.0
    assert row["path/pong/cosine"] == 0.5  # over the one slot that has it
    assert row["loss/pong/total"] == 1.5
    assert row["loss/pong/entropy"] == 1.0
    # (-42 + 21) / 3 episodes; the mean of the slots' means would be 0.
    assert row["return/pong/mean"] == -7.0
    assert row["return/pong/episodes"] == 3
    assert row["return/breakout/mean"] == -21.0
    assert row["agent_steps"] == 3000
    assert row["time/working_s"] == 18.0
    assert row["time/waiting_s"] == 3.0
    assert row["throughput/agent_steps_per_s"] == 750.0


def test_what_is_undefined_is_left_out() -> None:
    slot = replace(
        PONG,
        frames_per_agent_step=0,
        cosine=None,
        episode_return_sum=0.0,
        episodes=0,
        losses={"total": 1.0},
        path={"length": 1.0},
    )
    at_zero = replace(META, initialization_norm=0.0, meta_step_s=0.0)
    row = meta_step_row(meta_step=0, slots=[slot], meta=at_zero, agent_steps_before=0)
    assert sorted(row) == sorted(
        [
            "meta_step",
            "agent_steps",
            "meta/contribution_norm",
            "meta/step_norm",
            "meta/initialization_norm",
            "path/pong/length",
            "path/pong/contribution_norm",
            "return/pong/episodes",
            "loss/pong/total",
            "tasks/restarted",
            "tasks/cut_off",
            "tasks/dropped",
            "time/working_s",
            "time/waiting_s",
            "time/meta_step_s",
        ]
    )
    assert row["return/pong/episodes"] == 0


def test_a_learning_row() -> None:
    row = learn_row(
        game="pong",
        agent_steps=5120,
        losses={"total": 1.0, "policy": 0.5},
        episode_return_sum=-30.0,
        episodes=4,
        agent_steps_per_s=800.0,
    )
    assert row == {
        "agent_steps": 5120,
        "return/pong/mean": -7.5,
        "return/pong/episodes": 4,
        "loss/pong/total": 1.0,
        "loss/pong/policy": 0.5,
        "throughput/pong/agent_steps_per_s": 800.0,
    }


def test_an_unregistered_figure_is_refused() -> None:
    slot = replace(PONG, losses={"critic": 1.0})
    with pytest.raises(AssertionError, match="loss/pong/critic is not in METRICS"):
        meta_step_row(meta_step=0, slots=[slot], meta=META, agent_steps_before=0)
    with pytest.raises(AssertionError, match="loss/pong/critic is not in METRICS"):
        learn_row(
            game="pong",
            agent_steps=1,
            losses={"critic": 1.0},
            episode_return_sum=0.0,
            episodes=0,
            agent_steps_per_s=1.0,
        )
