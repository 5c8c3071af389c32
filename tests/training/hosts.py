"""Several hosts on one machine, each with an address, processes and a cable of its own.

A host is a network namespace; a bridge in one more namespace joins them. A Ray node in it is cut
off by pulling its cable, and dies by killing all that runs there. All of it needs root.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
PORT = 6400


def ip(*words: str) -> str:
    """Run the `ip` command; returns what it says."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=True)
    return done.stdout


class Host:
    """A host in a network of them.

    Args:
        network: The prefix of the names of this network's namespaces.
        index: Which host, from 0.
        folder: For Ray's files and token; its path must be short, as those of sockets must be.
    """

    def __init__(self, network: str, index: int, folder: Path) -> None:
        self.address = f"10.77.0.{index + 1}"
        self._hub = f"{network}hub"
        self._name = f"{network}h{index}"
        self._port = f"port{index}"
        self._folder = folder / self._name
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # as here: on a busy machine the nice ones starve
        }
        ip("netns", "add", self._name)

    def plug_in(self) -> None:
        """Give it an address and a cable to the hub."""
        ip("-n", self._name, "link", "set", "lo", "up")
        cable = ["link", "add", "eth", "netns", self._name, "type", "veth", "peer", "name"]
        ip("-n", self._hub, *cable, self._port, "netns", self._hub)
        ip("-n", self._hub, "link", "set", self._port, "master", "bridge", "up")
        ip("-n", self._name, "addr", "add", f"{self.address}/24", "dev", "eth")
        ip("-n", self._name, "link", "set", "eth", "up")

    def cut(self) -> None:
        """Pull its cable."""
        ip("-n", self._hub, "link", "set", self._port, "down")

    def heal(self) -> None:
        """Put its cable back."""
        ip("-n", self._hub, "link", "set", self._port, "up")

    def words(self, *words: str) -> list[str]:
        """The command that runs another one on this host."""
        return ["ip", "netns", "exec", self._name, *words]

    def start_ray(self, *options: str, **environment: str) -> None:
        """Start a Ray node here, which joins the one on the first host if that is another."""
        head = self.address.endswith(".1")
        where = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        if not head:
            where = [f"--address=10.77.0.1:{PORT}"]
        words = [str(Path(sys.executable).parent / "ray"), "start", *where]
        words += [f"--node-ip-address={self.address}", f"--temp-dir={self._folder}"]
        words += ["--object-store-memory=100000000", "--disable-usage-stats", *options]
        self.start_node(words, self._folder.with_suffix(".log"), environment)

    def start_node(
        self, words: Sequence[str], said: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a node of Ray by a command, whose output goes to a file."""
        with open(said, "ab") as log:  # which its daemons keep open
            for _ in range(4):  # Ray gives a node 30 s, which may be little on a busy machine
                started = subprocess.run(
                    self.words(*words),
                    env={**self.environment, **(environment or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    check=False,
                )
                if started.returncode == 0:
                    return
                self.kill()
        raise AssertionError(said.read_text())

    def processes(self, part: str = "") -> list[int]:
        """The processes of this host whose command line has such a part."""
        found = []
        for pid in map(int, ip("netns", "pids", self._name).split()):
            with suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                found += [pid] if part in line else []
        return found

    def kill(self) -> None:
        """Kill all that runs here, as a power cut would."""
        for _ in range(100):
            for pid in (left := self.processes()):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                return
            time.sleep(0.05)
        raise AssertionError(f"processes {left} do not die")

    def remove(self) -> None:
        """Leave nothing of it."""
        self.kill()
        ip("netns", "del", self._name)


@contextmanager
def hosts(count: int) -> Iterator[Sequence[Host]]:
    """Make so many hosts, which can reach one another, and remove them."""
    network = f"leap{os.getpid()}"
    folder = Path(tempfile.mkdtemp(prefix="leap-", dir="/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "token").write_text(secrets.token_hex(32))
        ip("netns", "add", f"{network}hub")
        stack.callback(ip, "netns", "del", f"{network}hub")
        ip("-n", f"{network}hub", "link", "add", "bridge", "type", "bridge")
        ip("-n", f"{network}hub", "link", "set", "bridge", "up")
        made = []
        for index in range(count):
            made.append(Host(network, index, folder))
            stack.callback(made[-1].remove)
            made[-1].plug_in()
        yield made


def why_not() -> str | None:
    """Why this machine can make no hosts, if so."""
    if shutil.which("ip") is None:
        return "the command `ip` is missing"
    name = f"leap{os.getpid()}try"
    try:
        ip("netns", "add", name)
        ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError):
        return "network namespaces cannot be made here, which takes root"
    return None
