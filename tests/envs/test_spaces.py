from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiBinary

from leap_rl.envs.spaces import ActionAdapter, adapter_of
from tests.envs.own_games import SPACES


@pytest.mark.parametrize(
    ("name", "shape", "scaled"),
    [
        ("vector", (4,), False),
        ("pixels", (24, 20, 3), True),
        ("gray", (24, 20, 1), True),
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
    ],
)
def test_actions_that_cannot_be_taken_are_told(space: Space[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ActionAdapter(space)
