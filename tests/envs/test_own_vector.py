"""A user's own VectorEnv: what is seen of it in both autoreset modes, and its snapshots."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_rl.envs.games import traits_of
from leap_rl.envs.normalized import NormalizedVector
from leap_rl.envs.own_vector import OwnVectorEnvs, check_vector_env
from leap_rl.envs.spaces import ActionAdapter, adapter_of
from leap_rl.envs.vector import EpisodeAccounting, GameVector
from tests.envs.own_games import SPACES, Walk
from tests.envs.own_vectors import LIFTS, MODULE, WALKS
from tests.envs.vectors import bits

MODES = ("NEXT_STEP", "SAME_STEP")
B = 3


def vector(game: str, *, seed: int = 7, num_envs: int = B, length: int = 4) -> GameVector:
    return GameVector(OwnVectorEnvs(game, num_envs=num_envs, shape=(length,)), seed=seed)


def actions(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(3, size=(count, B))


Transition = tuple[list[float], int, float, bool, bool, list[float] | None]
"""What was seen, done and paid, whether it ended, and the last observation if it was cut off."""


def transitions(games: GameVector, count: int) -> tuple[list[list[Transition]], list[list[float]]]:
    """Give each environment its next action when it takes one; return what it did, and episodes."""
    drawn, taken = actions(count), np.zeros(B, np.int64)
    accounting, agent_steps = EpisodeAccounting(B), 0
    found: list[list[Transition]] = [[] for _ in range(B)]
    episodes: list[list[float]] = []
    seen = games.reset()
    while taken.min() < count - 1:
        chosen = drawn[np.minimum(taken, count - 1), np.arange(B)]
        step = games.step(chosen)
        agent_steps += step.agent_steps
        ignored = np.zeros(B, np.bool_) if step.ignored is None else step.ignored
        for index in np.flatnonzero(~ignored):
            last = step.last_observations.get(int(index))
            found[index].append(
                (
                    seen[index].tolist(),
                    int(chosen[index]),
                    float(step.rewards[index]),
                    bool(step.terminated[index]),
                    bool(step.truncated[index]),
                    None if last is None else last.tolist(),
                )
            )
        taken += ~ignored
        episodes += [[*end] for end in accounting.record(step, agent_steps)]
        assert agent_steps == sum(map(len, found))
        seen = step.observations
    return [each[: count - 1] for each in found], episodes


def alone(index: int, count: int, **arguments: int) -> list[Transition]:
    """The same of a single environment, seeded as Gymnasium's vector seeds its own."""
    env, found = Walk(**arguments), []
    games = vector(WALKS)
    seeds: list[int] = []
    games._envs._envs.reset = lambda seed: seeds.append(seed) or (np.zeros((B, 4)), {})  # type: ignore[attr-defined]
    games.reset()
    seen = env.reset(seed=seeds[0] + index)[0].astype(np.float32).tolist()
    for action in actions(count)[:-1, index].tolist():
        after, reward, terminated, truncated, _ = env.step(action)
        after = after.astype(np.float32).tolist()
        cut_off = truncated and not terminated
        reward = float(np.float32(reward))
        found.append((seen, action, reward, terminated, cut_off, after if cut_off else None))
        seen = after
        if terminated or truncated:
            seen = env.reset()[0].astype(np.float32).tolist()
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "ends",
    [{"terminates": 5}, {"truncates": 3}, {"terminates": 1}, {"terminates": 4, "truncates": 4}],
)
def test_gymnasiums_vector_is_the_same_single_environments_in_both_modes(
    mode: str, ends: dict[str, int]
) -> None:
    game = f"{WALKS}@mode={mode}," + ",".join(f"{name}={count}" for name, count in ends.items())
    found, episodes = transitions(vector(game), 40)
    for index in range(B):
        assert found[index] == alone(index, 40, **ends)
    length = min(ends.values())
    assert len(episodes) >= B * (39 // length)
    assert {end[2] for end in episodes} == {length}
    assert [end[0] for end in episodes][:B] == [B * length] * B
    for index in range(B):  # they all end together
        rewards = [one[2] for one in found[index]]
        returns = np.add.reduceat(np.float64(rewards), range(0, 39, length))
        np.testing.assert_allclose(
            [end[1] for end in episodes][index::B][: 39 // length], returns[: 39 // length]
        )


def test_a_vector_whose_environments_end_apart_is_the_same_in_both_modes() -> None:
    found = [transitions(vector(f"{LIFTS}@mode={mode}", length=3), 60)[0] for mode in MODES]
    # Its draws, the third number, come in another order.
    levels = [
        [[(*one[0][:2], *one[1:5], one[5] and one[5][:2]) for one in each] for each in mode]
        for mode in found
    ]
    assert levels[0] == levels[1]
    ends = [{one[4:6] for one in each} for each in levels[0]]
    assert ends == [{(False, False), (True, False), (False, True)}] * B


@pytest.mark.parametrize("mode", MODES)
def test_arrays_are_the_callers_and_an_ignored_action_pays_nothing(mode: str) -> None:
    games = vector(f"{LIFTS}@fault=junk,mode={mode}", length=3)
    kept = [games.reset()]
    copies = [kept[0].copy()]
    for taken in actions(12):
        step = games.step(taken)
        kept += [step.observations, *step.last_observations.values()]
        copies += [step.observations.copy(), *(o.copy() for o in step.last_observations.values())]
        assert np.isfinite(step.rewards).all()
        assert not any(each[1] == 0 for each in step.last_observations.values())
    assert all(map(np.array_equal, kept, copies))


def test_statistics_of_observations_are_of_those_that_are_acted_on() -> None:
    counted = []
    for mode in MODES:
        games = NormalizedVector(vector(f"{WALKS}@mode={mode},truncates=4"))
        games.reset()
        steps = 12 + (mode == "NEXT_STEP") * 3  # three episodes, and the first of the fourth
        shown = [games.step(np.ones(B, np.int64)).observations for _ in range(steps)]
        assert all(np.abs(each).max() <= 10 for each in shown)
        counted.append(games.moments)
    assert counted[0].count == counted[1].count == 13 * B
    np.testing.assert_allclose(counted[0].mean, counted[1].mean, rtol=1e-12)
    np.testing.assert_allclose(counted[0].variance, counted[1].variance, rtol=1e-12)


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [0, 3, 4, 8])
def test_a_vector_with_a_state_is_restored_to_the_same_bits(
    count: int, mode: str, continuous: bool
) -> None:
    game = f"{MODULE}:SavedLifts-v0@continuous={str(continuous).lower()},mode={mode}"
    assert traits_of(game).restorable
    check_vector_env(game, num_envs=B, shape=(3,))
    drawn = actions(30)
    if continuous:
        drawn = np.random.default_rng(0).normal(size=(30, B, 1)).astype(np.float32)
    games, again = vector(game, length=3), vector(game, length=3, seed=99)
    seen = games.reset()
    for taken in drawn[:count]:
        seen = games.step(taken).observations
    state = games.state()
    steps = [games.step(taken) for taken in drawn[count:]]
    np.testing.assert_array_equal(again.restore(state), seen)
    restored = [again.step(taken) for taken in drawn[count:]]
    assert bits(restored) == bits(steps)
    assert [each.agent_steps for each in restored] == [each.agent_steps for each in steps]
    with pytest.raises(ValueError, match="made alike"):
        vector(game, length=3, num_envs=2).restore(state)


@pytest.mark.parametrize("sees", [*SPACES][:8])
def test_many_observations_are_shown_as_each_is(sees: str) -> None:
    space = SPACES[sees]
    many = np.stack([space.sample() for _ in range(5)])
    adapter = adapter_of(space)
    shown = adapter.show_all(many)
    assert shown.dtype == adapter.shown.dtype
    np.testing.assert_array_equal(shown, np.stack([adapter.show(one) for one in many]))


@pytest.mark.parametrize("continuous", [False, True])
def test_many_actions_are_taken_as_each_is(continuous: bool) -> None:
    adapter = ActionAdapter(Walk(continuous=continuous, first_action=2).action_space)
    many = np.linspace(-2, 2, 9, dtype=np.float32)[:, None] if continuous else np.arange(3)
    taken = adapter.take_all(many)
    np.testing.assert_array_equal(taken, np.stack([adapter.take(one) for one in many.tolist()]))


def test_padding_and_images() -> None:
    padded = vector(f"{LIFTS}@mode=SAME_STEP", length=5)
    plain = vector(f"{LIFTS}@mode=SAME_STEP", length=3)
    assert np.array_equal(padded.reset()[:, :3], plain.reset())
    for taken in actions(5):
        wide, step = padded.step(taken), plain.step(taken)
        assert np.array_equal(wide.observations, np.pad(step.observations, ((0, 0), (0, 2))))
        for index, last in step.last_observations.items():
            assert np.array_equal(wide.last_observations[index], np.pad(last, (0, 2)))
    pixels = OwnVectorEnvs(f"{WALKS}@sees=pixels", num_envs=2, shape=(24, 20, 3))
    assert pixels.reset(seed=1)[0].dtype == np.uint8


MODE = "must be a VectorEnv of the 1 environments that it is asked for, whose metadata says"


@pytest.mark.parametrize(
    ("game", "message"),
    [
        (f"{LIFTS}@mode=DISABLED", f"has autoreset mode AutoresetMode.DISABLED, and {MODE}"),
        (f"{LIFTS}@fault=silent", f"has autoreset mode None, and {MODE}"),
        (f"{LIFTS}@fault=more", f"has 2, and {MODE}"),
        (f"{LIFTS}@size=7", "cannot be made (TypeError"),
        (f"{WALKS}@sees=named", "has observations Dict, and must have"),
        (f"{LIFTS}@fault=wild", "does not repeat itself: the same seed and actions led elsewhere"),
        (f"{LIFTS}@fault=twice", "ended an episode in the step that began it"),
        (f"{LIFTS}@fault=no_final,mode=SAME_STEP", "truncated an episode without info"),
        (f"{MODULE}:SavedLifts-v0@fault=forgetful", "went elsewhere from a snapshot: get_state"),
        (f"{WALKS}@breaks=1", "failed when it was tried (OSError: gone)"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*autoreset_mode")
@pytest.mark.filterwarnings("ignore:.*AutoresetMode")
def test_what_cannot_be_played_is_one_line(game: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        check_vector_env(game, num_envs=B, shape=traits_of(game).observation_space.shape)
    assert str(error.value).startswith(f"task.games: {game!r}")
    assert "\n" not in str(error.value)


def test_a_vector_without_a_state_says_so() -> None:
    assert not traits_of(LIFTS).restorable
    games = vector(LIFTS, length=3)
    games.reset()
    with pytest.raises(ValueError, match="has no get_state and set_state"):
        games.state()
