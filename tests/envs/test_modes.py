from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from ale_py import ALEInterface, LoggerMode, roms

from leap_rl.envs.atari.emulator import palette
from leap_rl.envs.atari.envs import AtariEnvs
from leap_rl.envs.atari.games import (
    ACTION_COUNTS,
    POOLS,
    GameMode,
    difficulties,
    find_mode,
    listed,
    modes,
    resolve_games,
)
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.tasks.config import TaskConfig
from tests.envs.test_kinds import check_games
from tests.envs.vectors import make_atari


def fresh(game: str, mode: int | None = None, difficulty: int | None = None) -> ALEInterface:
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", 0)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path(game))
    if mode is not None:
        ale.setMode(mode)
        ale.setDifficulty(difficulty)
    ale.reset_game()
    return ale


def state_of(ale: ALEInterface) -> bytes:
    saved: bytes = ale.cloneState(include_rng=True).serialize()
    return saved


def some_and_all(*games: str) -> pytest.MarkDecorator:
    """Run a test for some games, and in the slow suite for all."""
    slow = (pytest.mark.slow, pytest.mark.timeout(900))
    return pytest.mark.parametrize(
        "games", [games, pytest.param(tuple(ACTION_COUNTS), marks=slow, id="all")]
    )


@some_and_all("asteroids", "assault")
def test_modes_and_difficulties_are_ales(games: Iterable[str]) -> None:
    for game in games:
        ale = fresh(game)
        assert list(modes(game)) == ale.getAvailableModes(), game
        assert list(difficulties(game)) == ale.getAvailableDifficulties(), game


@some_and_all("centipede")
def test_the_first_mode_is_what_an_emulator_starts_in(games: Iterable[str]) -> None:
    for game in games:
        default = state_of(fresh(game))
        same = [
            (mode, difficulty)
            for mode in modes(game)
            for difficulty in difficulties(game)
            if state_of(fresh(game, mode, difficulty)) == default
        ]
        assert same == [(modes(game)[0], difficulties(game)[0])], game


@some_and_all("hero", "pong")
def test_a_game_has_the_same_actions_and_screen_in_every_mode(games: Iterable[str]) -> None:
    for game in games:
        default = fresh(game)
        for mode, difficulty in product(modes(game), difficulties(game)):
            ale = fresh(game, mode, difficulty)
            assert ale.getMinimalActionSet() == default.getMinimalActionSet()
            assert len(ale.getMinimalActionSet()) == ACTION_COUNTS[game], (game, mode, difficulty)
            assert ale.getScreenDims() == default.getScreenDims()
            assert np.array_equal(palette(game)[ale.getScreen()], ale.getScreenRGB())


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("pong@mode=0,difficulty=0", "pong"),
        ("air_raid@mode=1", "air_raid"),
        ("centipede@mode=86", "centipede@mode=86"),
        ("pong@difficulty=3, mode=1", "pong@mode=1,difficulty=3"),
        ("pong@mode=01", "pong@mode=1"),
        ("pong@difficulty=2,mode=0", "pong@difficulty=2"),
        ("ALE/SpaceInvaders-v5@mode=3", "space_invaders@mode=3"),
        ("UpNDown", "up_n_down"),
        ("UpNDown-v4", "up_n_down"),
    ],
)
def test_a_mode_has_one_spelling(name: str, canonical: str) -> None:
    assert resolve_games([name]) == (canonical,)
    assert resolve_games([canonical]) == (canonical,)


