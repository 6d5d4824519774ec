"""A small Hub on this machine, for the real client: repositories, commits, large files, downloads."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """One repository; every revision is a whole table of files."""

    private: bool
    gated: str | bool = False
    revisions: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"main": {}})
    commits: list[dict[str, Any]] = field(default_factory=list)

    def sha(self, revision: str) -> str:
        """A commit id that depends on the content."""
        files = self.revisions[revision]
        listed = json.dumps([(name, hashlib.sha1(data).hexdigest()) for name, data in sorted(files.items())])
        return hashlib.sha1(listed.encode()).hexdigest()

    def branch(self, revision: str) -> str | None:
        """The branch of this name, or that stands at this commit."""
        return next((name for name in self.revisions if revision in (name, self.sha(name))), None)


@dataclass
class Hub:
    """What the server knows, and what it is told to refuse."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=lambda: {"hf_good"})
    refuse: int | None = None
    on_write: Callable[[str], None] = lambda path: None


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """The server on a free port until the end of the block."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        """Silence."""

    def do_POST(self) -> None:
        path, body = unquote(urlsplit(self.path).path), self._body()
        self.hub.on_write(path)
        if self._refused():
            return
        if path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/(.+)/preupload/(.+)", path):
            files = json.loads(body)["files"]
            big = (".safetensors", ".png", ".bin")
            modes = [
                {
                    "path": f["path"],
                    "uploadMode": "lfs" if f["path"].endswith(big) else "regular",
                    "shouldIgnore": False,
                }
                for f in files
            ]
            self._answer({"files": modes})
        elif re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
            objects = [
                {
                    "oid": o["oid"],
                    "size": o["size"],
                    "actions": {"upload": {"href": f"{self.hub.address}/lfs/{o['oid']}"}},
                }
                for o in json.loads(body)["objects"]
            ]
            self._answer({"transfer": "basic", "objects": objects}, "application/vnd.git-lfs+json")
        elif found := re.fullmatch(r"/api/models/(.+?)/commit/(.+)", path):
            self._commit(found[1], found[2], body)
        else:
            self._answer({"error": f"no such address: POST {path}"}, status=404)

    def do_PUT(self) -> None:
        path, body = unquote(urlsplit(self.path).path), self._body()
        self.hub.on_write(path)
        if found := re.fullmatch(r"/lfs/(\w+)", path):
            assert hashlib.sha256(body).hexdigest() == found[1]
            self.hub.large[found[1]] = body
            self._answer({})
        elif self._refused():
            return
        elif found := re.fullmatch(r"/api/models/(.+)/settings", path):
            self.hub.repositories[found[1]].gated = json.loads(body)["gated"]
            self._answer({})
        else:
            self._answer({"error": f"no such address: PUT {path}"}, status=404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path == "/api/whoami-v2":
            self._answer({"name": "me", "type": "user", "orgs": [], "auth": {}})
        elif found := re.fullmatch(r"/api/models/(.+?)/tree/([^/]+)(/.*)?", path):
            self._with(found[1], found[2], self._tree)
        elif found := re.fullmatch(r"/api/models/(.+?)(?:/revision/(.+))?", path):
            self._with(found[1], found[2] or "main", self._info)
        elif found := re.fullmatch(r"/(.+)/resolve/([^/]+)/(.+)", path):
            self._with(found[1], found[2], lambda repository, branch: self._file(repository, branch, found[3]))
        else:
            self._answer({"error": f"no such address: GET {path}"}, status=404)

    def _with(self, name: str, revision: str, answer: Any) -> None:
        repository = self.hub.repositories.get(name)
        allowed = repository and (not repository.private or self._token() in self.hub.tokens)
        branch = repository.branch(revision) if repository and allowed else None
        if branch is None:
            self._answer({"error": "Repository not found"}, status=404, headers={"X-Error-Code": "RepoNotFound"})
        else:
            answer(repository, branch)

    def _create(self, asked: dict[str, Any]) -> None:
        name = asked["name"] if asked.get("organization") is None else f"{asked['organization']}/{asked['name']}"
        name = name if "/" in name else f"me/{name}"
        address = f"{self.hub.address}/{name}"
        if name in self.hub.repositories:
            self._answer({"error": "exists", "url": address}, status=409)
            return
        self.hub.repositories[name] = Repository(bool(asked.get("private") or asked.get("visibility") == "private"))
        self._answer({"url": address, "id": name, "name": name})

    def _commit(self, name: str, revision: str, body: bytes) -> None:
        repository = self.hub.repositories[name]
        pull_request = "create_pr=1" in self.path
        branch = "refs/pr/1" if pull_request else revision
        files = dict(repository.revisions.get(revision, {}))
        commit: dict[str, Any] = {"branch": branch, "added": [], "deleted": []}
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                commit["summary"] = value["summary"]
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
                commit["added"].append(value["path"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
                commit["added"].append(value["path"])
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
                commit["deleted"].append(value["path"])
        repository.revisions[branch] = files
        repository.commits.append(commit)
        sha = repository.sha(branch)
        answer = {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.address}/{name}/commit/{sha}"}
        if pull_request:
            answer["pullRequestUrl"] = f"{self.hub.address}/{name}/discussions/1"
        self._answer(answer)

    def _info(self, repository: Repository, branch: str) -> None:
        name = next(name for name, other in self.hub.repositories.items() if other is repository)
        files = repository.revisions[branch]
        self._answer(
            {
                "id": name, "modelId": name, "sha": repository.sha(branch), "private": repository.private,
                "siblings": [{"rfilename": path} for path in sorted(files)], "tags": [], "gated": repository.gated,
                "disabled": False, "downloads": 0, "likes": 0,
            }
        )  # fmt: skip

    def _tree(self, repository: Repository, branch: str) -> None:
        files = repository.revisions[branch]
        self._answer(
            [
                {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for path, data in sorted(files.items())
            ]
        )

    def _file(self, repository: Repository, branch: str, path: str) -> None:
        files = repository.revisions[branch]
        if path not in files:
            self._answer({"error": "Entry not found"}, status=404, headers={"X-Error-Code": "EntryNotFound"})
            return
        headers = {"X-Repo-Commit": repository.sha(branch), "ETag": f'"{hashlib.sha256(files[path]).hexdigest()}"'}
        self._send(files[path], "application/octet-stream", 200, headers)

    def _refused(self) -> bool:
        status = self.hub.refuse or (None if self._token() in self.hub.tokens else 401)
        if status is not None:
            self._answer({"error": "You may not write here."}, status=status)
        return status is not None

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(
        self, value: Any, kind: str = "application/json", status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self._send(json.dumps(value).encode(), kind, status, headers or {})

    def _send(self, data: bytes, kind: str, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
