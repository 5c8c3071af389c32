"""Environments by their Gymnasium ids: episodes, their ends, and the same bits after a snapshot."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest

from leap_rl.envs.games import episode_seed
from leap_rl.envs.seeds import draw_episode_seeds
from leap_rl.envs.state import State
from leap_rl.envs.vector import GameVector
from tests.envs.own_games import WALK
from tests.envs.vectors import bits, make_gymnasium

ENDING = f"{WALK}@terminates=5"
CUT_OFF = f"{WALK}@truncates=3"


def walks(game: str = ENDING, *, num_envs: int = 3, seed: int = 7, **how: object) -> GameVector:
    shape = how.pop("shape", (4,))
    return make_gymnasium(game, num_envs=num_envs, seed=seed, shape=shape, **how)  # type: ignore[arg-type]


def actions(count: int, num_envs: int = 3) -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(3, size=(count, 8))[:, :num_envs])


def numbers(count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(0).normal(size=(count, 3, 1)).astype(np.float32))


def test_episodes_end_and_the_next_begins_in_the_same_step() -> None:
    games = walks(f"{WALK}@terminates=3,truncates=5", num_envs=2)
    games.reset()
    counts, ends = [], []
    for taken in actions(6, 2):
        step = games.step(taken)
        counts.append(step.observations[:, 2].tolist())
        ends.append(step.terminated.tolist())
        assert not step.truncated.any()
    assert counts == [[n, n] for n in (1, 2, 0, 1, 2, 0)]
    assert [end[0] for end in ends] == [False, False, True] * 2


def test_a_cut_off_episode_leaves_its_last_observation() -> None:
    games = walks(CUT_OFF, num_envs=2)
    first = games.reset()
    for taken in actions(2, 2):
        assert not games.step(taken).last_observations
    step = games.step(np.array([2, 0]))
    assert step.truncated.all()
    assert not step.terminated.any()
    for index, action in enumerate((2, 0)):
        last = step.last_observations[index]
        assert last.dtype == np.float32
        assert last[2:].tolist() == [3, action], "the third agent step, and not a new first one"
        assert last[0] != step.observations[index][0]
        assert step.observations[index][0] != first[index][0], "another episode's seed"


def test_it_is_what_gymnasium_plays_with_the_episodes_seeds() -> None:
    games, plain = walks("CartPole-v1", num_envs=2, seed=3), gymnasium.make("CartPole-v1")
    seen = games.reset()
    episode = 0
    expected, _ = plain.reset(seed=episode_seed(3, 1, episode))
    for taken in np.random.default_rng(0).integers(2, size=(100, 2)):
        np.testing.assert_array_equal(seen[1], expected)
        step = games.step(taken)
        seen = step.observations
        expected, reward, terminated, truncated, _ = plain.step(int(taken[1]))
        assert (step.rewards[1], step.terminated[1]) == (reward, terminated)
        if terminated or truncated:
            episode += 1
            expected, _ = plain.reset(seed=episode_seed(3, 1, episode))
    assert episode >= 3


def test_seeds_differ_between_environments_episodes_and_runs() -> None:
    seeds = {episode_seed(s, i, e) for s in (0, 2**63 - 1) for i in range(4) for e in range(50)}
    assert len(seeds) == 400
    assert min(seeds) >= 0
    assert max(seeds) < 2**31


def test_numbers_are_scaled_to_the_spaces_bounds_and_clipped() -> None:
    games = walks(f"{WALK}@continuous=true", num_envs=4)
    assert (games.num_actions, games.continuous) == (1, True)
    games.reset()
    step = games.step(np.array([[-1.0], [0.0], [1.0], [7.0]], dtype=np.float32))
    assert step.observations[:, 3].tolist() == [-2.0, 1.0, 4.0, 4.0]
    with pytest.raises(ValueError, match="must be finite"):
        games.step(np.full((4, 1), np.nan, dtype=np.float32))


def test_observations_are_padded() -> None:
    games = walks(shape=(6,))
    kept = [games.reset(), *(games.step(taken).observations for taken in actions(12))]
    assert kept[0].shape == (3, 6)
    assert not any(array[:, 4:].any() for array in kept)
    assert all(array[:, 0].all() for array in kept)


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize(("count", "processes"), [(0, 1), (1, 1), (4, 1), (5, 1), (12, 1), (12, 2)])
def test_a_snapshot_is_restored_to_the_same_bits(
    count: int, processes: int, continuous: bool
) -> None:
    game = f"{WALK}@continuous={str(continuous).lower()},terminates=5,truncates=50"
    drawn = numbers(20) if continuous else actions(20)
    games = walks(game)
    seen = games.reset()
    for taken in drawn[:count]:
        seen = games.step(taken).observations
    state = games.state()
    rest = drawn[count:]
    expected = bits([games.step(taken) for taken in rest])
    again = walks(game, seed=99, processes=processes)  # another seed: all is in the state
    np.testing.assert_array_equal(again.restore(state), seen)
    assert bits([again.step(taken) for taken in rest]) == expected
    saved, restored = games.state(), again.state()
    assert saved.keys() == restored.keys()
    assert all(np.array_equal(saved[name], restored[name]) for name in saved)
    games.close(), again.close()


@pytest.mark.parametrize("sees", ["pixels", "gray", "stack", "planes", "bits", "table", "numbers"])
def test_every_kind_of_observation_has_a_snapshot(sees: str) -> None:
    shapes = {"pixels": (24, 20, 3), "gray": (24, 20, 1), "planes": (10, 8, 5), "numbers": (7,)}
    shapes["stack"] = (24, 20, 4)
    shape, game = shapes.get(sees, (6,)), f"{WALK}@sees={sees},terminates=5"
    games, again = (walks(game, shape=shape) for _ in range(2))
    games.reset()
    for taken in actions(7):
        step = games.step(taken)
    assert np.array_equal(again.restore(games.state()), step.observations)
    assert step.observations.dtype == (np.float32 if sees == "table" else np.uint8)


def saved(game: str, count: int = 8) -> State:
    games = walks(game)
    games.reset()
    for taken in actions(count):
        games.step(taken)
    return games.state()


def test_the_whole_state_of_mujoco_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its warm start and time too, which no observation shows."""
    mujoco = pytest.importorskip("mujoco", reason="pip install 'leap-rl[families]'")
    monkeypatch.syspath_prepend("examples")

    def integrated(games: GameVector) -> np.ndarray:
        (one, *_) = games._envs._games._envs  # type: ignore[attr-defined]
        model, data = one.unwrapped.model, one.unwrapped.data
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        numbers = np.zeros(mujoco.mj_stateSize(model, kind))
        mujoco.mj_getState(model, data, numbers, kind)
        assert data.time > 0
        assert data.qacc_warmstart.any()
        return numbers

    def cheetahs() -> GameVector:
        return walks("half_cheetah:Run-v0@max_episode_steps=25,speed=1.0", shape=(17,))

    played, again = cheetahs(), cheetahs()
    played.reset()
    taken = list(np.random.default_rng(0).uniform(-1.5, 1.5, (60, 3, 6)).astype(np.float32))
    for action in taken[:33]:
        played.step(action)
    again.restore(played.state())
    np.testing.assert_array_equal(integrated(played), integrated(again))
    for action in taken[33:]:
        assert bits([played.step(action)]) == bits([again.step(action)])
    np.testing.assert_array_equal(integrated(played), integrated(again))


