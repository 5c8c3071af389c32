from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiBinary

from leap_rl.envs.games import check_repeats, common_shape, make_one
from leap_rl.envs.names import GymnasiumGame, join_name, parse_game, split_name
from leap_rl.envs.spaces import ActionAdapter, adapter_of
from tests.envs.own_games import SPACES, WALK


def test_games_of_one_shape_have_it() -> None:
    assert common_shape(("CartPole-v1", "leap_rl/CartPole-v1"), pad="refuse") == (4,)


def test_shapes_are_told_or_padded_to_the_largest() -> None:
    games = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")
    message = "CartPole-v1 [4] of numbers, Acrobot-v1 [6] of numbers, MountainCar-v0 [2] of numbers"
    with pytest.raises(ValueError, match=r"pad = refuse: .*" + re.escape(message)):
        common_shape(games, pad="refuse")
    assert common_shape(games, pad="zeros") == (6,)
    planes = tuple(f"MinAtar/{name}-v1" for name in ("Breakout", "Seaquest", "Freeway"))
    assert common_shape(planes, pad="zeros") == (10, 10, 10)
    assert common_shape(planes, pad="refuse", palette=True) == (10, 10, 3)


def test_a_shape_that_is_asked_for() -> None:
    assert common_shape(("CartPole-v1",), pad="zeros", wanted=(6,)) == (6,)
    with pytest.raises(ValueError, match=r"pad = refuse: .* the encoder's input is \[6\]"):
        common_shape(("CartPole-v1",), pad="refuse", wanted=(6,))
    with pytest.raises(ValueError, match=r"observation_shape = \[3\]: 'CartPole-v1' has"):
        common_shape(("CartPole-v1",), pad="zeros", wanted=(3,))


@pytest.mark.parametrize("other", ["pixels", "bits", "numbers"])
def test_kinds_do_not_mix(other: str) -> None:
    games = ("CartPole-v1", f"{WALK}@sees={other}")
    with pytest.raises(ValueError, match=r"CartPole-v1 \[4\] of numbers, .*; take games of one"):
        common_shape(games, pad="zeros")


@pytest.mark.parametrize("game", ["CartPole-v1", "MinAtar/Seaquest-v1", WALK])
def test_games_that_repeat_themselves_pass(game: str) -> None:
    check_repeats(game, remake=False)
    check_repeats(game, remake=True)


def test_a_game_that_fails_is_named() -> None:
    with pytest.raises(ValueError, match=r"@breaks=1' failed when it was tried \(OSError: gone"):
        check_repeats(f"{WALK}@breaks=1", remake=False)


def episode(env: gymnasium.Env[object, object], moves: list[int]) -> list[list[float]]:
    seen = [env.reset(seed=5)[0]]
    seen += [env.step(move)[0] for move in moves]
    return np.array(seen).tolist()  # type: ignore[no-any-return]


MOVES = [1, 0, 0, 1, 0, 1, 1, 0]


def test_without_arguments_it_is_gymnasiums() -> None:
    ours, theirs = make_one("leap_rl/CartPole-v1"), gymnasium.make("CartPole-v1")
    assert episode(ours, MOVES) == episode(theirs, MOVES)
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps == 500


def test_swapped_actions_change_places() -> None:
    plain, swapped = make_one("leap_rl/CartPole-v1"), make_one("leap_rl/CartPole-v1@swapped=true")
    assert episode(plain, MOVES) == episode(swapped, [1 - move for move in MOVES])
    assert episode(plain, MOVES) != episode(swapped, MOVES)


def test_every_argument_changes_what_happens() -> None:
    plain = episode(make_one("leap_rl/CartPole-v1"), MOVES)
    for argument in ("gravity=20.0", "masscart=3.0", "masspole=0.5", "length=1.0", "force_mag=5.0"):
        other = episode(make_one(f"leap_rl/CartPole-v1@{argument}"), MOVES)
        assert other[0] == plain[0]
        assert other != plain, argument


def test_derived_constants_follow() -> None:
    env = make_one("leap_rl/CartPole-v1@masspole=0.4,length=2.0,masscart=3.0").unwrapped
    assert env.total_mass == 3.4
    assert env.polemass_length == 0.8


