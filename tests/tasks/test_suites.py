from __future__ import annotations

import pytest

from leap_rl.envs.atari.settings import AtariConfig
from leap_rl.envs.gymnasium_config import GymnasiumConfig
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.suites import OPTIONS, SUITES


def test_each_suite_has_the_name_that_it_is_asked_for_by() -> None:
    assert all(suite.kind == kind for kind, suite in SUITES.items())
    assert set(OPTIONS) <= TaskConfig.__dataclass_fields__.keys()
    with pytest.raises(
        ValueError, match=r"task\.kind = 'balls': must be one of atari, .*gymnasium"
    ):
        TaskConfig(kind="balls")


def test_what_only_another_suite_reads_is_without_effect() -> None:
    assert TaskConfig().without_effect == ("gymnasium", "data", "data_sha256", "omniglot", "images")
    omniglot = TaskConfig(kind="omniglot", games=["Greek"])
    assert set(omniglot.without_effect) == set(OPTIONS) - {"data", "data_sha256", "omniglot"}
    for option, value in {
        "data": "images",
        "atari": AtariConfig("machado"),
        "gymnasium": GymnasiumConfig(pad="zeros"),
    }.items():
        with pytest.raises(
            ValueError, match=rf"task\.{option}: has no effect with task\.kind = catch"
        ):
            TaskConfig(kind="catch", **{option: value})
