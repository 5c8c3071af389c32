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


UNKNOWN = "task.games: no game or pool is named 'pongg'; did you mean 'pong'? "


@pytest.mark.parametrize(
    ("games", "message"),
    [
        (["breakout", "pongg"], rf"^{re.escape(UNKNOWN)}\(leap-rl games lists all\)$"),
        (["xyzzy"], r"named 'xyzzy' \(leap-rl games lists all\)$"),
        *(([one, other], "comes twice") for one, other in (("pong", "Pong"), ("all", "paper"))),
        (["pong", "pretraining"], "comes twice"),
        ([], "at least one game or pool"),
    ],
)
def test_games_that_cannot_be_meant_are_refused(games: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_games(games)
