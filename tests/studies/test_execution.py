"""Cells are carried out run by run, the longest first, after what they start from."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from leap_rl.core.errors import RunFailedError
from leap_rl.runs.process import Request
from leap_rl.studies import execution
from leap_rl.studies.cells import Cell, cells_of
from leap_rl.studies.config import configure
from leap_rl.studies.execution import Execution, Failure, request_of
from leap_rl.training.interrupts import Interrupts

WORDS = [
    *("--games", '["catch", "catch_up"]', "--held_out", '["catch_dark"]', "--runs", "2"),
    *("--agents", "2", "--random_agents", "3", "--task.num_envs", "4", "--task.agent_steps", "400"),
    *("--meta.meta_steps", "2", "--arms", '["leap", "reptile"]'),
]


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    return cells_of(configure(WORDS), tmp_path / "out")


class Fake:
    """A process that finishes its cell at once, or fails; several run at a time."""

    failing: ClassVar[Mapping[str, Exception]] = {}
    leaving: ClassVar[Collection[str]] = ()
    """Cells whose process ends with status 0 and has done nothing."""
    started: ClassVar[list[str]] = []
    most = 0
    running = 0
    lock = threading.Lock()

    def __init__(self, request: Request) -> None:
        self.request = request
        self.name = Path(request.place).name
        with self.lock:
            Fake.started.append(self.name)
            Fake.running += 1
            Fake.most = max(Fake.most, Fake.running)

    def wait(self, on_row: Callable[[Any], object]) -> int:
        with self.lock:
            Fake.running -= 1
        if (error := self.failing.get(self.name.rpartition("-")[0])) is not None:
            raise error
        if self.name.rpartition("-")[0] in self.leaving:
            return 0
        done = Path(self.request.place)
        (done / "checkpoints").mkdir(parents=True)
        (done / "checkpoints" / "latest").write_text("000002\n")
        (done / "config.yaml").touch()  # last: then it is a run
        return 0

    def send_signal(self, number: int) -> None:
        pass


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    monkeypatch.setattr(execution, "RunProcess", Fake)
    Fake.started, Fake.failing, Fake.leaving, Fake.most, Fake.running = [], {}, (), 0, 0
    return Fake


def execute(cells: list[Cell], *, processes: int = 2) -> list[Failure]:
    told: list[Failure] = []
    failures = Execution(
        cells=cells,
        processes=processes,
        trusts_imports=False,
        interrupts=Interrupts(),
        on_look=lambda: None,
        on_finished=lambda cell: None,
        on_failure=told.append,
    ).run()
    assert told == failures
    return failures


def test_cells_are_named_by_what_they_are(cells: list[Cell]) -> None:
    names = [cell.name.rpartition("-")[0] for cell in cells]
    assert names == [
        *("random-0-held_out", "random-1-held_out"),
        *("leap-0", "leap-0-held_out", "reptile-0", "reptile-0-held_out"),
        *("leap-1", "leap-1-held_out", "reptile-1", "reptile-1-held_out"),
    ]
    assert len({cell.path for cell in cells}) == len(cells)
    # Three random agents in cells of two.
    assert [cell.agent_steps for cell in cells[:4]] == [800, 400, 1600, 800]
    seeds = {cell.name.rpartition("-")[0]: cell.config.seed for cell in cells}
    assert {seeds[f"{arm}-1-held_out"] for arm in ("leap", "reptile")} == {
        seeds["random-0-held_out"]
    }
    assert seeds["leap-1"] == seeds["reptile-1"] == seeds["random-1-held_out"] == 1


def test_another_option_makes_other_cells_and_more_meta_steps_do_not(tmp_path: Path) -> None:
    def names(*words: str) -> dict[str, str]:
        found = cells_of(configure([*WORDS, *words]), tmp_path)
        return {cell.name.rpartition("-")[0]: cell.name for cell in found}

    before = names()
    further = names("--meta.meta_steps", "4")
    assert {name for name in before if before[name] == further[name]} == {
        *("leap-0", "leap-1", "reptile-0", "reptile-1"),
        *("random-0-held_out", "random-1-held_out"),
    }
    longer = names("--agent_steps", "800")  # of new agents alone
    kept = {name for name in before if before[name] == longer[name]}
    assert kept == {"leap-0", "leap-1", "reptile-0", "reptile-1"}
    faster = names("--agent.lr", "0.5")
    assert not [name for name in before if before[name] == faster[name]]
    elsewhere = names("--processes", "7", "--runtime.snapshot_every_s", "5", "--question", "why?")
    assert elsewhere == before


def test_an_arm_under_another_name_has_other_seeds_if_it_says_so(tmp_path: Path) -> None:
    words = [*WORDS[:-1], "{leap: {}, again: {seed: 100}}"]
    cells = cells_of(configure(words), tmp_path)
    seeds = {cell.name.rpartition("-")[0]: cell.config.seed for cell in cells}
    assert (seeds["leap-1"], seeds["again-0"], seeds["again-1"]) == (1, 100, 101)
    assert seeds["again-0-held_out"] == seeds["leap-0-held_out"] == 0


def test_members_that_were_learned_from_have_cells_of_their_own(tmp_path: Path) -> None:
    before = cells_of(configure(WORDS), tmp_path)
    cells = cells_of(configure([*WORDS, "--also_seen", "true"]), tmp_path)
    assert {cell.name for cell in before} < {cell.name for cell in cells}
    seen = [cell for cell in cells if cell.members == "seen"]
    assert len(seen) == 6
    assert {cell.config.task.resolved_games for cell in seen} == {("catch", "catch_up")}


def test_a_process_that_ends_well_without_its_run_has_failed(
    cells: list[Cell], fake: type[Fake]
) -> None:
    fake.leaving = ["leap-0"]
    (failure,) = execute(cells)
    assert failure.cell.name.startswith("leap-0-")
    assert failure.reason == "its process ended with status 0 before it had finished"


@pytest.mark.parametrize("processes", [1, 2])
def test_first_runs_come_first_and_new_agents_after_their_start(
    cells: list[Cell], fake: type[Fake], processes: int
) -> None:
    assert execute(cells, processes=processes) == []
    order = [name.rpartition("-")[0] for name in fake.started]
    assert fake.most <= processes
    assert order[:2] == ["leap-0", "reptile-0"]  # the longest
    if processes == 1:  # else the next run begins while the last new agents wait for their start
        assert [name.split("-")[1] for name in order] == 5 * ["0"] + 5 * ["1"]
        assert order[-1] == "random-1-held_out"  # the shortest
    assert sorted(order) == sorted(cell.name.rpartition("-")[0] for cell in cells)
    again = execute(cells)  # all are finished
    assert again == []
    assert len(fake.started) == len(cells)


def test_a_cell_that_fails_stops_those_alone_that_start_from_it(
    cells: list[Cell], fake: type[Fake]
) -> None:
    fake.failing = {"leap-0": RunFailedError("diverged\n  here")}
    (failure,) = execute(cells)
    assert (failure.cell.arm, failure.cell.run, failure.reason) == ("leap", 0, "diverged here")
    left = [cell.name.rpartition("-")[0] for cell in cells if not cell.finished]
    assert left == ["leap-0", "leap-0-held_out"]
    fake.failing = {}
    assert execute(cells) == []
    assert all(cell.finished for cell in cells)


def test_no_cell_is_begun_on_a_full_disk(cells: list[Cell], fake: type[Fake]) -> None:
    fake.failing = {"leap-0": RunFailedError(f"a file: {os.strerror(errno.ENOSPC)}; make room")}
    (failure,) = execute(cells, processes=1)
    assert failure.cell.name == cells[2].name
    assert len(fake.started) == 1


def test_a_process_that_was_killed_has_failed(
    cells: list[Cell], fake: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "wait", lambda self, on_row: -9)
    failures = execute(cells[:1])
    assert [failure.reason for failure in failures] == [
        "leap-rl evaluate was killed (SIGKILL); resume its run"
    ]


def test_what_is_asked_of_a_process_is_the_cells_own_config(cells: list[Cell]) -> None:
    request = request_of(cells[2], trusts_imports=True)
    assert (request.action, request.command, request.stops_with) == ("make", "train", os.getpid())
    assert request.trusts_imports
    cells[2].path.mkdir(parents=True)
    (cells[2].path / "config.yaml").touch()
    request = request_of(cells[2], trusts_imports=False)
    assert request.action == "resume"
    assert request.options["meta.meta_steps"] == 2  # whatever it was before
    assert request.options["runtime.kind"] == "local"
    tracked = configure([*WORDS, "--tracking.wandb", "offline", "--tracking.wandb_tags", '["a"]'])
    (cell,) = (
        one for one in cells_of(tracked, cells[2].path.parents[1]) if one.name == cells[2].name
    )
    options = request_of(cell, trusts_imports=False).options
    assert {
        name: value for name, value in options.items() if name.startswith("tracking.wandb")
    } == {
        "tracking.wandb": "offline",
        "tracking.wandb_project": "leap-rl",
        "tracking.wandb_entity": None,
        "tracking.wandb_group": None,
        "tracking.wandb_tags": ("a",),
        "tracking.wandb_initializations_every": 10,
    }
    assert options["tracking.console"] == "quiet"
    assert request.joined is None