def test_a_pool_of_modes_is_a_games_modes() -> None:
    assert resolve_games(["modes:AirRaid", "pong"]) == (
        "air_raid",
        *(f"air_raid@mode={mode}" for mode in range(2, 9)),
        "pong",
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("freeway@mode=9", "'freeway@mode=9': freeway has no mode 9; its modes are 0 to 7"),
        ("freeway@mode=-1", "freeway has no mode -1; its modes are 0 to 7"),
        ("freeway@mode=x", "freeway has no mode x; its modes are 0 to 7"),
        ("pong@difficulty=4", "pong has no difficulty 4; its difficulties are 0 to 3"),
        ("assault@mode=1", "assault has no mode 1; 0 is its only one"),
        ("pong@level=1", "a game has no 'level' to be chosen; say mode, difficulty or both"),
        ("pongg@mode=1", "no game or pool is named 'pongg'; did you mean 'pong'?"),
        ("paper@mode=1", "no game or pool is named 'paper'"),
        ("modes:catch", "no game is named 'catch'"),
        ("pong@mode", "must be spelled NAME or NAME@key=value"),
        ("modes:qbert", "qbert has one mode; name its difficulties one by one, such as qbert@"),
        ("modes:assault", " = modes:assault: assault has one mode"),
        ("modes:pongg", "no game is named 'pongg'; did you mean 'pong'?"),
        ("breakout@mode=0", "'breakout' comes twice"),
    ],
)
def test_what_no_cartridge_has_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^task\.games.*{re.escape(message)}"):
        resolve_games(["breakout", name])


def test_numbers_are_listed_in_few_words() -> None:
    assert listed([0, 1]) == "0, 1"
    assert listed([0, 1, 2, 5, 7, 8]) == "0 to 2, 5, 7, 8"


def test_a_config_takes_modes_of_atari_alone() -> None:
    assert TaskConfig(games=["freeway@mode=0,difficulty=1"]).resolved_games == (
        "freeway@difficulty=1",
    )
    with pytest.raises(ValueError, match=r"'pong@mode=1' is no game of task\.kind = catch"):
        TaskConfig(kind="catch", games=["pong@mode=1"])
    with pytest.raises(ValueError, match="'bowl_1@mode=1' is no game"):
        TaskConfig(kind="quadratic", games=["bowl_1@mode=1"])


@pytest.mark.parametrize(("game", "mode", "difficulty"), [("freeway", 4, 1), ("pong", 0, 3)])
def test_a_mode_is_what_ale_plays(game: str, mode: int, difficulty: int) -> None:
    ale = fresh(game, mode, difficulty)
    name = GameMode(game=game, mode=mode, difficulty=difficulty).name
    games = make_atari(name, num_envs=1, seed=0, settings=AtariSettings(noop_max=0))
    games.reset()
    for _ in range(40):
        games.step(np.ones(1, dtype=np.int64))
        for _ in range(4):
            ale.act(ale.getMinimalActionSet()[1])
    envs = games._envs
    assert isinstance(envs, AtariEnvs)
    (emulator,) = envs._emulators
    assert np.array_equal(emulator.ale.getScreen(), ale.getScreen())
    assert state_of(emulator.ale) == state_of(ale)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_last_mode_of_every_game_is_restored_to_the_same_bits(tmp_path: Path) -> None:
    last = [
        GameMode(game=game, mode=modes(game)[-1], difficulty=difficulties(game)[-1]).name
        for game in ACTION_COUNTS
    ]
    names = [name for name in last if "@" in name]
    assert len(names) == 48
    check_games(names, tmp_path)


def test_an_unknown_mode_is_refused_where_environments_are_made() -> None:
    with pytest.raises(ValueError, match="freeway has no mode 9; its modes are 0 to 7"):
        make_atari("freeway@mode=9", num_envs=1, seed=0)
    assert find_mode("freeway").mode == 0


def test_pools_have_the_papers_sizes_and_three_share_out_all_of_atari() -> None:
    sizes = {name: len(games) for name, games in POOLS.items()}
    assert sizes == {
        "pretraining": 25,
        "held_out": 2,
        "large_action": 35,
        "paper": 9,
        "all": 62,
    }

    parts = POOLS["pretraining"] + POOLS["held_out"] + POOLS["large_action"]
    assert sorted(parts) == sorted(POOLS["all"])
    assert len(set(parts)) == 62


def test_the_papers_games_have_the_action_spaces_of_its_table() -> None:
    # (actions, in the pretraining set), row by row.
    table = [(6, True), (6, True), (10, True), (4, False), (6, False)]
    table += [(14, False), (18, False), (18, False), (18, False)]
    ours = [(ACTION_COUNTS[game], game in POOLS["pretraining"]) for game in POOLS["paper"]]
    assert ours == table


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
