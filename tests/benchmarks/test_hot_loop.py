"""benchmarks/hot_loop.py, without its stopwatch."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import hot_loop
from leap_rl.networks.encoders import make_encoder
from leap_rl.networks.parameters import layout_of
from leap_rl.tasks.config import TaskConfig


@pytest.mark.parametrize("encoder", ["mnih2013", "nature"])
def test_each_decision_can_be_measured_on_the_encoders_own_parameters(
    encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = TaskConfig().atari.settings.observation_shape
    assert shape == hot_loop.SHAPE
    sizes: set[int] = set()
    step = hot_loop.RMSProp.step

    def seen(optimizer: Any, shared_size: int, **options: Any) -> Any:
        sizes.add(shared_size)
        return step(optimizer, shared_size, **options)

    monkeypatch.setattr(hot_loop.RMSProp, "step", seen)
    monkeypatch.setattr(hot_loop, "ENVIRONMENTS", 2)
    for choice in hot_loop.choices(encoder, "float32"):
        choice.new()
        choice.old()
    assert sizes == {layout_of(make_encoder(encoder, shape)).size}
