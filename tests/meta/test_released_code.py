"""Ours gives the numbers of the authors' code, amzn/metalearn-leap, and what differs is on purpose.

`data/metalearn_leap.json` holds its numbers and says how they were made. Its agent makes 6 updates
with batches 0 to 5. It looks at each batch before the update, so it sees the points 0 to 5; ours
ends at point 6, with batch 6, which is not stepped on.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from leap_rl.meta import FOMAML, Leap, Reptile
from leap_rl.meta.gradient_path import Method
from tests.meta.paths import Point, assert_close

DATA: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "metalearn_leap.json").read_text()
)
ENCODER = 20
LEAPS = [
    pytest.param(one, id="-".join(f"{name}={one[name]}" for name in ("p", "loss", "stabilizer")))
    for one in DATA["leap"]
    if not one["head"]
]
WITH_HEAD = [
    pytest.param(one, id="-".join(f"{name}={one[name]}" for name in ("p", "loss", "stabilizer")))
    for one in DATA["leap"]
    if one["head"]
]


def stream(task: int = 0, *, size: int = ENCODER) -> list[Point]:
    """The points 0 to 6 of a task: half the squared distance from a target each, by SGD."""
    theta = torch.tensor(DATA["theta0"][:size], dtype=torch.float64)
    points = []
    for target in DATA["targets"][task]:
        grad = theta - torch.tensor(target[:size], dtype=torch.float64)
        points.append(Point(theta.float(), 0.5 * float(grad @ grad), grad.float()))
        assert torch.equal(points[-1].theta.double(), theta), "both codes see the same numbers"
        assert torch.equal(points[-1].grad.double(), grad)
        theta = theta - DATA["rate"] * grad
    assert len(points) == 7
    return points


def ours(method: Method, points: list[Point]) -> Tensor:
    """Our contribution for a path that ends at the last of the points, float64."""
    path = method.start(points[0].theta)
    for point in points[:-1]:
        path.observe(*point)
    path.finish(*points[-1])
    assert path.segments == len(points) - 1
    return path.gradient().double()


def leap(settings: dict[str, Any]) -> Leap:
    return Leap(p=settings["p"], loss_in_path=settings["loss"], stabilizer=settings["stabilizer"])


def term(settings: dict[str, Any], here: Point, there: Point) -> Tensor:
    """One segment's term of eq. 8, without p, written out in float64."""
    delta_f = there.loss - here.loss if settings["loss"] else 0.0
    delta = there.theta.double() - here.theta.double()
    length = math.sqrt(float(delta @ delta) + delta_f**2)
    pull = -abs(delta_f) if settings["stabilizer"] else delta_f
    return -(pull * here.grad.double() + delta) * length ** (settings["p"] - 2)


def test_the_stream_rises_and_falls() -> None:
    """Otherwise the stabilizer would say nothing."""
    seen = [point.loss for point in stream()[:6]]
    assert any(b > a for a, b in pairwise(seen))
    assert any(b < a for a, b in pairwise(seen))
    loss = {one["stabilizer"]: one["gradient"] for one in DATA["leap"][:2]}
    assert loss[True] != loss[False]


@pytest.mark.parametrize("released", LEAPS)
def test_leap_on_the_points_that_it_saw_is_p_times_the_released_codes(released: Any) -> None:
    """Difference: it drops the factor p of eq. 8."""
    gradient = ours(leap(released), stream()[:6])
    assert_close(gradient, [released["p"] * x for x in released["gradient"]])


@pytest.mark.parametrize("released", LEAPS)
def test_the_released_code_lacks_the_last_segment(released: Any) -> None:
    """Difference: with K updates it has the first K - 1 segments."""
    points = stream()
    theirs = torch.tensor(released["gradient"], dtype=torch.float64)
    last = term(released, points[5], points[6])
    assert last.norm() > 0.01 * theirs.norm()
    assert_close(ours(leap(released), points), released["p"] * (theirs + last))


@pytest.mark.parametrize("released", WITH_HEAD)
def test_the_released_codes_norm_spans_the_head(released: Any) -> None:
    """Difference: ours sees the shared parameters alone. With p = 2 the norm plays no part."""
    theirs = torch.tensor(released["gradient"], dtype=torch.float64)
    assert theirs.shape == (25,)
    whole = ours(leap(released), stream(size=25)[:6])
    assert_close(whole, released["p"] * theirs)

    # A task whose loss depends on a head, but whose path is that of the encoder.
    encoder = [
        Point(point.theta[:ENCODER].clone(), point.loss, point.grad[:ENCODER].clone())
        for point in stream(size=25)[:6]
    ]
    alone = ours(leap(released), encoder)
    if released["p"] == 2:
        assert_close(alone, 2 * theirs[:ENCODER])
    else:
        assert torch.linalg.vector_norm(alone - theirs[:ENCODER]) > 0.001 * alone.norm()
        expected = sum(term(released, here, there) for here, there in pairwise(encoder))
        assert isinstance(expected, Tensor)
        assert_close(alone, expected)


@pytest.mark.parametrize("released", DATA["leap_repeated"], ids=["p=1", "p=2"])
def test_a_segment_of_length_zero_adds_nothing_to_ours(released: Any) -> None:
    """Difference: with p = 1 it divides by that length, 0 by 0."""
    points = stream()[:6]
    gradient = ours(Leap(p=released["p"]), [*points[:3], *points[2:]])
    (without,) = (
        one["gradient"]
        for one in DATA["leap"][:8]
        if one["p"] == released["p"] and one["loss"] and one["stabilizer"]
    )
    assert_close(gradient, [released["p"] * x for x in without])
    if released["p"] == 1:
        assert released["gradient"] == [None] * ENCODER
    else:
        assert released["gradient"] == pytest.approx(without, rel=1e-12)


@pytest.mark.parametrize(("name", "method"), [("reptile", Reptile()), ("fomaml", FOMAML())])
def test_reptile_and_fomaml_end_before_the_last_update(name: str, method: Method) -> None:
    """Difference: with 6 updates its Reptile ends where 5 led, and its FOMAML takes the gradient of
    the batch of the 6th there. Ours ends after the 6th, on a batch that was not learned from."""
    theirs = torch.tensor(DATA[name], dtype=torch.float64)
    as_they_end = torch.stack([ours(method, stream(task)[:6]) for task in (0, 1)]).mean(0)
    assert_close(as_they_end, theirs)
    as_we_end = torch.stack([ours(method, stream(task)) for task in (0, 1)]).mean(0)
    assert torch.linalg.vector_norm(as_we_end - theirs) > 0.01 * theirs.norm()
