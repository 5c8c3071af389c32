from __future__ import annotations

import pytest

from benchmarks.system.startup import runtime_parts


def test_the_parts_add_up_to_the_whole() -> None:
    taken = {
        "import": 2.0,
        "roms": 0.5,
        "ray": 4.0,
        "local_folder": 2.25,
        "local_updated": 3.0,
        "ray_folder": 2.5,
        "ray_updated": 11.0,
    }
    local, ray = runtime_parts(taken, "local"), runtime_parts(taken, "ray")
    assert local == {
        "import_s": 2.0,
        "config_s": 0.25,
        "ray_s": 0.0,
        "roms_s": 0.5,
        "first_update_s": 0.25,
        "total_s": 3.0,
    }
    assert ray["ray_s"] == 4.0
    assert ray["first_update_s"] == pytest.approx(11.0 - 2.5 - 4.0 - 0.5)
