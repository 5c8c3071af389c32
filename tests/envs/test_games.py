from __future__ import annotations

import re

import pytest

from leap_rl.envs.atari.games import ACTION_COUNTS, POOLS, resolve_games


def test_pools_have_the_papers_sizes() -> None:
    sizes = {name: len(games) for name, games in POOLS.items()}
    assert sizes == {
        "pretraining": 25,
        "held_out": 2,
        "large_action": 35,
        "paper": 9,
        "all": 62,
    }


def test_three_pools_share_out_all_of_atari() -> None:
    parts = POOLS["pretraining"] + POOLS["held_out"] + POOLS["large_action"]
    assert sorted(parts) == sorted(POOLS["all"])
    assert len(set(parts)) == 62


def test_the_papers_games_have_the_action_spaces_of_its_table() -> None:
    # (actions, in the pretraining set), row by row.
    table = [(6, True), (6, True), (10, True), (4, False), (6, False)]
    table += [(14, False), (18, False), (18, False), (18, False)]
    ours = [(ACTION_COUNTS[game], game in POOLS["pretraining"]) for game in POOLS["paper"]]
    assert ours == table


@pytest.mark.parametrize("name", ["up_n_down", "UpNDown", "ALE/UpNDown-v5", "UpNDown-v4"])
def test_gymnasiums_names_are_understood(name: str) -> None:
    assert resolve_games([name]) == ("up_n_down",)


def test_every_game_is_found_by_its_name_and_its_gymnasium_id() -> None:
    for game in ACTION_COUNTS:
        gymnasium_id = f"ALE/{game.title().replace('_', '')}-v5"
        assert resolve_games([game]) == resolve_games([gymnasium_id]) == (game,)


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    message = (
        "task.games: no game or pool is named 'pongg'; did you mean 'pong'? "
        "(leap-rl games lists all)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        resolve_games(["breakout", "pongg"])


def test_an_unknown_name_like_no_other_is_refused_without_one() -> None:
    with pytest.raises(ValueError, match=r"named 'xyzzy' \(leap-rl games lists all\)$"):
        resolve_games(["xyzzy"])


@pytest.mark.parametrize("games", [["pong", "Pong"], ["pong", "pretraining"], ["all", "paper"]])
def test_a_game_that_comes_twice_is_refused(games: list[str]) -> None:
    with pytest.raises(ValueError, match="comes twice"):
        resolve_games(games)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one game or pool"):
        resolve_games([])
