from __future__ import annotations

import re

import pytest

from leap_rl.envs.names import GymnasiumGame, join_name, parse_game, split_name


def test_a_name_is_split_from_its_arguments_and_back() -> None:
    assert split_name("pong") == ("pong", {})
    name = "ALE/Pong-v5@mode=1,render_mode=rgb_array"
    base, arguments = split_name(name)
    assert (base, arguments) == ("ALE/Pong-v5", {"mode": "1", "render_mode": "rgb_array"})
    assert list(arguments) == ["mode", "render_mode"]
    assert join_name(base, arguments) == name
    assert join_name("pong", {}) == "pong"


def test_blanks_do_not_count_and_a_value_may_hold_an_equals_sign() -> None:
    assert split_name("x@ a = 1 , b=2=3") == ("x", {"a": "1", "b": "2=3"})


@pytest.mark.parametrize("name", ["@a=1", "x@", "x@a", "x@a=", "x@=1", "x@a=1,", "x@,a=1"])
def test_what_is_not_spelled_so_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^'{name}': must be spelled NAME or NAME@key=value"):
        split_name(name)


@pytest.mark.parametrize(
    ("text", "id", "arguments"),
    [
        ("CartPole-v1", "CartPole-v1", {}),
        ("MinAtar/SpaceInvaders-v1", "MinAtar/SpaceInvaders-v1", {}),
        ("my.games:Maze-v0@size=9", "my.games:Maze-v0", {"size": 9}),
        (
            "FrozenLake-v1@map_name=8x8,is_slippery=false,x=-0.5,y=+1e-3,z=null",
            "FrozenLake-v1",
            {"map_name": "8x8", "is_slippery": False, "x": -0.5, "y": 0.001, "z": None},
        ),
        ("A-v0@x=True,y=False,z=None", "A-v0", {"x": True, "y": False, "z": None}),
    ],
)
def test_what_an_entry_means(text: str, id: str, arguments: dict[str, object]) -> None:
    game = parse_game(text)
    assert game == GymnasiumGame(id=id, arguments=arguments)  # type: ignore[arg-type]
    assert [type(value) for _, value in sorted(game.arguments.items())] == [
        type(value) for _, value in sorted(arguments.items())
    ]
    assert parse_game(game.name) == game


def test_a_game_has_one_spelling() -> None:
    names = {parse_game(f"A-v0@{rest}").name for rest in ("b=0.70,a=1", "a=1,b=.7", "a=+1,b=7e-1")}
    assert names == {"A-v0@a=1,b=0.7"}
    assert parse_game("A-v0@a=1.0").name != parse_game("A-v0@a=1").name != "A-v0@a=true"
    assert parse_game("A-v0@a=1e300").name == "A-v0@a=1e+300"


def test_a_module_is_known_by_its_colon() -> None:
    assert parse_game("my.games:Maze-v0@size=9").module == "my.games"
    assert parse_game("MinAtar/Asterix-v1@x=1").module is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no Gymnasium id"),
        ("a b-v0", "no Gymnasium id"),
        ("a:b:C-v0", "no Gymnasium id"),
        ("../a-v0", "no Gymnasium id"),
        ("a/b/C-v0", "no Gymnasium id"),
        (":C-v0", "no Gymnasium id"),
        ("masscart=2", "no Gymnasium id"),
        ("A-v0@", "must be spelled NAME or NAME@key=value"),
        # What another environment could be named by, or a file.
        ("A-v0@env_id=os:B", "must be key=value"),
        ("A-v0@file=/etc/passwd", "must be key=value"),
        ("A-v0@x=1,x=2", "x comes twice"),
        ("A-v0@x=1e999", "1e999 is too large"),
    ],
)
def test_what_is_no_entry_is_told(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        parse_game(text)
    assert repr(text) in str(error.value)
