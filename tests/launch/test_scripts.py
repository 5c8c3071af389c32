"""The shell scripts of `launch/`, run on a home folder whose programs print how they are called.

`launch/ray/setup-node` was not tried on a fresh machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.launch.manifests import ROOT, read

SAYS = '#!/bin/sh\necho "$(basename "$0") $*"\n'
KEEPS = SAYS.replace("\necho", '\nexec >>"$HOME/said"\necho')
RAY = """#!/bin/sh
case $1 in
job)
    while [ "$1" != -- ]; do shift; done
    shift
    exec "$@"
    ;;
esac
env | grep ^RAY_
printf '%s\\n' "$@"
"""
VENV = """#!/bin/sh
mkdir -p "$3/bin"
cp "$HOME/bin/sudo" "$3/bin/pip"
printf '%s\\n' '#!/bin/sh' 'echo "uv $*" >>"$HOME/said"' 'echo /found/python3.11' >"$3/bin/uv"
chmod +x "$3/bin/uv"
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a checkout of the scripts, whose environment has a `ray`, and with a token."""
    for script in ("setup-node", "start-node", "mount-runs"):
        (tmp_path / "leap_rl/launch/ray").mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "launch/ray" / script, tmp_path / "leap_rl/launch/ray")
    program(tmp_path / "leap_rl/.venv/bin/ray", RAY)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("0" * 64)
    (tmp_path / ".ray/auth_token").chmod(0o600)
    return tmp_path


def call(script: Path | str, *words: str, home: Path, **more: str) -> tuple[int, str, str]:
    """Run a script in a home; returns its status and what it prints."""
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", **more}
    command = [str(ROOT / script), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def start_node(home: Path, *words: str, **more: str) -> tuple[int, str, str]:
    return call(home / "leap_rl/launch/ray/start-node", *words, home=home, **more)


@pytest.mark.parametrize(
    ("script", "words", "says"),
    [
        ("make-token", ["--overwrite"], "no such option"),
        ("make-token", ["a", "b"], "takes one FILE"),
        ("make-token", ["/proc/none/token"], "cannot be made"),
        ("ray/start-node", [], "usage"),
        ("ray/start-node", ["worker"], "must be head or trainers"),
        ("ray/start-node", ["trainers"], "the head's address is missing"),
        ("ray/start-node", ["trainers", "--num-cpus=2"], "the head's address is missing"),
        ("ray/mount-runs", ["nfs4"], "takes the kind"),
        ("ray/mount-runs", ["nfs4", "fs-EDIT.efs.us-west-2.amazonaws.com:/"], "name your file sys"),
        ("ray/mount-runs", ["nfs", "EDIT:/runs"], "name your file system"),
        ("kuberay/start", [], "the folder of the run is missing"),
    ],
)
def test_invalid_arguments_are_refused(
    script: str, words: list[str], says: str, home: Path
) -> None:
    status, out, error = call(f"launch/{script}", *words, home=home)
    assert (status, out) == (2, "")
    assert says in error
    assert script != "make-token" or error.count("\n") == 1


# -- make-token ---------------------------------------------------------------------------------


def test_a_token_is_made_where_ray_looks_for_it(tmp_path: Path) -> None:
    token = tmp_path / ".ray" / "auth_token"
    assert call("launch/make-token", home=tmp_path) == (0, f"token in {token}\n", "")
    assert len(token.read_text()) == 64
    assert set(token.read_text()) <= set("0123456789abcdef")
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700
    assert call("launch/make-token", str(tmp_path / "other"), home=tmp_path)[0] == 0
    assert (tmp_path / "other").read_text() != token.read_text()


@pytest.mark.parametrize("kind", ["file", "link to nowhere"])
def test_an_existing_token_is_not_overwritten(tmp_path: Path, kind: str) -> None:
    path, beyond = tmp_path / "token", tmp_path / "beyond"
    if kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to(beyond)
    status, _, error = call("launch/make-token", str(path), home=tmp_path)
    assert status == 2
    assert error.startswith(f"make-token: {path}: is there already and stays")
    assert error.count("\n") == 1
    assert not beyond.exists()
    assert kind != "file" or path.read_text() == "mine"


# -- ray/start-node -----------------------------------------------------------------------------


def test_a_heads_dashboard_listens_on_loopback_and_the_head_has_no_trainers(home: Path) -> None:
    status, out, error = start_node(home, "head", "--node-ip-address=10.0.0.1")
    said = out.splitlines()
    assert status == 0, error
    assert said[said.index("start") :] == [
        "start",
        "--disable-usage-stats",
        "--object-store-memory=500000000",
        "--head",
        "--port=6379",
        "--num-cpus=0",
        "--dashboard-host=127.0.0.1",
        "--dashboard-port=8265",
        "--include-dashboard=true",
        "--node-ip-address=10.0.0.1",
    ]
    assert {
        "RAY_AUTH_MODE=token",
        "RAY_USAGE_STATS_ENABLED=0",
        "RAY_health_check_period_ms=2000",
        "RAY_health_check_failure_threshold=3",
        "RAY_grpc_client_keepalive_timeout_ms=10000",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=10",
    } <= set(said)


@pytest.mark.parametrize(
    ("address", "joined"), [("10.0.0.1", "10.0.0.1:6379"), ("head:6400", "head:6400")]
)
def test_a_node_for_trainers_joins_the_head(home: Path, address: str, joined: str) -> None:
    status, out, error = start_node(home, "trainers", address, "--num-cpus=8")
    assert status == 0, error
    assert out.splitlines()[-2:] == [f"--address={joined}", "--num-cpus=8"]


def test_tokens_cannot_be_turned_off_and_other_settings_stay(home: Path) -> None:
    more = {"RAY_AUTH_MODE": "disabled", "RAY_health_check_period_ms": "9000"}
    _, out, _ = start_node(home, "head", **more)
    assert {"RAY_AUTH_MODE=token", "RAY_health_check_period_ms=9000"} <= set(out.splitlines())


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("no token", "no token there; make one with launch/make-token"),
        ("empty token", ""),
        ("a token that others can read", "chmod 600 {token}"),
        ("no ray", "source .venv/bin/activate"),
    ],
)
def test_a_node_is_not_started_without_a_private_token_and_ray(
    fault: str, says: str, home: Path
) -> None:
    token = home / ".ray/auth_token"
    if fault == "no token":
        token.unlink()
    elif fault == "empty token":
        token.write_text("")
    elif fault == "no ray":
        shutil.rmtree(home / "leap_rl/.venv")
    else:
        token.chmod(0o640)
    for words in (["head"], ["trainers", "10.0.0.1"]):
        status, out, error = start_node(home, *words)
        assert (status, out) == (2, "")
        assert says.format(token=token) in error


# -- ray/setup-node -----------------------------------------------------------------------------


@pytest.fixture
def machine(home: Path) -> Path:
    """A machine whose programs write to a file how they are called."""
    shutil.rmtree(home / "leap_rl/.venv")
    (home / "leap_rl/requirements.lock").touch()
    for name, text in {"sudo": KEEPS, "make": KEEPS, "python3": VENV}.items():
        program(home / "bin" / name, text)
    for name in ("basename", "chmod", "cp", "dirname", "mkdir", "readlink", "sh"):
        where = shutil.which(name)
        assert where is not None
        (home / "bin" / name).symlink_to(where)
    return home


def set_up(machine: Path, **more: str) -> list[str]:
    script = machine / "leap_rl/launch/ray/setup-node"
    status, _, error = call(script, home=machine, **{"PATH": f"{machine}/bin", **more})
    assert (status, error) == (0, "")
    said = machine / "said"
    return said.read_text().splitlines() if said.exists() else []


def test_python_3_11_of_the_machine_is_used(machine: Path) -> None:
    (machine / "bin/python3.11").symlink_to(machine / "bin/python3")
    update, install, make = set_up(machine)
    assert update.endswith("apt-get -qq -o DPkg::Lock::Timeout=600 update")
    assert install.endswith("install --no-install-recommends make nfs-common python3-venv")
    assert make == (
        f"make --silent setup PYTHON={machine}/bin/python3.11 "
        "TORCH_INDEX=https://download.pytorch.org/whl/cpu"
    )


def test_setup_waits_while_the_machine_updates_itself(machine: Path) -> None:
    (machine / "bin/python3.11").symlink_to(machine / "bin/python3")
    first = '[ -e "$HOME/said" ] || { echo busy >>"$HOME/said"; exit 100; }'
    program(machine / "bin/sudo", KEEPS.replace("\n", f"\n{first}\n", 1))
    program(machine / "bin/sleep", KEEPS)
    assert [line.split()[-1] for line in set_up(machine)[:3]] == ["busy", "10", "update"]


def test_uv_installs_python_3_11_where_it_is_missing(machine: Path) -> None:
    said = set_up(machine, TORCH_INDEX="")
    assert [line.split()[0] for line in said] == ["sudo", "sudo", "pip", "uv", "uv", "make"]
    assert said[2].startswith("pip install --quiet uv==")
    assert said[3] == "uv --quiet python install 3.11"
    assert said[5] == "make --silent setup PYTHON=/found/python3.11 TORCH_INDEX="


def test_a_machine_that_is_set_up_is_not_changed(machine: Path) -> None:
    program(machine / "leap_rl/.venv/bin/leap-rl", SAYS)
    installed = machine / "leap_rl/.venv/.installed"
    installed.touch()
    os.utime(machine / "leap_rl/requirements.lock", (1, 1))
    assert set_up(machine) == []
    os.utime(installed, (0, 0))  # the lock is newer
    assert len(set_up(machine)) == 6


# -- kuberay/start ------------------------------------------------------------------------------


def run_job(pod: Path, *, run: str | None = None) -> list[str]:
    """Run a RayJob's entrypoint as KubeRay does: pasted into a shell's command line."""
    for name, text in {"ray": RAY, "leap-rl": SAYS, "sleep": SAYS}.items():
        if not (pod / "bin" / name).exists():
            program(pod / "bin" / name, text)
    entrypoint = read("kuberay/rayjob.yaml")["spec"]["entrypoint"]
    entrypoint = entrypoint.replace("/config/start", str(ROOT / "launch/kuberay/start"))
    entrypoint = entrypoint.replace("/runs/paper", run or f"{pod}/runs/paper")
    pasted = f"if true ; then ray job submit --no-wait -- {entrypoint} ; fi ; true"
    status, out, error = call("/bin/bash", "-c", pasted, home=pod, PATH=f"{pod}/bin:/usr/bin:/bin")
    assert (status, error) == (0, "")
    return out.splitlines()


@pytest.mark.parametrize("before", [None, "checkpoints", "config.yaml"])
def test_a_job_makes_its_run_or_resumes_it_when_the_lock_has_expired(
    before: str | None, tmp_path: Path
) -> None:
    run = tmp_path / "runs/paper"
    if before is not None:
        (run / before).mkdir(parents=True)
    resumes = ["sleep 70", f"leap-rl resume {run} --runtime.trainers 16"]
    trains = f"leap-rl train --config /config/config.yaml --run_dir {run} --runtime.trainers 16"
    # A run without its config was cut off while it was made.
    assert run_job(tmp_path) == (resumes if before == "config.yaml" else [trains])


@pytest.mark.parametrize("is_there", [False, True])
def test_a_run_in_an_object_store_is_resumed_too(tmp_path: Path, is_there: bool) -> None:
    shebang, says = SAYS.splitlines()
    knows = '[ "$1 $2 $3" != "watch s3://mine/paper --once" ] || exit '
    program(tmp_path / "bin/leap-rl", f"{shebang}\n{knows}{0 if is_there else 2}\n{says}\n")
    (said,) = run_job(tmp_path, run="s3://mine/paper")
    assert said == (
        "leap-rl resume s3://mine/paper --runtime.trainers 16"
        if is_there
        else "leap-rl train --config /config/config.yaml --run_dir s3://mine/paper "
        "--runtime.trainers 16"
    )


def test_another_index_brings_another_torch(tmp_path: Path) -> None:
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/pip").touch()
    for before, given, expected in (
        ("", [], False),
        ("", ["TORCH_INDEX=https://torch/cpu"], True),
        ("https://torch/cpu", ["TORCH_INDEX=https://torch/cpu"], False),
        ("https://torch/cpu", ["TORCH_INDEX=https://torch/cu130"], True),
        ("https://torch/cpu", [], False),
    ):
        (tmp_path / ".venv/.installed").write_text(before + "\n")
        argv = ["make", "--dry-run", "setup", *given]
        said = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        assert ("pip uninstall --quiet --yes torch" in said) is expected, (before, given)
        assert ("--index-url https://torch/" in said) is expected, (before, given)