def test_what_does_not_repeat_itself_is_told() -> None:
    wild = f"{WALK}@terminates=5,wild=true"
    with pytest.raises(ValueError, match=r"own_games:Walk.*does not repeat itself: .* 3 actions"):
        walks(wild).restore(saved(wild))


@pytest.mark.parametrize("name", ["observations", "returns", "episodes", "seeds", "actions"])
def test_a_state_that_was_changed_is_told(name: str) -> None:
    state = saved(ENDING)
    changed = state[name].copy()
    changed.reshape(-1)[0] = changed.reshape(-1)[0] + (1 if name != "actions" else 17)
    with pytest.raises(ValueError, match=r"does not repeat itself|has some that"):
        walks().restore({**state, name: changed})


def test_a_state_whose_actions_go_on_after_the_end_is_told() -> None:
    sizes = np.array([14, 2, 2])  # seven actions in the first, which ends after five
    with pytest.raises(ValueError, match="does not repeat itself: the seed and the 7 actions"):
        walks().restore({**saved(ENDING), "actions_sizes": sizes})


def test_what_is_left_behind_is_gone_in_a_new_environment() -> None:
    leaking = f"{WALK}@terminates=5,leaks=true"
    starts: dict[bool, list[float]] = {}
    for remake in (False, True):
        games = walks(leaking, num_envs=1, remake=remake)
        starts[remake] = [float(games.reset()[0, 1])]
        starts[remake] += [float(games.step(taken).observations[0, 1]) for taken in actions(5, 1)]
    assert starts[False][-1] == 5
    assert starts[True][-1] == 0
    games, again = (walks(leaking, remake=True) for _ in range(2))
    games.reset()
    for taken in actions(8):
        games.step(taken)
    again.restore(games.state())
    assert bits([again.step(actions(1)[0])]) == bits([games.step(actions(1)[0])])


@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("CartPoll-v1", "'CartPoll-v1' cannot be made (NameNotFound: Environment `CartPoll`"),
        ("Maze-v0", "); where a module of yours registers it, name that too, as my_games:Maze-v0"),
        ("CartPole-v1@length=2", "cannot be made (TypeError: "),
        ("leap_rl/CartPole-v1@swapped=no", "(ValueError: swapped = no: must be true or false"),
        ("leap_rl/CartPole-v1@length=0", "cannot be made (ValueError: length = 0: must be"),
        ("no_such_games:Maze-v0", "needs the module no_such_games, which is not found; install"),
        (f"{WALK}@sees=named", "has observations Dict, and must have a Box or a Discrete"),
    ],
)
def test_what_cannot_be_played_is_one_line(game: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        walks(game)
    assert f"task.games: {game!r}" in str(error.value)
    assert "\n" not in str(error.value)


def test_observations_larger_than_the_shape_are_told() -> None:
    for shape in ((3,), (4, 4, 3)):
        with pytest.raises(ValueError, match=r"observation_shape = .*Walk.* of \[4\], which"):
            walks(shape=shape)


def test_seeds_drawn_together_are_those_of_each_episode() -> None:
    drawn = np.random.default_rng(0)
    seeds = np.concatenate([drawn.integers(2**63 - 1, size=50), [0, 1, 2**32 - 1, 2**32]])
    indices, episodes = drawn.integers(5000, size=(2, len(seeds)))
    episodes[:2], indices[2] = (0, 2**33), 2**32
    found = np.empty(len(seeds), dtype=np.int64)
    draw_episode_seeds(seeds, indices, episodes, found)
    alone = [episode_seed(*map(int, one)) for one in zip(seeds, indices, episodes, strict=True)]
    assert found.tolist() == alone
