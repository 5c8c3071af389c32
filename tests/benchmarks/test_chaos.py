"""benchmarks/chaos.py: pretended runs, and real games under the marker."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import chaos
from benchmarks.harness.faults import fired_of, visits_of, write_plan
from leap_rl.cli import EXIT_FAILED, EXIT_USAGE
from leap_rl.cli import main as leap_rl
from leap_rl.training.faults import FaultInjector, FaultPoint

ROOT = Path(__file__).parents[2]
BOWLS = ["--config", str(ROOT / "configs/debug.yaml"), "--kills", "1"]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["chaos", *words])
    return chaos.main()


def test_the_nth_visit_of_all_processes_dies(tmp_path: Path) -> None:
    planned = FaultInjector(str(tmp_path / "visits"), {"trainer.training": [3]})
    write_plan(planned, tmp_path / "plan")
    code = (
        "import os, sys\n"
        "from leap_rl.training.faults import PLAN_VARIABLE, FaultPoint, fault_injector\n"
        "os.environ[PLAN_VARIABLE] = sys.argv[1]\n"
        "on_fault_point = fault_injector()\n"
        "for _ in range(2): on_fault_point(FaultPoint.TRAINER_TRAINING)\n"
        "on_fault_point(FaultPoint.TRAINER_CLAIMING)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "plan")]
    statuses = [subprocess.run(words, check=False).returncode for _ in range(3)]
    assert statuses == [0, -signal.SIGKILL, 0]
    assert visits_of(planned) == {FaultPoint.TRAINER_TRAINING: 5, FaultPoint.TRAINER_CLAIMING: 2}
    assert fired_of(planned) == [(FaultPoint.TRAINER_TRAINING, 3)]


@pytest.mark.parametrize(("other_seed", "says"), [("1", "differs: checkpoint 0"), ("0", None)])
def test_it_says_what_did_not_happen_and_what_differs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    other_seed: str,
    says: str | None,
) -> None:
    def pretend(words: Sequence[str], log: Path, plan: Path) -> int:
        """Run without a kill; the second run with another seed, and more updates."""
        second = plan.stem == "killed"
        visits = tmp_path / "out" / "visits" / plan.stem / "trainer.training.visits"
        visits.write_bytes(b"." * (107 if second else 100))
        local = ["--runtime.kind", "local", "--runtime.trainers", "1"]
        local += ["--seed", other_seed if second else "0"]
        return leap_rl([*words, *local, "--tracking.console", "quiet"])

    monkeypatch.setattr(chaos, "leap_rl", pretend)
    assert run(monkeypatch, *BOWLS, "--run_dir", str(tmp_path / "out")) == EXIT_FAILED
    out = capsys.readouterr().out
    assert re.search(r"did not happen: trainer\.training, visit \d+", out)
    assert (says is None) == ("differs" not in out)
    assert "100 updates, and 7 of them made again" in out
    assert says is None or says in out
    assert "same bits" not in out
    assert out.splitlines()[-1].startswith("NOT the same")


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--run_dir", str(ROOT)], EXIT_USAGE, "is not empty"),
        (["--meta.meta_stepps", "1"], EXIT_FAILED, "exit status 2 (leap-rl: meta.meta_stepps"),
    ],
)
def test_bad_input_gets_one_line(
    words: list[str],
    status: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(monkeypatch, *BOWLS, *words) == status
    assert says in capsys.readouterr().err.splitlines()[-1]


A2C_ON_ATARI = "--config chaos --meta.meta_steps 3 --task.agent_steps 1200"
PPO_OF_RLLIB = (
    "--config minatar_ppo --meta.meta_steps 3 --meta.batch_size 2 --task.agent_steps 8192 "
    "--task.num_envs 8 --task.unroll_length 64 --agent.rllib.num_epochs 2 --runtime.trainers 2 "
    "--runtime.stream_every_s 0.3 --runtime.snapshot_every_s 1 --runtime.lease_s 30 "
    "--runtime.max_attempts 100"
)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("options", [A2C_ON_ATARI, PPO_OF_RLLIB])
def test_every_kind_of_death_on_real_games(options: str, tmp_path: Path) -> None:
    words = [*options.split(), "--kills", str(len(FaultPoint))]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", *words, "--run_dir", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "same bits"
    assert int(re.findall(r"and (\d+) of them made again", done.stdout)[0]) > 0
    for point in FaultPoint:
        assert f"1 × {point}" in done.stdout, point
