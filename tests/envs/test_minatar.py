"""MinAtar's games against the authors' own package, agent step by agent step, and their colors."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from minatar.gym import BaseEnv

from leap_rl.envs.games import episode_seed
from leap_rl.envs.minatar import common
from leap_rl.envs.minatar.games import COLORS, GAMES, MinAtarGames
from leap_rl.envs.vector import GameVector
from tests.envs.vectors import make_gymnasium

MODULES = {name: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in GAMES}
SEED = 7


def begun(games: MinAtarGames, seed: int) -> None:
    games.begin(np.zeros(1, dtype=np.int64), np.array([seed]))


def seen_of(games: MinAtarGames) -> np.ndarray:
    observations = np.zeros((1, *games.observation_space.shape), dtype=np.uint8)
    games.show(observations)
    return observations[0]


class Reference:
    """The package's own games, each episode with the seed that ours has."""

    def __init__(self, name: str, *, num_envs: int, **options: Any) -> None:
        self.envs = [BaseEnv(game=MODULES[name], **options) for _ in range(num_envs)]
        self.shape = self.envs[0].observation_space.shape
        self.episodes = [-1] * num_envs

    def begin(self, index: int) -> np.ndarray:
        self.episodes[index] += 1
        env = self.envs[index]
        env.game.last_action = 0  # otherwise it is the last one of the episode before
        seed = episode_seed(SEED, index, self.episodes[index])
        return env.reset(seed=seed)[0] * np.uint8(255)

    def reset(self) -> np.ndarray:
        return np.stack([self.begin(index) for index in range(len(self.envs))])

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        seen, rewards, ends = [], [], []
        for index, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            observation, reward, over, *_ = env.step(int(action))
            rewards.append(reward)
            ends.append(over)
            seen.append(self.begin(index) if over else observation * np.uint8(255))
        return np.stack(seen), np.array(rewards), np.array(ends)


def assert_same(
    games: GameVector, reference: Reference, steps: int, choose: Any
) -> tuple[int, float]:
    """Play both; returns how many episodes ended and the sum of all rewards."""
    np.testing.assert_array_equal(games.reset(), reference.reset())
    ended, earned = 0, 0.0
    for _ in range(steps):
        actions = choose()
        step, (seen, rewards, ends) = games.step(actions), reference.step(actions)
        np.testing.assert_array_equal(step.rewards, rewards)
        np.testing.assert_array_equal(step.terminated, ends)
        np.testing.assert_array_equal(step.observations, seen)
        ended += int(ends.sum())
        earned += float(rewards.sum())
    return ended, earned


def play_both(
    ours: MinAtarGames, theirs: Any, generator: np.random.Generator, most: int
) -> Iterator[None]:
    """Play at random and compare, to the end or for so many agent steps."""
    for action in generator.integers(6, size=most).tolist():
        seen, reward, over, *_ = theirs.step(action)
        rewards, ends, _ = ours.step(np.array([action]))
        assert (rewards[0], ends[0]) == (reward, over)
        np.testing.assert_array_equal(seen_of(ours), seen * np.uint8(255))
        yield
        if over:
            break


@pytest.mark.parametrize("number", [0, 5, 2**32 - 1])
def test_the_random_numbers_are_numpys(number: int) -> None:
    stream = np.zeros(1, dtype=common.record(""))[0]
    numpy = np.random.RandomState(number)
    common.begin(stream, number)
    for count in np.random.default_rng(0).integers(1, 13, size=700).tolist():
        assert common.below(stream, count) == numpy.randint(count)
        assert common.uniform(stream) == numpy.rand()
    assert [1 + common.below(stream, 5) for _ in range(8)] == numpy.randint(1, 6, 8).tolist()
    assert [common.uniform(stream) for _ in range(8)] == numpy.rand(8).tolist()


@pytest.mark.parametrize("name", GAMES)
def test_whole_episodes_are_those_of_the_package(name: str) -> None:
    reference = Reference(name, num_envs=2, use_minimal_action_set=True)
    game = f"MinAtar/{name}-v1"
    games = make_gymnasium(game, num_envs=2, seed=SEED, shape=reference.shape)
    assert games.num_actions == reference.envs[0].action_space.n
    generator = np.random.default_rng(1)
    up = 1  # in Freeway, which only then ends in anything but its 2,500 steps

    def choose() -> np.ndarray:
        actions = generator.integers(games.num_actions, size=2)
        return np.where(generator.random(2) < 0.8, up, actions) if name == "Freeway" else actions

    ended, earned = assert_same(games, reference, 2510 if name == "Freeway" else 700, choose)
    assert ended >= 2
    assert earned >= 2


