from __future__ import annotations

import pytest
import torch

from leap_rl.meta import MAML, MetaConfig, NonFiniteError

THETA0 = torch.arange(4, dtype=torch.float32)


def test_its_contribution_is_the_gradient_at_the_end() -> None:
    path = MAML().start(THETA0, borrow=True)
    for update in range(3):
        path.observe(THETA0 + update, 1.0, torch.full((4,), 9.0))
    end = torch.tensor([1.0, -2.0, 0.0, 3.0])
    path.finish(THETA0 + 3, 0.5, end)
    assert torch.equal(path.gradient(), end)
    assert path.gradient() is not path.gradient()
    assert path.segments == 3
    assert path.metrics()["displacement"] == 6.0


def test_an_end_without_a_gradient_is_refused() -> None:
    path = MAML().start(THETA0)
    path.observe(THETA0, 1.0, torch.zeros(4))
    with pytest.raises(ValueError, match="grad: MAML, of either order, needs it at the end"):
        path.finish(THETA0, 0.5)
    with pytest.raises(NonFiniteError):
        path.finish(THETA0, 0.5, torch.full((4,), torch.nan))
    assert MAML().end_batches == 1


def test_a_frozen_path_goes_on_to_the_same_bits() -> None:
    paths = [MAML().start(THETA0) for _ in range(2)]
    paths[0].observe(THETA0, 1.0, torch.zeros(4))
    paths[1].load_state_dict(paths[0].state_dict())
    for path in paths:
        path.observe(THETA0 + 1, 1.0, torch.zeros(4))
        path.finish(THETA0 + 2, 0.5, torch.ones(4))
    assert torch.equal(paths[0].gradient(), paths[1].gradient())
    assert paths[0].metrics() == paths[1].metrics()
    again = MAML().start(THETA0)
    again.load_state_dict(paths[0].state_dict())
    assert torch.equal(again.gradient(), torch.ones(4))


def test_a_config_names_it() -> None:
    assert MetaConfig(method="maml").build() == MAML()
