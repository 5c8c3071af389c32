"""MinAtar's games against the authors' own package, agent step by agent step, and their colors."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest
from minatar.gym import BaseEnv

from leap_rl.envs.factory import make_gymnasium
from leap_rl.envs.gymnasium.envs import GymnasiumEnvs
from leap_rl.envs.gymnasium.episode_runner import episode_seed, make_one
from leap_rl.envs.minatar import mersenne
from leap_rl.envs.minatar.colors import COLORS, cell_table, show
from leap_rl.envs.minatar.games import GAMES, Episodes, GameOptions
from leap_rl.envs.minatar.swimmers import MOST
from leap_rl.envs.minatar.vector import MinAtarEnvs
from leap_rl.envs.vector import GameVector

MODULES = {name: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in GAMES}
SEED = 7


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


@pytest.mark.parametrize("number", [0, 1, 5, 2**31 - 1, 2**32 - 1])
def test_the_random_numbers_are_numpys(number: int) -> None:
    stream = np.zeros(1, dtype=np.dtype(mersenne.FIELDS, align=True))[0]
    numpy = np.random.RandomState(number)
    mersenne.seed(stream, number)
    for count in np.random.default_rng(0).integers(1, 13, size=2000).tolist():
        assert mersenne.below(stream, count) == numpy.randint(count)
        assert mersenne.uniform(stream) == numpy.rand()
    assert [1 + mersenne.below(stream, 5) for _ in range(8)] == numpy.randint(1, 6, 8).tolist()
    assert [mersenne.uniform(stream) for _ in range(8)] == numpy.rand(8).tolist()


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("name", GAMES)
def test_whole_episodes_are_those_of_the_package(name: str, version: int) -> None:
    reference = Reference(name, num_envs=4, use_minimal_action_set=version == 1)
    game = f"MinAtar/{name}-v{version}"
    games = make_gymnasium(game, num_envs=4, seed=SEED, shape=reference.shape)
    assert games.num_actions == reference.envs[0].action_space.n
    generator = np.random.default_rng(version)
    up = 1 if version else 2  # in Freeway, which only then ends in anything but its 2,500 steps

    def choose() -> np.ndarray:
        actions = generator.integers(games.num_actions, size=4)
        return np.where(generator.random(4) < 0.8, up, actions) if name == "Freeway" else actions

    ended, earned = assert_same(games, reference, 2600 if name == "Freeway" else 700, choose)
    assert ended >= 4
    assert earned >= 4


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

    steps = {"Asterix": 400, "SpaceInvaders": 500, "Seaquest": 3000}[name]
    _, earned = assert_same(games, reference, steps, choose)
    assert earned >= {"Asterix": 8, "SpaceInvaders": 25, "Seaquest": 40}[name]


def test_bricks_come_again_as_in_the_package() -> None:
    (theirs,) = Reference("Breakout", num_envs=1).envs
    ours = Episodes("Breakout", GameOptions(), count=1)
    table = cell_table(ours.things, palette=False)
    generator, walls = np.random.default_rng(0), 0
    for trial in range(200):
        ours.begin(np.zeros(1, dtype=np.int64), np.array([trial]))
        theirs.game.last_action = 0
        theirs.reset(seed=trial)
        left = generator.random((3, 10)) < generator.choice([0.0, 0.1, 0.9])
        theirs.game.env.brick_map[1:4] = ours._games[0]["bricks"] = left
        for _ in range(40):
            action = int(generator.integers(6))
            before = theirs.game.env.brick_map.sum()
            seen, reward, over, *_ = theirs.step(action)
            walls += theirs.game.env.brick_map.sum() > before
            rewards, ends = ours.step(np.array([action]))
            assert (rewards[0], ends[0]) == (reward, over)
            observations = np.zeros((1, 10, 10, 4), dtype=np.uint8)
            show(ours.cells(), table, observations)
            np.testing.assert_array_equal(observations[0], seen * np.uint8(255))
            if over:
                break
    assert walls >= 20


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
    ours = Episodes("Seaquest", GameOptions(sticky_action_prob=0.0), count=1)
    theirs.game.sticky_action_prob = 0.0
    table = cell_table(ours.things, palette=False)
    record = ours._games[0]
    for trial in range(300):
        ours.begin(np.zeros(1, dtype=np.int64), np.array([trial]))
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
            record[f"{field}_count"] = len(things)
            record[field][:] = 0
            for row, (column, line, right, *timers) in zip(record[field], things, strict=False):
                row[:numbers] = [column, line, 1 if right else -1, *timers]
        for _ in range(12):
            action = int(generator.integers(6))
            seen, reward, over, *_ = theirs.step(action)
            rewards, ends = ours.step(np.array([action]))
            assert (rewards[0], ends[0]) == (reward, over)
            observations = np.zeros((1, 10, 10, 10), dtype=np.uint8)
            show(ours.cells(), table, observations)
            np.testing.assert_array_equal(observations[0], seen * np.uint8(255))
            if over:
                break
    assert record["subs"].shape == (MOST, 5)


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("sticky_action_prob=0.0", {"sticky_action_prob": 0.0}),
        ("sticky_action_prob=0.7", {"sticky_action_prob": 0.7}),
        ("difficulty_ramping=false", {"difficulty_ramping": False}),
        ("use_minimal_action_set=true", {"use_minimal_action_set": True}),
    ],
)
def test_options_are_those_of_the_package(argument: str, options: dict[str, Any]) -> None:
    reference = Reference("Asterix", num_envs=2, **options)
    game = f"MinAtar/Asterix-v0@{argument}"
    games = make_gymnasium(game, num_envs=2, seed=SEED, shape=reference.shape)
    assert isinstance(games._envs, MinAtarEnvs)
    generator = np.random.default_rng(0)
    survivors = "ramping" in argument

    def choose() -> np.ndarray:
        if survivors:  # it takes a hundred agent steps to get faster
            return np.array([look_ahead(env, generator) for env in reference.envs])
        return generator.integers(games.num_actions, size=2)

    assert_same(games, reference, 300, choose)


@pytest.mark.parametrize("palette", [False, True])
@pytest.mark.parametrize("name", ["Breakout", "Seaquest"])
def test_one_at_a_time_it_is_the_same_and_so_is_its_snapshot(name: str, palette: bool) -> None:
    game, shape = f"MinAtar/{name}-v1", (11, 10, 12)
    settings = {"num_envs": 3, "shape": shape, "palette": palette}
    together, single = MinAtarEnvs(game, **settings), GymnasiumEnvs(game, **settings)
    np.testing.assert_array_equal(together.reset(seed=3)[0], single.reset(seed=3)[0])
    generator = np.random.default_rng(0)
    infos = 0
    for count in range(300):
        actions = generator.integers(together.single_action_space.n, size=3)
        (*one, info), (*other, other_info) = together.step(actions), single.step(actions)
        for ours, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert info.keys() == other_info.keys()
        infos += len(info)
        for key in info:
            np.testing.assert_array_equal(info[key], other_info[key])
        if count % 100 == 50:
            state, other_state = together.state(), single.state()
            assert state.keys() == other_state.keys()
            for key in state:
                np.testing.assert_array_equal(state[key], other_state[key])
                assert state[key].dtype == other_state[key].dtype
            together, single = MinAtarEnvs(game, **settings), GymnasiumEnvs(game, **settings)
            np.testing.assert_array_equal(together.restore(other_state), other[0])
            np.testing.assert_array_equal(single.restore(state), one[0])
    assert infos
    np.testing.assert_array_equal(together.reset()[0], single.reset()[0])


def test_an_episode_of_any_length_can_be_frozen() -> None:
    games, again = (
        make_gymnasium("MinAtar/Freeway-v1", num_envs=2, seed=seed, shape=(10, 10, 7))
        for seed in (0, 1)
    )
    games.reset()
    moves = np.random.default_rng(0).integers(3, size=(2600, 2))
    for move in moves[:2490]:
        games.step(move)
    again.restore(games.state())
    for move in moves[2490:]:
        one, other = games.step(move), again.step(move)
        np.testing.assert_array_equal(one.observations, other.observations)


@pytest.mark.parametrize("name", ["observations", "returns", "episodes", "seeds", "actions"])
def test_a_state_that_was_changed_is_told(name: str) -> None:
    settings = {"num_envs": 2, "shape": (10, 10, 7)}
    games = MinAtarEnvs("MinAtar/Freeway-v1", **settings)
    games.reset(seed=0)
    for move in (1, 2, 1):
        games.step(np.array([move, move]))
    state = games.state()
    changed = state[name].copy()
    changed.reshape(-1)[0] += 17
    again = MinAtarEnvs("MinAtar/Freeway-v1", **settings)
    with pytest.raises(ValueError, match=r"does not repeat itself|has some that"):
        again.restore({**state, name: changed})


def test_processes_change_no_bit() -> None:
    settings = {"num_envs": 3, "seed": SEED, "shape": (10, 10, 3), "palette": True}
    alone = make_gymnasium("MinAtar/Asterix-v1", **settings)
    spread = make_gymnasium("MinAtar/Asterix-v1", processes=2, **settings)
    np.testing.assert_array_equal(alone.reset(), spread.reset())
    for actions in np.random.default_rng(0).integers(5, size=(60, 3)):
        one, other = alone.step(actions), spread.step(actions)
        np.testing.assert_array_equal(one.observations, other.observations)
    spread.close()


def test_what_only_gymnasium_knows_is_left_to_it() -> None:
    game = "MinAtar/Freeway-v1@max_episode_steps=5"
    games = make_gymnasium(game, num_envs=2, seed=0, shape=(10, 10, 7))
    assert isinstance(games._envs, GymnasiumEnvs)
    games.reset()
    steps = [games.step(np.array([0, 1])) for _ in range(5)]
    assert [step.truncated.all() for step in steps] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("MinAtar/Pong-v1", "MinAtar has no such game; it has Asterix, Breakout, Freeway"),
        ("MinAtar/Breakout-v2", "MinAtar has no such game"),
        ("MinAtar/Breakout-v1@sticky_action_prob=2", "sticky_action_prob = 2: must lie in 0..1"),
        ("MinAtar/Breakout-v1@sticky=0.5", "unexpected keyword argument 'sticky'"),
    ],
)
def test_what_there_is_not_is_one_line(game: str, message: str) -> None:
    for make in (
        make_one,
        lambda game: make_gymnasium(game, num_envs=1, seed=0, shape=(10, 10, 4)),
    ):
        with pytest.raises(ValueError, match=re.escape(message)) as error:
            make(game)
        assert f"task.games: {game!r}" in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", GAMES)
def test_a_picture_shows_each_thing_in_its_color(name: str) -> None:
    planes, picture = (make_one(f"MinAtar/{name}-v1", palette=palette) for palette in (False, True))
    channels = BaseEnv(game=MODULES[name]).game.env.channels
    assert channels.keys() <= COLORS.keys()
    black, seen_things = 0, set()
    generator = np.random.default_rng(0)
    states, image = planes.reset(seed=1)[0], picture.reset(seed=1)[0]
    for _ in range(200):
        assert image.shape == (10, 10, 3)
        for row, column in np.ndindex(10, 10):
            here = [n for n in COLORS if n in channels and states[row, column, channels[n]]]
            expected = COLORS[here[-1]] if here else (0, 0, 0)
            assert tuple(image[row, column].tolist()) == expected
            black += not here
            seen_things.update(here)
        action = int(generator.integers(planes.action_space.n))
        states, _, over, *_ = planes.step(action)
        image = picture.step(action)[0]
        if over:
            states, image = planes.reset(seed=2)[0], picture.reset(seed=2)[0]
    assert black
    assert len(seen_things) >= 3


def test_the_player_has_one_color_and_what_is_to_be_avoided_another() -> None:
    players = {COLORS[name] for name in ("player", "paddle", "chicken", "sub_front", "cannon")}
    foes = {COLORS[name] for name in ("enemy", "car", "alien", "enemy_fish")}
    assert len(players) == len(foes) == 1
    assert players != foes