def look_ahead(env: Any, generator: np.random.Generator) -> int:
    """The action that is best for the next agent step: to live, to earn, to save divers."""
    values = []
    for action in range(env.action_space.n):
        future = copy.deepcopy(env)
        _, reward, over, *_ = future.step(action)
        game = future.game.env
        value = 3 * reward - 10 * over + 0.05 * generator.random()
        if hasattr(game, "ball_x"):
            value -= 0.2 * abs(game.ball_x - game.pos)
        if hasattr(game, "diver_count"):
            value += 2 * (game.diver_count - env.game.env.diver_count)
            away = [abs(d[0] - game.sub_x) + abs(d[1] - game.sub_y) for d in game.divers]
            surfaces = game.diver_count >= (6 if game.oxygen > 60 else 1)
            value -= 0.3 * game.sub_y if surfaces else 0.1 * min(away, default=0)
        values.append(value)
    return int(np.argmax(values))


@pytest.mark.parametrize(
    "name", ["Asterix", "SpaceInvaders", pytest.param("Seaquest", marks=pytest.mark.slow)]
)
def test_games_that_go_far_are_those_of_the_package(name: str) -> None:
    """All gets faster, aliens come again, and divers are brought up."""
    options = {"sticky_action_prob": 0.0, "use_minimal_action_set": True}
    reference = Reference(name, num_envs=1, **options)
    game = f"MinAtar/{name}-v1@sticky_action_prob=0.0"
    games = make_gymnasium(game, num_envs=1, seed=SEED, shape=reference.shape)
    generator = np.random.default_rng(0)

    def choose() -> np.ndarray:
        return np.array([look_ahead(reference.envs[0], generator)])

    steps = {"Asterix": 300, "SpaceInvaders": 400, "Seaquest": 3000}[name]
    _, earned = assert_same(games, reference, steps, choose)
    assert earned >= {"Asterix": 6, "SpaceInvaders": 25, "Seaquest": 40}[name]


def test_bricks_come_again_as_in_the_package() -> None:
    (theirs,) = Reference("Breakout", num_envs=1).envs
    ours = MinAtarGames("MinAtar/Breakout-v0", count=1, palette=False)
    generator, walls = np.random.default_rng(0), 0
    for trial in range(100):
        begun(ours, trial)
        theirs.game.last_action = 0
        theirs.reset(seed=trial)
        left = generator.random((3, 10)) < generator.choice([0.0, 0.1, 0.9])
        theirs.game.env.brick_map[1:4] = ours._games[0]["bricks"] = left
        seen = (theirs.game.env.brick_map.sum() for _ in play_both(ours, theirs, generator, 40))
        walls += sum(later > before for before, later in pairwise([left.sum(), *seen]))
    assert walls >= 10


def crowd(generator: np.random.Generator, numbers: int, most: int) -> list[list[Any]]:
    """Things of Seaquest in few cells, so that many are alike or meet."""
    return [
        [
            int(generator.integers(10)),
            int(generator.integers(1, 4)),
            bool(generator.integers(2)),
            *generator.integers(3, size=numbers - 3).tolist(),
        ]
        for _ in range(generator.integers(most))
    ]


