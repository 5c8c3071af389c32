"""What a RayJob runs, as KubeRay hands it to Ray: pasted into a shell's command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.launch.manifests import ROOT, read

RAY = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
SAYS = '#!/bin/sh\necho "$(basename "$0") $*"\n'


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A folder for a pod's programs, which say how they are called, and for its volumes."""
    for name, text in {"ray": RAY, "leap-rl": SAYS, "sleep": SAYS}.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    return tmp_path


def run_job(pod: Path) -> list[str]:
    entrypoint = read("kuberay/rayjob.yaml")["spec"]["entrypoint"]
    entrypoint = entrypoint.replace("/config/start", str(ROOT / "launch/kuberay/start"))
    entrypoint = entrypoint.replace("/runs/", f"{pod}/runs/")
    done = subprocess.run(
        ["bash", "-c", f"if true ; then ray job submit --no-wait -- {entrypoint} ; fi ; true"],
        env={"PATH": f"{pod}/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_first_time_the_run_is_made(pod: Path) -> None:
    assert run_job(pod) == [
        f"leap-rl train --config /config/config.yaml --run_dir {pod}/runs/paper "
        "--runtime.trainers 16"
    ]


def test_the_next_time_it_goes_on_when_its_lock_is_over(pod: Path) -> None:
    (pod / "runs/paper").mkdir(parents=True)
    (pod / "runs/paper/config.yaml").touch()
    assert run_job(pod) == ["sleep 70", f"leap-rl resume {pod}/runs/paper --runtime.trainers 16"]


def test_a_run_that_was_cut_off_while_it_was_made_is_made_again(pod: Path) -> None:
    (pod / "runs/paper/checkpoints").mkdir(parents=True)
    (said,) = run_job(pod)
    assert said.startswith("leap-rl train ")


def test_without_a_folder_it_does_nothing() -> None:
    done = subprocess.run(
        [str(ROOT / "launch/kuberay/start")], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "the folder of the run is missing" in done.stderr
