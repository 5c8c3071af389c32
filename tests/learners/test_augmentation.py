from __future__ import annotations

import math

import pytest
import torch

from leap_rl.learners.classifier.augmentation import inverse_matrices, random_affine, transform

NOTHING = {"angle": torch.zeros(1), "scale": torch.ones(1), "shift": torch.zeros(1, 2)}


def image(size: int = 28) -> torch.Tensor:
    return torch.rand(1, 1, size, size, generator=torch.Generator().manual_seed(0))


def test_a_quarter_turn_is_numpys() -> None:
    turned = transform(image(), **{**NOTHING, "angle": torch.tensor([math.pi / 2])})
    # With y downwards a positive angle turns clockwise, numpy's rot90 counterclockwise.
    expected = torch.rot90(image(), k=-1, dims=(2, 3))
    torch.testing.assert_close(turned, expected, atol=1e-4, rtol=0.0)


def test_a_shift_moves_right_and_down_and_paper_comes_in() -> None:
    shifted = transform(image(32), **{**NOTHING, "shift": torch.tensor([[0.25, 0.125]])})
    expected = torch.zeros(1, 1, 32, 32)
    expected[..., 4:, 8:] = image(32)[..., :-4, :-8]
    torch.testing.assert_close(shifted, expected, atol=1e-4, rtol=0.0)


def test_the_matrix_undoes_turn_scale_and_shift() -> None:
    """Against the formula point by point, in float64: y = s·R(φ)·x + 2t."""
    generator = torch.Generator().manual_seed(1)
    angle, scale = (torch.rand(5, generator=generator, dtype=torch.float64) + 0.5 for _ in "ab")
    shift = torch.rand(5, 2, generator=generator, dtype=torch.float64)
    matrices = inverse_matrices(angle, scale, shift)
    for i in range(5):
        point = torch.rand(2, generator=generator, dtype=torch.float64)
        c, s = math.cos(angle[i]), math.sin(angle[i])
        rotation = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        image_of_point = scale[i] * rotation @ point + 2.0 * shift[i]
        back = matrices[i] @ torch.cat([image_of_point, torch.ones(1, dtype=torch.float64)])
        torch.testing.assert_close(back, point)


def test_draws_are_within_the_papers_ranges_and_reach_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[str, torch.Tensor] = {}

    def watch(images: torch.Tensor, **amounts: torch.Tensor) -> torch.Tensor:
        seen.update(amounts)
        return images

    monkeypatch.setattr("leap_rl.learners.classifier.augmentation.transform", watch)
    random_affine(torch.zeros(20_000, 1, 2, 2), torch.Generator().manual_seed(0))
    for name, low, high in (
        ("angle", 0.0, 2 * math.pi),
        ("scale", 0.8, 1.2),
        ("shift", -0.2, 0.2),
    ):
        slack = 0.01 * (high - low)
        assert low <= float(seen[name].min()) < low + slack
        assert high - slack < float(seen[name].max()) <= high


def test_each_drawing_is_turned_its_own_way_and_the_generator_decides() -> None:
    both = torch.cat([image(), image()])
    one, two = random_affine(both, torch.Generator().manual_seed(0))
    assert not torch.equal(one, two)
    again = random_affine(both, torch.Generator().manual_seed(0))
    assert torch.equal(again[0], one)
    assert not torch.equal(random_affine(both, torch.Generator().manual_seed(1))[0], one)
