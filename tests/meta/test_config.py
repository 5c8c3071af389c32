"""The config: its contract with the command line, its refusals, what it builds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest

import leap_rl.meta
from leap_rl.meta import Leap
from leap_rl.meta.config import MetaConfig


def test_fields_and_defaults():
    config = MetaConfig()
    assert {field.name: getattr(config, field.name) for field in fields(config)} == {
        "method": "leap",
        "p": 2,
        "loss_in_path": True,
        "loss_scale": 1.0,
        "stabilizer": True,
        "loss_difference": "next_batch",
        "meta_steps": 100,
        "batch_size": 16,
        "meta_lr": 1e-3,
        "optimizer": "adam",
        "init": "random",
    }


def test_build_hands_every_field_on():
    config = MetaConfig(p=1, loss_in_path=False, loss_scale=0.5, stabilizer=False)
    assert config.build() == Leap(p=1, loss_in_path=False, stabilizer=False, loss_scale=0.5)
    assert MetaConfig().build() == Leap()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"method": "mamml"}, r"meta\.method = 'mamml': must be one of \['leap', 'maml'\]"),
        ({"p": 3}, r"meta\.p = 3: must be one of \[1, 2\]"),
        ({"loss_difference": "none"}, r"meta\.loss_difference = 'none'"),
        ({"optimizer": "lion"}, r"meta\.optimizer = 'lion'"),
        ({"loss_scale": 0.0}, r"meta\.loss_scale = 0\.0: must be greater than 0"),
        ({"meta_lr": -1.0}, r"meta\.meta_lr = -1\.0: must be greater than 0"),
        ({"meta_lr": float("nan")}, r"meta\.meta_lr = nan: must be greater than 0"),
        ({"meta_lr": float("inf")}, r"meta\.meta_lr = inf: must be finite"),
        ({"meta_steps": 0}, r"meta\.meta_steps = 0: must be at least 1"),
        ({"batch_size": 0}, r"meta\.batch_size = 0: must be at least 1"),
        ({"init": ""}, r"meta\.init"),
    ],
)
def test_values_out_of_range_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        MetaConfig(**bad)


def test_reading_the_config_imports_no_torch():
    code = (
        "import sys; from leap_rl.meta.config import MetaConfig; MetaConfig(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_exported_name_is_there():
    for name in leap_rl.meta.__all__:
        assert getattr(leap_rl.meta, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        _ = leap_rl.meta.nothing
