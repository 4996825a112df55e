"""A hub in this process: what huggingface_hub 2.4 asks of the real one, with faults on demand.

It keeps repositories in memory, checks what it is sent (hashes of large files, base64 of small ones, references to
objects that were never uploaded), and remembers every commit, so that tests can see what was published twice.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = 1_000_000
BINARY = (".zst", ".gz", ".safetensors", ".pt", ".png")
API = re.compile(r"/api/(?P<kind>dataset|model)s/(?P<name>[^/]+/[^/]+)(?:/(?P<call>[a-z-]+)(?:/.*)?)?$")
BATCH = re.compile(r"/(?:datasets/)?(?P<name>[^/]+/[^/]+)\.git/info/lfs/objects/batch$")


@dataclass
class Stored:
    """A file of a repository."""

    size: int
    git: str
    sha256: str | None

    def entry(self, path: str) -> dict[str, Any]:
        """As the tree lists it."""
        large = {"lfs": {"oid": self.sha256, "size": self.size, "pointerSize": 130}} if self.sha256 else {}
        return {"type": "file", "path": path, "size": self.size, "oid": self.git, **large}


@dataclass
class Fault:
    """Something that goes wrong the next `times` times that a request fits."""

    request: str
    """Pattern for `METHOD /path`."""
    what: str
    """A status code, `drop` (no reply), `lost` (done, but no reply), `hang`."""
    times: int = 1
    after: int = 0
    """Fitting requests that go well first."""
    headers: dict[str, str] = field(default_factory=dict)


class HubServer:
    """The hub's state and address."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], dict[str, Stored]] = {}
        self.objects: dict[str, int] = {}
        self.commits: list[dict[str, str]] = []
        """Path -> content id of each commit that was applied."""
        self.requests: list[str] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self.released = threading.Event()
        self.address = ""

    def files(self, kind: str, name: str) -> dict[str, Stored]:
        """A repository's files."""
        return self.repositories.get((kind, name), {})

    def published_twice(self) -> list[str]:
        """Files that two commits carried with the same content."""
        seen: set[tuple[str, str]] = set()
        twice = []
        for commit in self.commits:
            for pair in commit.items():
                twice += [pair[0]] if pair in seen else []
                seen.add(pair)
        return twice

    def fault(self, request: str) -> Fault | None:
        """The fault that strikes this request."""
        for one in self.faults:
            if one.times and re.search(one.request, request):
                if one.after:
                    one.after -= 1
                    return None
                one.times -= 1
                return one
        return None


@contextmanager
def serving() -> Iterator[HubServer]:
    """A running hub."""
    hub = HubServer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        server.server_close()