def test_seaquest_removes_of_two_alike_the_one_that_the_package_does() -> None:
    """Crowded seas, which games hardly come to: lists lose things by value, not by identity."""
    generator = np.random.default_rng(0)
    (theirs,) = Reference("Seaquest", num_envs=1).envs
    ours = MinAtarGames("MinAtar/Seaquest-v0@sticky_action_prob=0", count=1, palette=False)
    theirs.game.sticky_action_prob = 0.0
    record = ours._games[0]
    for trial in range(150):
        begun(ours, trial)
        theirs.reset(seed=trial)
        game = theirs.game.env
        game.sub_x, game.sub_y = record["x"], record["y"] = generator.integers(
            1, 9, size=2
        ).tolist()
        game.diver_count = record["aboard"] = int(generator.integers(7))
        game.oxygen = record["oxygen"] = int(generator.integers(1, 201))
        game.e_spawn_timer = record["enemy_in"] = int(generator.integers(3))
        game.d_spawn_timer = record["diver_in"] = int(generator.integers(3))
        game.move_speed = record["move_every"] = int(generator.integers(2, 6))
        game.e_spawn_speed = record["enemy_every"] = int(generator.integers(1, 5))
        for field, name, numbers in (
            ("bullets", "f_bullets", 3),
            ("enemy_bullets", "e_bullets", 3),
            ("fish", "e_fish", 4),
            ("subs", "e_subs", 5),
            ("divers", "divers", 4),
        ):
            things = crowd(generator, numbers, 12)
            setattr(game, name, copy.deepcopy(things))
            record[field]["count"] = len(things)
            rows = record[field]["things"]
            rows[:] = 0
            for row, (column, line, right, *timers) in zip(rows, things, strict=False):
                row[:numbers] = [column, line, 1 if right else -1, *timers]
        list(play_both(ours, theirs, generator, 12))


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("sticky_action_prob=0.0", {"sticky_action_prob": 0.0}),
        ("sticky_action_prob=0.7", {"sticky_action_prob": 0.7}),
        ("difficulty_ramping=false", {"difficulty_ramping": False}),
        ("use_minimal_action_set=true", {"use_minimal_action_set": True}),
        ("use_minimal_action_set=false", {}),
    ],
)
def test_options_are_those_of_the_package(argument: str, options: dict[str, Any]) -> None:
    reference = Reference("Asterix", num_envs=2, **options)
    game = f"MinAtar/Asterix-v0@{argument}"
    games = make_gymnasium(game, num_envs=2, seed=SEED, shape=reference.shape)
    generator = np.random.default_rng(0)
    survivors = "ramping" in argument

    def choose() -> np.ndarray:
        if survivors:  # it takes a hundred agent steps to get faster
            return np.array([look_ahead(env, generator) for env in reference.envs])
        return generator.integers(games.num_actions, size=2)

    assert_same(games, reference, 140, choose)


def test_an_episode_that_is_longer_than_there_is_room_for_can_be_restored() -> None:
    settings = {"num_envs": 2, "shape": (10, 10, 3), "palette": True}
    games, again = (make_gymnasium("MinAtar/Freeway-v1", seed=s, **settings) for s in (0, 1))
    games.reset()
    moves = np.random.default_rng(0).integers(3, size=(1110, 2))
    for move in moves[:1100]:
        games.step(move)
    again.restore(games.state())
    for move in moves[1100:]:
        one, other = games.step(move), again.step(move)
        np.testing.assert_array_equal(one.observations, other.observations)


def test_an_episode_can_be_cut_off() -> None:
    game = "MinAtar/Freeway-v1@max_episode_steps=5"
    games = make_gymnasium(game, num_envs=2, seed=0, shape=(10, 10, 7))
    games.reset()
    steps = [games.step(np.array([0, 1])) for _ in range(10)]
    assert [step.truncated.all() for step in steps] == ([False] * 4 + [True]) * 2
    assert not any(step.terminated.any() for step in steps)


