"""The Dockerfile, the compose file, wheel and sdist: valid, whole, without secrets, closed."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import tomllib
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "launch/docker-compose.yml"
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def is_valid(compose: Path) -> bool:
    schema = ["--builtin-schema", "vendor.compose-spec"]
    words = [sys.executable, "-m", "check_jsonschema", *schema, str(compose)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_the_compose_file_is_valid(tmp_path: Path) -> None:
    assert is_valid(COMPOSE)
    typo = tmp_path / "docker-compose.yml"
    typo.write_text(COMPOSE.read_text().replace("shm_size", "shm_sise"))
    assert not is_valid(typo)


def test_services_publish_nothing_run_unprivileged_and_restart() -> None:
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:6006:6006"]
    for name, service in services().items():
        assert "network_mode" not in service, name
        assert "privileged" not in service, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["user"] == "${LEAP_RL_USER:-1000:1000}", name
        assert service["init"], name  # reaps children and passes signals on
    restart = {name: service["restart"] for name, service in services().items()}
    assert (restart["head"], restart["trainer"]) == ("on-failure:20", "always")
    # TensorBoard only reads, and has no access to the cluster.
    assert services()["tensorboard"]["volumes"] == ["../runs:/runs:ro"]
    assert services()["tensorboard"]["secrets"] == []


def test_no_secret_stands_in_the_files() -> None:
    for text in (COMPOSE.read_text(), DOCKERFILE):
        assert not re.search(r"(KEY|TOKEN|PASSWORD)\w*\s*[:=]\s*[\"']?[0-9a-f]{16,}", text)
    # The key goes from the user's environment to the container's, by name alone.
    assert services()["head"]["environment"]["WANDB_API_KEY"] is None
    assert "launch/.token" in (ROOT / ".gitignore").read_text().splitlines()


def copied() -> list[str]:
    """Return the files of the repository that the image copies."""
    lines = re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_the_image_takes_what_is_there_and_is_sent_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    sent = [line[1:] for line in lines if line.startswith("!")]
    assert "*" in lines
    for source in copied():
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, one) for one in sent), source
    assert sorted(sent) == sorted(copied())


def test_the_source_comes_last_and_runs_as_nobody_special() -> None:
    assert copied()[-1] == "leap_rl"
    steps = re.findall(r"^([A-Z]+) (.*)$", DOCKERFILE, re.MULTILINE)
    assert [value for name, value in steps if name == "USER"] == ["leap"]
    after = steps[steps.index(("USER", "leap")) :]
    assert not [name for name, _ in after if name in ("RUN", "COPY", "ADD")]
    assert "HEALTHCHECK" in dict(steps)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"ARG VERSION={version}\n" in DOCKERFILE


def test_what_the_image_installs_is_locked() -> None:
    (program,) = re.findall(r'python -c "(import tomllib.*?)" >', DOCKERFILE)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    needs = [re.split(r"[\s>=<\[;]", line)[0] for line in done.stdout.splitlines()]
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    normal = {re.sub(r"[-_.]+", "-", name).lower() for name in locked}
    assert {"torch", "ray", "av", "tensorboard"} <= {name.lower() for name in needs}
    missing = {re.sub(r"[-_.]+", "-", name).lower() for name in needs} - normal
    assert not missing


@pytest.mark.parametrize("script", ["container/node", "container/healthy", "check-compose"])
def test_scripts_can_be_run(script: str) -> None:
    path = ROOT / "launch" / script
    assert os.access(path, os.X_OK)
    assert subprocess.run(["sh", "-n", str(path)], check=False).returncode == 0


def is_healthy(port: int, **variables: str) -> bool:
    script = str(ROOT / "launch/container/healthy")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = [script, str(port)]
    done = subprocess.run(words, env={"PATH": path, **variables}, capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("says", [b"success", b"no"])
def test_a_node_is_as_healthy_as_its_raylet(says: bytes) -> None:
    class Agent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/api/local_raylet_healthz"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(says)

    with HTTPServer(("127.0.0.1", 0), Agent) as agent:
        threading.Thread(target=agent.serve_forever, daemon=True).start()
        port = agent.server_port
        assert is_healthy(port, LEAP_RL_ROLE="trainer") == (says == b"success")
        agent.shutdown()
    assert not is_healthy(port, LEAP_RL_ROLE="head")
    assert is_healthy(port)  # no node, but a command of its own


PROBED = """
import os, subprocess, sys
from leap_rl.training.runtime.ray.environment import make_ray_runtime
make_ray_runtime(trainers=1, address="local")
os.environ["RAY_AUTH_MODE"] = sys.argv[1]
import ray
from leap_rl.training.runtime.ray.runtime import cluster
with cluster(None, cores_wanted=1):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
    sys.exit(subprocess.run([sys.executable, sys.argv[2], "127.0.0.1"], env=environment).returncode)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "status"), [("token", 0), ("disabled", 1)])
def test_the_probe_finds_what_an_open_cluster_gives_away(mode: str, status: int) -> None:
    probe = str(ROOT / "launch/container/probe.py")
    done = subprocess.run(
        [sys.executable, "-c", PROBED, mode, probe], capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "UNAUTHENTICATED" in done.stdout or status
    assert ("given away" in done.stdout) == bool(status)


# -- what is installed ----------------------------------------------------------------------------

CONFIGS = sorted(path.name for path in (ROOT / "configs").glob("*.yaml"))


def build(source: Path, what: str, out: Path) -> Path:
    """Build a `wheel` or an `sdist` of a tree, without a network; returns the file."""
    code = f"from setuptools import build_meta; build_meta.build_{what}({str(out)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    (made,) = out.glob("*.whl" if what == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of an installed wheel, of the unpacked sdist, and of a wheel made from that."""
    place = tmp_path_factory.mktemp("package")
    tree = place / "tree"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in tracked.decode().splitlines():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name, follow_symlinks=False)
    sdist = build(tree, "sdist", place / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "unpacked", filter="data")
    (unpacked,) = (place / "unpacked").iterdir()
    found = {"unpacked": unpacked}
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


def test_licences_go_along_everywhere_and_tests_nowhere(built: dict[str, Path]) -> None:
    for by in ("wheel", "sdist"):
        (licences,) = built[by].glob("leap_rl-*.dist-info/licenses")
        assert {path.name for path in licences.iterdir()} == {"LICENSE", "NOTICE"}
        assert (built[by] / "leap_rl" / "py.typed").exists()
        assert {path.name.partition("-")[0] for path in built[by].iterdir()} == {"leap_rl"}
    sdist = {path.name for path in built["unpacked"].iterdir()}
    assert {"LICENSE", "NOTICE", "CITATION.cff", "requirements.lock"} <= sdist
    assert not sdist & {"tests", "docs", "benchmarks", "launch", "runs"}
    studies = {path.name for path in (ROOT / "studies").iterdir()}
    assert {path.name for path in (built["unpacked"] / "studies").iterdir()} == studies


def test_the_image_and_an_editable_install_have_them_too() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert {"COPY configs configs", "COPY leap_rl leap_rl"} <= set(lines)
    assert {"!configs", "!leap_rl"} <= set((ROOT / ".dockerignore").read_text().splitlines())
    link = ROOT / "leap_rl" / "configs"
    assert link.is_symlink()
    assert link.resolve() == ROOT / "configs"
