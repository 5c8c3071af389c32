"""As much of a wandb server as wandb's own process needs to track a run, on loopback.

It answers the few GraphQL operations that matter and keeps the lines of each run's history, each at
the offset that wandb gives it, as the real one does: what is sent to a place that is taken replaces
what was there.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WandbServer(ThreadingHTTPServer):
    """Keeps what it is told. `refuses` makes it answer every operation with that status."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.histories: dict[str, list[dict[str, Any]]] = {}
        self.operations: list[tuple[str, dict[str, Any]]] = []
        self.refuses: int | None = None
        self.requests = 0

    def process_request(self, request: Any, client_address: Any) -> None:
        self.requests += 1
        super().process_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: connections end as wandb's process does."""

    def rows(self, run_id: str) -> list[dict[str, Any]]:
        """The rows of a run, without the keys that wandb adds."""
        return [
            {key: value for key, value in row.items() if not key.startswith("_")}
            for row in self.histories[run_id]
        ]

    def answer(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        self.operations.append((operation, variables))
        if operation == "UpsertBucket":
            self.histories.setdefault(variables["name"], [])
            project = {"name": variables["project"], "entity": {"name": "me"}}
            bucket = {"id": "x", "name": variables["name"], "project": project}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if operation == "RunResumeStatus":
            return {"model": self._model(variables["name"])}
        if operation == "CreateRunFiles":
            files = [{"name": f, "uploadUrl": f"{self.url}/{f}"} for f in variables["files"]]
            return {"createRunFiles": {"runID": "x", "uploadHeaders": [], "files": files}}
        if operation == "CreateArtifact":
            artifact = {"id": "a", "state": "COMMITTED", "artifactSequence": {"id": "s"}}
            return {"createArtifact": {"artifact": artifact}}
        return {}

    def _model(self, run_id: str) -> dict[str, Any] | None:
        history = self.histories.get(run_id)
        if history is None:
            return None
        bucket = {
            "id": "x",
            "name": run_id,
            "historyLineCount": len(history),
            "eventsLineCount": 0,
            "logLineCount": 0,
            "historyTail": json.dumps([json.dumps(row) for row in history[-1:]]),
            "eventsTail": "[]",
            "summaryMetrics": json.dumps(history[-1] if history else {}),
            "config": "{}",
            "wandbConfig": json.dumps({"t": 1}),
        }
        return {"bucket": bucket}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WandbServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._reply({})

    def do_PUT(self) -> None:
        self._body()
        self._reply({})

    def do_POST(self) -> None:
        body = self._body()
        if self.server.refuses is not None:
            self._reply({"errors": [{"message": "no"}]}, self.server.refuses)
        elif self.path == "/graphql":
            asked = json.loads(body)
            operation, variables = asked.get("operationName", ""), asked.get("variables") or {}
            self._reply({"data": self.server.answer(operation, variables)})
        elif found := re.fullmatch(r"/files/.+/(\w+)/file_stream", self.path):
            sent = json.loads(body).get("files", {}).get("wandb-history.jsonl")
            if sent:
                history = self.server.histories[found[1]]
                rows = [json.loads(line) for line in sent["content"]]
                history[sent["offset"] : sent["offset"] + len(rows)] = rows
            self._reply({})
        else:
            self._reply({})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _reply(self, document: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serve() -> Iterator[WandbServer]:
    """Run a server until the block ends; then it is as if there had been none."""
    server = WandbServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
