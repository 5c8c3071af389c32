"""What is installed: configs, encoders and templates in wheel, sdist and image."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(path.name for path in (ROOT / "configs").glob("*.yaml"))


def build(source: Path, what: str, out: Path) -> Path:
    """Build a `wheel` or an `sdist` of a tree, without a network; returns the file."""
    code = f"from setuptools import build_meta; build_meta.build_{what}({str(out)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    (made,) = out.glob("*.whl" if what == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of an installed wheel, and of one that was built from the sdist."""
    place = tmp_path_factory.mktemp("package")
    tree = place / "tree"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in tracked.decode().splitlines():
        if name.startswith(("leap_rl", "configs", "pyproject", "README", "LICENSE")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name, follow_symlinks=False)
    sdist = build(tree, "sdist", place / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "unpacked", filter="data")
    (unpacked,) = (place / "unpacked").iterdir()
    found = {}
    for name, source in (("wheel", tree), ("sdist", unpacked)):
        with zipfile.ZipFile(build(source, "wheel", place / name)) as archive:
            archive.extractall(place / f"{name}-installed")
        found[name] = place / f"{name}-installed"
    return found


@pytest.mark.parametrize("by", ["wheel", "sdist"])
def test_an_installed_package_has_its_configs_and_reads_them(
    by: str, built: dict[str, Path], tmp_path: Path
) -> None:
    folder = built[by] / "leap_rl"
    assert sorted(path.name for path in (folder / "configs").glob("*.yaml")) == CONFIGS
    assert not (folder / "configs").is_symlink()
    assert list((folder / "sharing" / "pretrained").glob("*/initialization.safetensors"))
    assert list((folder / "evaluation" / "templates").glob("*.html"))
    words = [sys.executable, "-m", "leap_rl", "train", "--config", "demo", "--print_config"]
    environment = {**os.environ, "PYTHONPATH": str(built[by])}
    shown = subprocess.run(
        words, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert "breakout" in shown


def test_the_image_and_an_editable_install_have_them_too() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert {"COPY configs configs", "COPY leap_rl leap_rl"} <= set(lines)
    assert {"!configs", "!leap_rl"} <= set((ROOT / ".dockerignore").read_text().splitlines())
    link = ROOT / "leap_rl" / "configs"
    assert link.is_symlink()
    assert link.resolve() == ROOT / "configs"