@pytest.mark.parametrize(
    ("name", "shape", "scaled"),
    [
        ("vector", (4,), False),
        ("pixels", (24, 20, 3), True),
        ("gray", (24, 20, 1), True),
        ("stack", (24, 20, 4), True),
        ("planes", (10, 8, 5), True),
        ("bits", (6,), True),
        ("table", (6,), False),
        ("numbers", (7,), True),
    ],
)
def test_how_spaces_are_seen(name: str, shape: tuple[int, ...], scaled: bool) -> None:
    adapter = adapter_of(SPACES[name])
    assert (adapter.shape, adapter.scaled) == (shape, scaled)
    SPACES[name].seed(0)
    seen = adapter.show(SPACES[name].sample())
    assert seen.shape == adapter.shown.shape == shape
    assert seen.dtype == adapter.shown.dtype == (np.uint8 if scaled else np.float32)


def test_what_is_seen() -> None:
    truth = np.array([[[True, False]], [[False, True]]])
    planes = adapter_of(Box(0, 1, truth.shape, np.bool_)).show(truth)
    assert planes.tolist() == [[[255, 0]], [[0, 255]]]
    one_of = adapter_of(Discrete(3, start=5))
    assert [one_of.show(np.int64(n)).tolist() for n in (5, 6, 7)] == [
        [255, 0, 0],
        [0, 255, 0],
        [0, 0, 255],
    ]
    table = np.array([[1.5, 2.0], [3.0, -300.0]])
    assert adapter_of(Box(-400, 400, (2, 2))).show(table).tolist() == [1.5, 2.0, 3.0, -300.0]
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    seen = adapter_of(Box(0, 255, (2, 3), np.uint8)).show(pixels)
    assert seen[..., 0].tolist() == pixels.tolist()
    stack = np.arange(4 * 16 * 17, dtype=np.uint8).reshape(4, 16, 17)
    seen = adapter_of(Box(0, 255, stack.shape, np.uint8)).show(stack)
    assert [seen[..., frame].tolist() for frame in range(4)] == stack.tolist()
    small = np.zeros((4, 10, 10), dtype=np.uint8)  # rows and columns, for all that is known
    assert adapter_of(Box(0, 255, small.shape, np.uint8)).show(small).shape == small.shape


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (SPACES["pair"], "observations Tuple"),
        (SPACES["named"], "observations Dict"),
        (MultiBinary(3), "observations MultiBinary"),
        (
            Box(0, 1, (24, 20, 3)),
            r"Box of float32 \[24, 20, 3\]; images must be uint8",
        ),
        (Box(0, 1, (2, 2, 2, 2), np.uint8), r"observations Box of uint8 \[2, 2, 2, 2\]; images"),
        (Box(0, 1, ()), r"observations Box of float32 \[\], and must"),
        (Box(0, 1, (0,)), "observations of 0 elements, and must have 1 to 4,194,304"),
        (Discrete(2**36), "observations of 68,719,476,736 elements, and must have 1 to 4,194,304"),
    ],
)
def test_what_cannot_be_seen_is_told(space: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adapter_of(space)  # type: ignore[arg-type]


def test_actions() -> None:
    discrete = ActionAdapter(Discrete(3, start=-1))
    assert (discrete.num_actions, discrete.continuous) == (3, False)
    assert [discrete.take(action) for action in range(3)] == [-1, 0, 1]
    space = Box(np.array([[-2, 0]]), np.array([[4, 1]]), dtype=np.float32)
    numbers = ActionAdapter(space)
    assert (numbers.num_actions, numbers.continuous) == (2, True)
    for action, own in (([-1, -1], [-2, 0]), ([0, 1], [1, 1]), ([9, -9], [4, 0])):
        taken = numbers.take(action)
        assert taken in space
        assert taken.tolist() == [own]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Discrete(2**16 + 1), "65537 actions"),
        (MultiBinary(3), "actions MultiBinary, and must have a Discrete or a Box of floats"),
        (Box(0, 9, (2,), np.int64), r"actions Box of int64 \[2\], and must have a Discrete or"),
        (Box(0, np.inf, (2,)), r"actions Box of float32 \[2\] without bounds"),
        (Box(0, 1, (0,)), r"actions Box of float32 \[0\], of no number at all"),
    ],
)
def test_actions_that_cannot_be_taken_are_told(space: Space[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ActionAdapter(space)


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
