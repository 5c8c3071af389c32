"""What every kind of environment promises, over several ends of episodes; and the same bits when it
is restored: in every game, and in another process."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from leap_rl.envs.atari.envs import AtariEnvs
from leap_rl.envs.atari.games import ACTION_COUNTS
from leap_rl.envs.atari.settings import PRESETS, AtariSettings
from leap_rl.envs.vector import GameVector, VectorStep
from tests.envs.own_games import WALK
from tests.envs.vectors import bits, make_atari, make_catch, make_gymnasium, play

Make = Callable[[int, int], GameVector]
"""Makes so many environments from a seed."""


def atari(num_envs: int, seed: int) -> GameVector:
    # Starts are shared between the environments, and sticky actions draw in every frame.
    settings = AtariSettings(max_frames=80, sticky=0.25, noop_max=2)
    return make_atari("space_invaders", num_envs=num_envs, seed=seed, settings=settings)


def walk(num_envs: int, seed: int) -> GameVector:
    game = f"{WALK}@terminates=7,truncates=5"
    return make_gymnasium(game, num_envs=num_envs, seed=seed, shape=(4,))


def catch(num_envs: int, seed: int) -> GameVector:
    return make_catch("catch", num_envs=num_envs, seed=seed)


every_kind = pytest.mark.parametrize("make", [atari, walk, catch])
AGENT_STEPS = 70


@every_kind
def test_the_seed_decides_every_bit(make: Make) -> None:
    games = [make(2, seed) for seed in (1, 1, 2)]
    first, again, _ = (each.reset() for each in games)
    assert np.array_equal(first, again)
    steps, steps_again, steps_other = (play(each, AGENT_STEPS) for each in games)
    assert bits(steps) == bits(steps_again) != bits(steps_other)
    assert sum((step.truncated | step.terminated).sum() for step in steps) >= 2


@every_kind
def test_an_environment_does_not_depend_on_how_many_there_are(make: Make) -> None:
    few, many = make(2, 3), make(5, 3)
    assert np.array_equal(few.reset(), many.reset()[:2])
    assert bits(play(few, AGENT_STEPS)) == bits(play(many, AGENT_STEPS), 2)


@every_kind
def test_arrays_are_the_callers_to_keep(make: Make) -> None:
    games = make(2, 0)
    kept = [games.reset()]
    copies = [kept[0].copy()]
    for count in range(AGENT_STEPS):
        (step,) = play(games, 1, seed=count)
        kept += [step.observations, *step.last_observations.values()]
        copies += [step.observations.copy(), *(o.copy() for o in step.last_observations.values())]
    assert all(map(np.array_equal, kept, copies))


@every_kind
def test_reading_the_state_changes_nothing_and_gives_copies(make: Make) -> None:
    calm, watched = make(2, 0), make(2, 0)
    calm.reset(), watched.reset()
    for count in range(AGENT_STEPS):
        for array in watched.state().values():
            array[...] = 0
        assert bits(play(watched, 1, seed=count)) == bits(play(calm, 1, seed=count))


# Third episodes come after 30 agent steps; each environment also goes through resets afterwards.
MAX_FRAMES = 60
BEFORE, AFTER = 37, 45
SETTINGS = AtariSettings(sticky=0.25, max_frames=MAX_FRAMES)


def digest(games: GameVector, agent_steps: int, seed: int) -> str:
    """Play at random and return a hash of all that was seen."""
    return hashlib.sha256(repr(bits(play(games, agent_steps, seed=seed))).encode()).hexdigest()


def restored_digests(folder: Path, games: list[str]) -> list[str]:
    """Restore each game's state and play on, in another process."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from test_kinds import restored_digest\n"
        f"for game in sys.argv[1:]: print(restored_digest(Path({str(folder)!r}), game))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *games], check=True, capture_output=True, text=True
    )
    return done.stdout.split()


def restored_digest(folder: Path, game: str) -> str:
    games = make_atari(game, num_envs=2, seed=99, settings=SETTINGS)
    state = load_file(folder / f"{game}.safetensors")
    observations = games.restore(state)
    assert np.array_equal(observations, state["observations"])
    return digest(games, AFTER, seed=1)


def check_games(names: list[str], folder: Path) -> None:
    expected = []
    for name in names:
        games = make_atari(name, num_envs=2, seed=3, settings=SETTINGS)
        games.reset()
        digest(games, BEFORE, seed=0)
        save_file(games.state(), folder / f"{name}.safetensors")
        expected.append(digest(games, AFTER, seed=1))
        games.close()
    assert restored_digests(folder, names) == expected


