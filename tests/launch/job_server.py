"""A job server that answers as Ray's does and keeps the requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "5ec2e7" * 10


class JobServer:
    """Jobs by submission id, as `GET /api/jobs/` shows them, and the packages that came along."""

    def __init__(self) -> None:
        self.mode = "token"
        self.jobs: dict[str, dict[str, Any]] = {}
        self.submitted: list[dict[str, Any]] = []
        self.packages: list[bytes] = []
        self.refuses = ""
        self.address = ""

    def add(self, submission_id: str, status: str, entrypoint: str) -> None:
        self.jobs[submission_id] = {
            "submission_id": submission_id,
            "status": status,
            "entrypoint": entrypoint,
        }

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/api/authentication_mode":
            return 200, {"authentication_mode": self.mode}
        if path == "/api/version":
            return 200, {"version": "4", "ray_version": "2.60.0", "ray_commit": ""}
        if path == "/api/jobs/":
            return 200, [{"submission_id": None, "type": "DRIVER"}, *self.jobs.values()]
        return 404, {}

    def post(self, body: bytes) -> tuple[int, Any]:
        job = json.loads(body)
        if self.refuses:
            return 500, self.refuses
        if job["submission_id"] in self.jobs:
            said = f"Job with submission_id {job['submission_id']} already exists. Please use ..."
            return 500, f"Traceback (most recent call last):\nValueError: {said}\n"
        self.submitted.append(job)
        self.add(job["submission_id"], "PENDING", job["entrypoint"])
        return 200, {"job_id": job["submission_id"], "submission_id": job["submission_id"]}


@contextmanager
def job_server() -> Iterator[JobServer]:
    """Serve on a free port of loopback."""
    server = JobServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/api/authentication_mode" or self._knows_token():
                self._answer(*server.get(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self._knows_token():
                self._answer(*server.post(body))

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self._knows_token():
                server.packages.append(body)
                self._answer(200, {})

        def _knows_token(self) -> bool:
            given = self.headers.get("Authorization")
            if given != f"Bearer {TOKEN}":
                self._answer(401 if given is None else 403, {})
            return given == f"Bearer {TOKEN}"

        def _answer(self, status: int, content: Any) -> None:
            text = content if isinstance(content, str) else json.dumps(content)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.address = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield server
        http.shutdown()
        thread.join()
