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


def run_job(pod: Path, *, run: str | None = None) -> list[str]:
    entrypoint = read("kuberay/rayjob.yaml")["spec"]["entrypoint"]
    entrypoint = entrypoint.replace("/config/start", str(ROOT / "launch/kuberay/start"))
    entrypoint = entrypoint.replace("/runs/paper", run or f"{pod}/runs/paper")
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


def test_the_next_time_it_resumes_when_its_lock_is_over(pod: Path) -> None:
    (pod / "runs/paper").mkdir(parents=True)
    (pod / "runs/paper/config.yaml").touch()
    assert run_job(pod) == ["sleep 70", f"leap-rl resume {pod}/runs/paper --runtime.trainers 16"]


def test_a_run_that_was_cut_off_while_it_was_made_is_made_again(pod: Path) -> None:
    (pod / "runs/paper/checkpoints").mkdir(parents=True)
    (said,) = run_job(pod)
    assert said.startswith("leap-rl train ")


@pytest.mark.parametrize("is_there", [False, True])
def test_a_run_in_an_object_store_is_resumed_too(pod: Path, is_there: bool) -> None:
    knows = '[ "$1 $2 $3" != "watch s3://mine/paper --once" ] || exit '
    (pod / "bin/leap-rl").write_text(f"{SAYS.splitlines()[0]}\n{knows}{0 if is_there else 2}\n")
    with (pod / "bin/leap-rl").open("a") as program:
        program.write(SAYS.splitlines()[1])
    (said,) = run_job(pod, run="s3://mine/paper")
    assert said == (
        "leap-rl resume s3://mine/paper --runtime.trainers 16"
        if is_there
        else "leap-rl train --config /config/config.yaml --run_dir s3://mine/paper "
        "--runtime.trainers 16"
    )


def test_without_a_folder_it_does_nothing() -> None:
    done = subprocess.run(
        [str(ROOT / "launch/kuberay/start")], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "the folder of the run is missing" in done.stderr