def git_id(data: bytes) -> str:
    """Git's id of a blob."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _serve(self) -> None:
        path = unquote(urlsplit(self.path).path)
        request = f"{self.command} {path}"
        body = self._body()
        with self.hub.lock:
            self.hub.requests.append(request)
            fault = self.hub.fault(request)
        if fault is None:
            self._reply(*self._answer(path, body))
        elif fault.what == "hang":
            self.hub.released.wait(60)
            self._cut()
        elif fault.what in ("drop", "lost"):
            if fault.what == "lost":
                self._answer(path, body)
            self._cut()
        else:
            self._reply(int(fault.what), {"error": f"fault {fault.what}"}, fault.headers)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _serve  # noqa: N815

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = bytearray()
        while size := int(self.rfile.readline().strip() or b"0", 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(data)

    def _cut(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _reply(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _answer(self, path: str, body: bytes) -> tuple[int, Any]:
        with self.hub.lock:
            if path == "/api/whoami-v2":
                return 200, {"type": "user", "name": "me", "orgs": [], "auth": {"type": "access_token"}}
            if path == "/api/validate-yaml":
                return 200, {"errors": [], "warnings": []}
            if path == "/api/repos/create":
                return self._create(json.loads(body))
            if path.startswith("/objects/"):
                return self._put(path.removeprefix("/objects/"), body)
            if path == "/verify":
                return (200, {}) if json.loads(body)["oid"] in self.hub.objects else (404, {"error": "not uploaded"})
            if BATCH.search(path):
                return 200, {"transfer": "basic", "objects": [self._upload(one) for one in json.loads(body)["objects"]]}
            if (match := API.match(path)) is None:
                return 404, {"error": f"no such address: {path}"}
            files = self.hub.repositories.get((match["kind"], match["name"]))
            if files is None:
                return 404, {"error": "no such repository"}
            return self._repository(match["call"], files, match["kind"], match["name"], body)

    def _create(self, asked: dict[str, Any]) -> tuple[int, Any]:
        owner = asked.get("organization") or "me"
        name = asked["name"] if "/" in asked["name"] else f"{owner}/{asked['name']}"
        key = (asked.get("type", "model"), name)
        told = {"url": f"{self.hub.address}/{name}", "name": name, "id": name}
        if key in self.hub.repositories:
            return 409, {"error": "you have this repository", **told}
        self.hub.repositories[key] = {}
        return 200, told

    def _put(self, oid: str, body: bytes) -> tuple[int, Any]:
        if hashlib.sha256(body).hexdigest() != oid:
            return 422, {"error": "another content than announced"}
        self.hub.objects[oid] = len(body)
        return 200, {}

    def _upload(self, one: dict[str, Any]) -> dict[str, Any]:
        if one["oid"] in self.hub.objects:
            return dict(one)
        hrefs = {"upload": f"{self.hub.address}/objects/{one['oid']}", "verify": f"{self.hub.address}/verify"}
        return {**one, "actions": {name: {"href": href} for name, href in hrefs.items()}}

    def _repository(
        self, call: str | None, files: dict[str, Stored], kind: str, name: str, body: bytes
    ) -> tuple[int, Any]:
        if call == "preupload":
            return 200, {"files": [self._mode(one, files) for one in json.loads(body)["files"]]}
        if call == "tree":
            return 200, [stored.entry(path) for path, stored in sorted(files.items())]
        if call == "paths-info":
            return 200, [files[path].entry(path) for path in json.loads(body)["paths"] if path in files]
        if call == "commit":
            return self._commit(f"{kind}s/{name}" if kind == "dataset" else name, files, body)
        sha = hashlib.sha1(repr(sorted(files)).encode()).hexdigest()
        return 200, {"id": name, "_id": "1", "sha": sha, "private": False, "tags": [], "siblings": []}

    def _mode(self, one: dict[str, Any], files: dict[str, Stored]) -> dict[str, Any]:
        large = one["size"] > LARGE or one["path"].endswith(BINARY)
        there = files.get(one["path"])
        told = {"path": one["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
        return {**told, "oid": (there.sha256 or there.git) if there else None}

    def _commit(self, address: str, files: dict[str, Stored], body: bytes) -> tuple[int, Any]:
        lines = [json.loads(line) for line in body.splitlines()]
        new: dict[str, Stored | None] = {}
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                data = base64.b64decode(value["content"], validate=True)
                new[value["path"]] = Stored(len(data), git_id(data), None)
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.hub.objects:
                    return 400, {"error": f"{value['path']} was never uploaded"}
                size = self.hub.objects[value["oid"]]
                pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{value['oid']}\nsize {size}\n"
                new[value["path"]] = Stored(size, git_id(pointer.encode()), value["oid"])
            elif line["key"] == "deletedFile":
                new[value["path"]] = None
        for path, stored in new.items():
            if stored is None:
                files.pop(path, None)
            else:
                files[path] = stored
        self.hub.commits.append({path: stored.sha256 or stored.git for path, stored in new.items() if stored})
        oid = hashlib.sha1(str(len(self.hub.commits)).encode()).hexdigest()
        return 200, {
            "success": True,
            "commitOid": oid,
            "commitUrl": f"{self.hub.address}/{address}/commit/{oid}",
            "hookOutput": "",
        }
