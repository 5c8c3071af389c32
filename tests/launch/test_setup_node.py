"""What `launch/ray/setup-node` calls on a machine; it was not tried on a fresh one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.launch.manifests import ROOT

SAYS = '#!/bin/sh\necho "$(basename "$0") $*" >>"$HOME/said"\n'
VENV = """#!/bin/sh
mkdir -p "$3/bin"
cp "$HOME/bin/sudo" "$3/bin/pip"
printf '%s\\n' '#!/bin/sh' 'echo "uv $*" >>"$HOME/said"' 'echo /found/python3.11' >"$3/bin/uv"
chmod +x "$3/bin/uv"
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A home with a checkout, and programs that say how they are called."""
    checkout = tmp_path / "leap_rl" / "launch" / "ray"
    checkout.mkdir(parents=True)
    shutil.copy(ROOT / "launch/ray/setup-node", checkout)
    (tmp_path / "leap_rl/requirements.lock").touch()
    (tmp_path / "bin").mkdir()
    for name, text in {"sudo": SAYS, "make": SAYS, "python3": VENV}.items():
        program = tmp_path / "bin" / name
        program.write_text(text)
        program.chmod(0o755)
    for name in ("basename", "chmod", "cp", "dirname", "mkdir", "readlink", "sh"):
        where = shutil.which(name)
        assert where is not None
        (tmp_path / "bin" / name).symlink_to(where)
    return tmp_path


def set_up(machine: Path, **more: str) -> list[str]:
    done = subprocess.run(
        [str(machine / "leap_rl/launch/ray/setup-node")],
        env={"HOME": str(machine), "PATH": f"{machine}/bin", **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = machine / "said"
    return said.read_text().splitlines() if said.exists() else []


def test_where_there_is_python_3_11_it_is_taken(machine: Path) -> None:
    (machine / "bin/python3.11").symlink_to(machine / "bin/python3")
    update, install, make = set_up(machine)
    assert update.endswith("apt-get -qq -o DPkg::Lock::Timeout=600 update")
    assert install.endswith("install --no-install-recommends make nfs-common python3-venv")
    assert make == (
        f"make --silent setup PYTHON={machine}/bin/python3.11 "
        "TORCH_INDEX=https://download.pytorch.org/whl/cpu"
    )


def test_it_waits_for_the_machine_that_updates_itself(machine: Path) -> None:
    (machine / "bin/python3.11").symlink_to(machine / "bin/python3")
    first = '[ -e "$HOME/said" ] || { echo busy >>"$HOME/said"; exit 100; }'
    (machine / "bin/sudo").write_text(SAYS.replace("\n", f"\n{first}\n", 1))
    (machine / "bin/sleep").write_text(SAYS)
    (machine / "bin/sleep").chmod(0o755)
    assert [line.split()[-1] for line in set_up(machine)[:3]] == ["busy", "10", "update"]


def test_elsewhere_uv_brings_it(machine: Path) -> None:
    said = set_up(machine, TORCH_INDEX="")
    assert [line.split()[0] for line in said] == ["sudo", "sudo", "pip", "uv", "uv", "make"]
    assert said[2].startswith("pip install --quiet uv==")
    assert said[3] == "uv --quiet python install 3.11"
    assert said[5] == "make --silent setup PYTHON=/found/python3.11 TORCH_INDEX="


def test_a_machine_that_is_set_up_is_left_alone(machine: Path) -> None:
    program = machine / "leap_rl/.venv/bin/leap-rl"
    program.parent.mkdir(parents=True)
    program.write_text(SAYS)
    program.chmod(0o755)
    installed = machine / "leap_rl/.venv/.installed"
    installed.touch()
    os.utime(machine / "leap_rl/requirements.lock", (1, 1))
    assert set_up(machine) == []
    os.utime(installed, (0, 0))  # the lock is newer
    assert len(set_up(machine)) == 6
