"""As much of Hugging Face's hub as huggingface_hub needs to share a folder, on loopback.

It keeps the files of each repository at each commit. As on the real one, safetensors go the way of
large files, who has no token may not see what is private, and what is not there is told in headers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secret"
USER = "me"


@dataclass
class Repository:
    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """By hash: the files by path."""
    refs: dict[str, str] = field(default_factory=dict)
    """Branches and tags, and their commits."""

    def commit(self, files: dict[str, bytes]) -> str:
        content = repr((len(self.commits), sorted(files.items())))
        name = hashlib.sha1(content.encode()).hexdigest()
        self.commits[name] = files
        self.refs["main"] = name
        return name


class HubServer(ThreadingHTTPServer):
    """Keeps what is pushed, and the paths and headers of all requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: clients close connections as they like."""

    def files(self, name: str) -> dict[str, bytes]:
        """The newest files of a repository."""
        repository = self.repositories[name]
        return repository.commits[repository.refs["main"]]


class _Refused(Exception):  # noqa: N818
    def __init__(self, status: int, code: str = "", said: str = "", **more: str) -> None:
        self.status, self.code, self.said, self.more = status, code, said, more


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def _answer(self) -> None:
        body = self._body()
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append((self.command, path))
        try:
            content, headers = self._route(path, body)
            status = 200
        except _Refused as refused:
            status = refused.status
            content = json.dumps({"error": refused.said, **refused.more}).encode()
            headers = {"X-Error-Code": refused.code, "X-Error-Message": refused.said}
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _route(self, path: str, body: bytes) -> tuple[bytes, dict[str, str]]:
        if large := re.fullmatch(r"/large/(\w+)", path):
            assert hashlib.sha256(body).hexdigest() == large[1]
            self.server.large[large[1]] = body
            return b"", {}
        if at := re.fullmatch(r"/(\w+/[\w.-]+)/resolve/(\w+)/(.+)", path):
            files = self._repository(at[1]).commits[at[2]]
            tag = hashlib.sha256(files[at[3]]).hexdigest()
            return files[at[3]], {"ETag": f'"{tag}"', "X-Repo-Commit": at[2]}
        answer: Any
        if path == "/api/repos/create":
            answer = self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            answer = {"errors": [], "warnings": []}
        elif at := re.fullmatch(r"/(\w+/[\w.-]+)\.git/info/lfs/objects/batch", path):
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.server.url}/large/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            answer = {"transfer": "basic", "objects": objects}
        elif at := re.fullmatch(r"/api/models/(\w+/[\w.-]+?)(?:/([\w-]+)/(.+))?", path):
            answer = self._of_repository(at[1], at[2] or "revision", at[3] or "main", body)
        else:
            raise _Refused(404)
        return json.dumps(answer).encode(), {"Content-Type": "application/json"}

    def _token(self) -> bool:
        given = self.headers.get("Authorization")
        if given not in (None, f"Bearer {TOKEN}"):
            raise _Refused(401, said="Invalid credentials in Authorization header")
        return given is not None

    def _repository(self, name: str) -> Repository:
        logged_in = self._token()
        found = self.server.repositories.get(name)
        if found is None or (found.private and not logged_in):
            raise _Refused(404 if logged_in else 401, "RepoNotFound", "Repository not found")
        return found

    def _create(self, asked: dict[str, Any]) -> object:
        if not self._token():
            raise _Refused(401, said="Invalid username or password.")
        name = f"{asked['organization']}/{asked['name']}"
        if asked["organization"] != USER:
            said = f'You don\'t have the rights to create a model under the namespace "{name}"'
            raise _Refused(403, said=said)
        if name in self.server.repositories:
            url = f"{self.server.url}/{name}"
            raise _Refused(409, said="You already created this model repo", url=url)
        private = asked.get("visibility") == "private" or asked.get("private") is True
        self.server.repositories[name] = Repository(private=private)
        self.server.repositories[name].commit({".gitattributes": b""})
        return {"url": f"{self.server.url}/{name}"}

    def _of_repository(self, name: str, what: str, ref: str, body: bytes) -> object:
        repository = self._repository(name)
        if what == "preupload":
            asked = json.loads(body)["files"]
            modes = [
                ("lfs" if one["path"].endswith(".safetensors") else "regular") for one in asked
            ]
            return {
                "files": [
                    {"path": one["path"], "uploadMode": mode, "shouldIgnore": False}
                    for one, mode in zip(asked, modes, strict=True)
                ]
            }
        commit = repository.refs.get(ref, ref)
        if commit not in repository.commits:
            raise _Refused(404, "RevisionNotFound", f"Invalid rev id: {ref}")
        if what == "commit":
            files = dict(repository.commits[commit])
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = self.server.large[value["oid"]]
                elif line["key"] == "deletedFile":
                    del files[value["path"]]
            new = repository.commit(files)
            url = f"{self.server.url}/{name}/commit/{new}"
            return {"success": True, "commitOid": new, "commitUrl": url}
        files = repository.commits[commit]
        if what in ("tree", "paths-info"):
            return [
                {"type": "file", "path": path, "size": len(data), "oid": "0" * 40}
                for path, data in files.items()
            ]
        siblings = [{"rfilename": path} for path in files]
        known = {"id": name, "modelId": name, "sha": commit, "private": repository.private}
        return {**known, "siblings": siblings, "tags": []}


@contextmanager
def serve() -> Iterator[HubServer]:
    """Run a hub of one's own."""
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