@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("MinAtar/Pong-v1", "MinAtar has no such game; it has Asterix, Breakout, Freeway"),
        ("MinAtar/Breakout-v2", "MinAtar has no such game"),
        ("MinAtar/Asterix-v1@difficulty_ramping=off", "difficulty_ramping = off: must be true or"),
        ("MinAtar/Asterix-v1@use_minimal_action_set=no", "action_set = no: must be true or false"),
        ("MinAtar/Asterix-v1@sticky_action_prob=true", "sticky_action_prob = True: must lie in"),
        ("MinAtar/Asterix-v1@max_episode_steps=true", "max_episode_steps = True: must be at least"),
        ("MinAtar/Breakout-v1@sticky_action_prob=2", "sticky_action_prob = 2: must lie in 0..1"),
        ("MinAtar/Breakout-v1@max_episode_steps=0", "max_episode_steps = 0: must be at least 1"),
        ("MinAtar/Breakout-v1@orientation=8", "orientation = 8: must be a whole number from 0"),
        ("MinAtar/Breakout-v1@orientation=true", "orientation = True: must be a whole number"),
        (
            "MinAtar/Breakout-v1@permutation=6",
            "permutation = 6: must be a whole number from 0 to 5",
        ),
        ("MinAtar/Breakout-v0@permutation=720", "permutation = 720: must be a whole number"),
        ("MinAtar/Breakout-v1@permutation=-1", "permutation = -1: must be a whole number"),
        ("MinAtar/Breakout-v1@permutation=true", "permutation = True: must be a whole number"),
        ("MinAtar/Breakout-v1@sticky=0.5", "have no sticky; they have sticky_action_prob, diff"),
    ],
)
def test_what_there_is_not_is_one_line(game: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        make_gymnasium(game, num_envs=1, seed=0, shape=(10, 10, 4))
    assert f"task.games: {game!r}" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", GAMES)
def test_a_picture_shows_each_thing_in_its_color(name: str) -> None:
    planes, picture = (
        MinAtarGames(f"MinAtar/{name}-v1", count=1, palette=palette) for palette in (False, True)
    )
    channels = BaseEnv(game=MODULES[name]).game.env.channels
    assert channels.keys() <= COLORS.keys()
    black, seen_things, over = 0, set(), np.array([True])
    generator = np.random.default_rng(0)
    for count in range(100):
        if over:
            begun(planes, count), begun(picture, count)
        states, image = seen_of(planes), seen_of(picture)
        for row, column in np.ndindex(10, 10):
            here = [n for n in COLORS if n in channels and states[row, column, channels[n]]]
            expected = COLORS[here[-1]] if here else (0, 0, 0)
            assert tuple(image[row, column].tolist()) == expected
            black += not here
            seen_things.update(here)
        action = generator.integers(planes.num_actions, size=1)
        _, over, _ = planes.step(action)
        picture.step(action)
    assert black
    assert len(seen_things) >= 3


def test_the_player_has_one_color_and_what_is_to_be_avoided_another() -> None:
    players = {COLORS[name] for name in ("player", "paddle", "chicken", "sub_front", "cannon")}
    foes = {COLORS[name] for name in ("enemy", "car", "alien", "enemy_fish")}
    assert len(players) == len(foes) == 1
    assert players != foes


@pytest.mark.parametrize("name", GAMES)
def test_nothing_is_drawn_beyond_the_cells_even_after_the_end(name: str) -> None:
    games = MinAtarGames(f"MinAtar/{name}-v1", count=1, palette=False)
    begun(games, 0)
    cells, ended = np.zeros((42, 10, 10), dtype=np.uint16), False
    for action in np.random.default_rng(0).integers(games.num_actions, size=(200, 1)):
        _, over, _ = games.step(action)
        ended |= bool(over[0])
        GAMES[name].draw(games._games, cells[20:21])
        assert not np.delete(cells, 20, axis=0).any()
    assert ended or name in ("Freeway", "Asterix")


def test_permutations_are_all_orders_of_what_the_actions_do() -> None:
    each = [
        MinAtarGames(f"MinAtar/Breakout-v1@permutation={number}", count=1, palette=True)
        for number in range(6)
    ]
    orders = [tuple(games._actions.tolist()) for games in each]
    nothing, left, right = GAMES["Breakout"].ACTIONS
    assert orders[0] == (nothing, left, right)
    assert orders == sorted(set(orders))
    assert len(orders) == 6
    # What an action is called is all that differs.
    for action in (left, right) * 5:
        for games, order in zip(each, orders, strict=True):
            if action == left:
                begun(games, 7)
            games.step(np.array([order.index(action)]))
        assert len({seen_of(games).tobytes() for games in each}) == 1


@pytest.mark.parametrize("orientation", range(1, 8))
def test_an_orientation_turns_what_is_seen_and_nothing_else(orientation: int) -> None:
    plain, turned = (
        MinAtarGames(f"MinAtar/Breakout-v1@orientation={each}", count=1, palette=True)
        for each in (0, orientation)
    )
    action, over = np.array([1]), True
    for step in range(20):
        if over:
            begun(plain, step), begun(turned, step)
        one, other = plain.step(action), turned.step(action)
        assert [part.tolist() for part in one] == [part.tolist() for part in other]
        over = one[1][0]
        by_hand = np.fliplr(seen_of(plain)) if orientation >= 4 else seen_of(plain)
        np.testing.assert_array_equal(seen_of(turned), np.rot90(by_hand, orientation % 4))
        assert not np.array_equal(seen_of(turned), seen_of(plain))
