"""`leap-rl chaos` itself: bowls by the dozen, real games under the marker."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leap_rl.chaos.experiment import Experiment
from leap_rl.cli import EXIT_FAILED, EXIT_USAGE, main
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.faults.injection import FaultInjector
from leap_rl.training.faults.points import FaultPoint
from tests.envs.own_games import WALK

ROOT = Path(__file__).parents[2]
GAMES = ["--config", "chaos"]


def test_the_nth_visit_of_all_processes_dies(tmp_path: Path) -> None:
    FaultInjector(str(tmp_path / "visits"), {"trainer.training": [3]}).write(tmp_path / "plan")
    code = (
        "import os, sys\n"
        "from leap_rl.training.faults.injection import PLAN_VARIABLE, fault_injector\n"
        "from leap_rl.training.faults.points import FaultPoint\n"
        "os.environ[PLAN_VARIABLE] = sys.argv[1]\n"
        "on_fault_point = fault_injector()\n"
        "for _ in range(2): on_fault_point(FaultPoint.TRAINER_TRAINING)\n"
        "on_fault_point(FaultPoint.TRAINER_CLAIMING)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "plan")]
    statuses = [subprocess.run(words, check=False).returncode for _ in range(3)]
    assert statuses == [0, -signal.SIGKILL, 0]
    faults = FaultInjector(str(tmp_path / "visits"), {})
    assert faults.visits() == {FaultPoint.TRAINER_TRAINING: 5, FaultPoint.TRAINER_CLAIMING: 2}
    assert faults.fired() == [(FaultPoint.TRAINER_TRAINING, 3)]


class Pretended(Experiment):
    """Runs in which nobody dies, and the second of which has another seed."""

    seeds = ("0", "1")

    def _leap_rl(self, words: list[str], run: RunFolder, plan: Path) -> int:  # type: ignore[override]
        name, visits = {"count": ("undisturbed", 100), "deaths": ("killed", 107)}[plan.stem]
        points = self._folder / "visits" / name
        (points / "trainer.training.visits").write_bytes(b"." * visits)
        seed = self.seeds[plan.stem == "deaths"]
        local = ["--runtime.kind", "local", "--runtime.trainers", "1", "--seed", seed]
        return main([*words, *local, "--tracking.console", "quiet"])


@pytest.mark.parametrize(("seeds", "says"), [("01", "differs: checkpoint 0"), ("00", None)])
def test_it_says_what_did_not_happen_and_what_differs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seeds: str,
    says: str | None,
) -> None:
    monkeypatch.setattr("leap_rl.chaos.experiment.Experiment", Pretended)
    monkeypatch.setattr(Pretended, "seeds", tuple(seeds))
    words = ["--config", "debug", "--kills", "1"]
    assert main(["chaos", *words, "--run_dir", str(tmp_path / "out")]) == EXIT_FAILED
    out = capsys.readouterr().out
    assert re.search(r"did not happen: trainer\.training, visit \d+", out)
    assert (says is None) == ("differs" not in out)
    assert "100 updates, and 7 of them made again" in out
    assert says is None or says in out
    assert "same bits" not in out
    assert out.splitlines()[-1].startswith("NOT the same")


def test_own_games_are_trusted_where_their_user_trusts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("leap_rl.chaos.experiment.Experiment", Pretended)
    monkeypatch.setattr(Pretended, "seeds", ("0", "0"))
    words = ["chaos", "--kills", "1", "--task.kind", "gymnasium", "--task.games", f"['{WALK}']"]
    words += ["--task.num_envs", "2", "--task.agent_steps", "20", "--meta.meta_steps", "1"]
    assert main([*words, "--run_dir", str(tmp_path / "out")]) == EXIT_USAGE
    assert main([*words, "--trust_imports", "--run_dir", str(tmp_path / "out")]) == EXIT_FAILED
    out = capsys.readouterr().out
    assert "did not happen" in out  # both runs came to their end
    assert "differs" not in out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--kills", "0"], ["kills = 0", "at least 1"]),
        (["--runtime.kind", "local"], ["runtime", "cluster of its own"]),
        (["--run_dir", str(ROOT)], ["run_dir", "not empty"]),
    ],
)
def test_bad_input_gets_one_line(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chaos", *words]) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert all(part in line for part in parts), line


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_every_kind_of_death_on_real_games(tmp_path: Path) -> None:
    words = [*GAMES, "--meta.meta_steps", "3", "--task.agent_steps", "1200", "--kills", "20"]
    run = subprocess.run(
        [sys.executable, "-m", "leap_rl", "chaos", *words, "--run_dir", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "same bits"
    assert int(re.findall(r"and (\d+) of them made again", run.stdout)[0]) > 0
    for point in FaultPoint:
        assert f"1 × {point}" in run.stdout, point