def test_restored_games_give_the_same_bits_in_another_process(tmp_path: Path) -> None:
    # qbert, whose clones lack a part; a PAL game; one whose start ALE draws.
    check_games(["qbert@difficulty=1", "air_raid@mode=8", "assault"], tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(480)
def test_every_game_is_restored_to_the_same_bits_in_another_process(tmp_path: Path) -> None:
    check_games(list(ACTION_COUNTS), tmp_path)


def halves(
    settings: AtariSettings, game: str, before: int, after: int, policy: int | None
) -> list[list[VectorStep]]:
    """Play on from the same moment in the old and in restored environments."""
    games, restored = (make_atari(game, num_envs=1, seed=s, settings=settings) for s in (0, 5))
    games.reset()
    play(games, before)
    restored.restore(games.state())
    if policy is None:
        return [play(each, after, seed=1) for each in (games, restored)]
    return [[g.step(np.array([policy])) for _ in range(after)] for g in (games, restored)]


def test_a_restored_game_continues_alike_past_its_real_end() -> None:
    for game, policy in (("breakout", 1), ("qbert", None)):
        expected, found = halves(AtariSettings(), game, 30, 450, policy=policy)
        assert bits(expected) == bits(found)
        assert sum(step.terminated[0] for step in expected) >= 1


@pytest.mark.parametrize(
    ("game", "frameskip"),
    [("qbert", 4), ("yars_revenge", 1), ("assault", 4)],
)
def test_an_episode_does_not_depend_on_the_emulators_past(game: str, frameskip: int) -> None:
    settings = AtariSettings(noop_max=0, frameskip=frameskip, max_frames=80 * frameskip)
    games = make_atari(game, num_envs=1, seed=0, settings=settings)
    first = games.reset()
    actions = np.random.default_rng(0).integers(games.num_actions, size=(80, 1))
    episodes = []
    for length in (80, 47, 80):  # the second leaves the emulator elsewhere
        episodes.append([games.step(action).observations for action in actions[:length]])
        if length < 80:
            assert isinstance(games._envs, AtariEnvs)
            games._envs.reset()
    assert all(map(np.array_equal, episodes[0], episodes[2]))
    assert np.array_equal(episodes[0][-1], first)


@pytest.mark.parametrize(
    ("settings", "game", "before", "after", "policy"),
    [
        *((AtariSettings(sticky=0.98), "breakout", 60, 30, policy) for policy in (2, 3)),
        # Every frame is seen, the first after a restore too.
        *(
            (AtariSettings(frameskip=n, max_frames=60), "yars_revenge", 100, 70, None)
            for n in (1, 2)
        ),
        (PRESETS["noframeskip"], "breakout", 60, 300, 1),  # stacks, lives and FIRE
    ],
)
def test_any_settings_are_restored_to_the_same_bits(
    settings: AtariSettings, game: str, before: int, after: int, policy: int | None
) -> None:
    expected, found = halves(settings, game, before, after, policy)
    assert bits(expected) == bits(found)


def state_of(name: str = "pong", **changes: Any) -> dict[str, Any]:
    games = make_atari(name, num_envs=1, seed=0, settings=AtariSettings(**changes))
    games.reset()
    return games.state()


def test_a_state_of_other_environments_is_refused() -> None:
    games = make_atari("pong", num_envs=1, seed=0)
    with pytest.raises(ValueError, match=r"state\.identity = atari breakout.*must be atari pong"):
        games.restore(state_of("breakout"))
    with pytest.raises(ValueError, match=r"state\.identity = atari pong@mode=1 "):
        games.restore(state_of("pong@mode=1"))
    with pytest.raises(ValueError, match=r"state\.identity .*\"sticky\": 0\.25"):
        games.restore(state_of(sticky=0.25))
    state = state_of()
    with pytest.raises(ValueError, match="state: held missing or unknown"):
        games.restore({name: array for name, array in state.items() if name != "held"})
    with pytest.raises(ValueError, match="state: more missing or unknown"):
        games.restore(state | {"more": state["held"]})
    for name in state.keys() - {"identity"}:
        with pytest.raises(ValueError, match=rf"state\.{name}"):
            games.restore(state | {name: state[name].astype(np.float32)})
    wide = make_atari("pong", num_envs=2, seed=0)
    wide.reset()
    with pytest.raises(ValueError, match=r"state\.\w+ is .* as many environments"):
        games.restore(wide.state())
    games.restore(state)  # none of it has touched them


def test_catch_is_restored_to_the_same_bits() -> None:
    name = "catch_up"
    games = make_catch(name, num_envs=5, seed=0)
    games.reset()
    digest(games, 100, seed=0)
    state = games.state()
    expected = digest(games, 200, seed=1)
    restored = make_catch(name, num_envs=5, seed=8)
    assert np.array_equal(restored.restore(state), state["observations"])
    assert digest(restored, 200, seed=1) == expected
    with pytest.raises(ValueError, match=r"state\.identity"):
        make_catch("catch_dark", num_envs=5, seed=0).restore(state)
    with pytest.raises(ValueError, match="as many environments"):
        make_catch(name, num_envs=4, seed=0).restore(state)
