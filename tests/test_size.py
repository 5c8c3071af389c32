"""A budget of lines: whoever adds takes out elsewhere, or says in the commit what the lines buy."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUDGETS = {"leap_rl": 40_276, "tests": 40_152, "benchmarks": 6_402}
"""Lines of Python. Lower a number by hand when lines have gone. They were raised for studies: the
room itself, the measure, whole agents, mixed games, normalised observations, defaults; and then for
VectorEnvs of one's own, starts to choose among, shared trainers, the roofline; and for learners
from other libraries and scripts, data sets of images, compiled passes of small networks, sums of
all that is read, one reader of JSON, runs whose cluster is lost, and cards of what is measured; and
for cores that are lent, limits of what is unpacked and downloaded, and libraries' own batches; and
for what study files, folders, scripts and archives of strangers may hold; and for studies that are
finished in part, whose arms have other games or runs, and trainers whose tasks hang or exit; and
for what a start was trained on before, environments whose errors and channels are their own, what
a GPU computes, and studies that move to another processor; and for loops that play mixed games,
budgets that all arms can have, members' own modules, and references that get worse; and for unequal
clusters, learners' own draws, studies whose files are damaged, and pages that lose arms."""
LONGEST = 430
"""Lines of a file in the package."""


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def files(folder: str) -> list[Path]:
    found = (ROOT / folder).rglob("*.py")
    return [path for path in found if not any(part.startswith(".") for part in path.parts)]


@pytest.mark.parametrize("folder", BUDGETS)
def test_a_folder_keeps_within_its_budget(folder: str) -> None:
    assert sum(map(lines, files(folder))) <= BUDGETS[folder]


def test_no_file_of_the_package_is_endless() -> None:
    assert {path.name: lines(path) for path in files("leap_rl") if lines(path) > LONGEST} == {}
