from __future__ import annotations

import subprocess
import sys

import pytest

from leap_rl.core.seeding import Purpose, derive_seed


def test_a_stream_is_a_function_of_its_path_in_every_process() -> None:
    code = (
        "from leap_rl.core.seeding import Purpose, derive_seed;"
        "print(derive_seed(7, Purpose.TASK, 3, 11))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    }
    assert outputs == {f"{derive_seed(7, Purpose.TASK, 3, 11)}\n"}


def test_streams_never_change() -> None:
    # Written down once: another value here means that no old run can be repeated.
    assert derive_seed(0, Purpose.INITIALIZATION) == 9_115_413_132_439_287_780


def test_different_paths_have_different_streams() -> None:
    paths = [
        (purpose, *path)
        for purpose in Purpose
        for path in [(), (0,), (1,), ("0",), (0, 0), (0, 1), (1, 0), (10,), (1, 0, 0), ("1", 0)]
    ]
    seeds = {derive_seed(seed, *path) for path in paths for seed in (0, 1, 2**63 - 1)}
    assert len(seeds) == 3 * len(paths)
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed = {seed}"):
        derive_seed(seed, Purpose.TASK)
