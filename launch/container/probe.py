#!/usr/bin/env python3
"""Lists what the nodes of a Ray cluster answer to a client without a token.

    probe.py HOST [HOST ...]

Knocks at every port, and prints a line for each thing tried at those that are open. Exits with 1
if anything but health and metrics pages, and the dashboard's empty frame, was given away.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPException

PORTS = range(1, 65536)
PAGES = (
    "/",
    "/metrics",
    "/api/jobs/",
    "/nodes?view=summary",
    "/api/local_raylet_healthz",
    "/api/gcs_healthz",
)
# Method of each gRPC service that Ray's processes may offer; each takes an empty message.
CALLS = (
    "/ray.rpc.NodeInfoGcsService/CheckAlive",
    "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "/ray.rpc.JobInfoGcsService/GetAllJobInfo",
    "/ray.rpc.InternalKVGcsService/InternalKVKeys",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "/ray.rpc.ReporterService/GetTraceback",
    "/ray.rpc.RayletDriver/ListNamedActors",
    "/ray.rpc.RuntimeEnvService/GetRuntimeEnvsInfo",
)
METRICS = "Prometheus metrics"
HARMLESS = (METRICS, "GET /", "GET /api/local_raylet_healthz", "GET /api/gcs_healthz")


def is_open(host: str, port: int) -> bool:
    """Whether somebody answers at a port."""
    with socket.socket() as knock:
        knock.settimeout(1.0)
        return knock.connect_ex((host, port)) == 0


def pages(host: str, port: int) -> list[tuple[str, str]]:
    """What HTTP gives, by page; nothing if it speaks none."""
    found = []
    for page in PAGES:
        try:
            with urllib.request.urlopen(f"http://{host}:{port}{page}", timeout=3) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            found.append((f"GET {page}", f"{error.code} {error.reason}"))
        except (OSError, ValueError, HTTPException):  # it speaks something else
            return []
        else:
            if text.startswith(b"# HELP"):  # the same whatever page is asked for
                return [(METRICS, f"200, {len(text)} bytes")]
            found.append((f"GET {page}", f"200, {len(text)} bytes"))
    return found


def calls(host: str, port: int) -> list[tuple[str, str]]:
    """What gRPC gives, by method."""
    import grpc

    found = []
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        for call in CALLS:
            try:
                answer = channel.unary_unary(call)(b"", timeout=3)
                found.append((call, f"OK, {len(answer)} bytes"))
            except grpc.RpcError as error:
                if error.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                    return found
                if error.code().name != "UNIMPLEMENTED":
                    found.append((call, error.code().name))
    return found


def clients(host: str) -> list[tuple[str, str]]:
    """What Ray's own clients get."""
    tries = {
        "ray.init": f"import ray; ray.init(address='{host}:6379'); print('IN')",
        "Ray Client": f"import ray; ray.init('ray://{host}:10001'); print('IN')",
        "job submission": "from ray.job_submission import JobSubmissionClient as C; "
        f"C('http://{host}:8265').submit_job(entrypoint='id'); print('IN')",
    }
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")
    }
    environment |= {
        "RAY_NUM_REDIS_GET_RETRIES": "1",
        "RAY_py_gcs_connect_timeout_s": "3",
        "RAY_gcs_rpc_server_connect_timeout_s": "1",
    }
    found = []
    for name, code in tries.items():
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
            check=False,
        )
        last = (done.stderr.strip().splitlines() or [""])[-1]
        found.append((name, "OK, let in" if "IN" in done.stdout.splitlines() else last[:120]))
    return found


def main() -> int:
    """Probe the hosts that the command line names; returns the exit status."""
    if not sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    leaks = 0
    for name in sys.argv[1:]:
        host = socket.gethostbyname(name)
        with ThreadPoolExecutor(256) as pool:
            answers = pool.map(partial(is_open, host), PORTS)
        ports = [port for port, answers_here in zip(PORTS, answers, strict=True) if answers_here]
        print(f"{name} ({host}): {len(ports)} open ports")
        found = [
            (str(port), *line)
            for port in ports
            for line in pages(host, port) or calls(host, port) or [("", "silent")]
        ]
        found += [("", *line) for line in clients(host)]
        for port, what, got in found:
            leak = got.startswith(("200", "OK")) and what not in HARMLESS
            leaks += leak
            print(f"  {port:>5} {what:<50} {got}{'   <- given away' if leak else ''}", flush=True)
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main())
