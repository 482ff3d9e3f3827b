"""A model hub on loopback: real HTTP with ranges, redirects to a second host, and every way to misbehave."""

import hashlib
import json
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

TOKEN = "hf_rightTokenForTests"


@dataclass
class FakeRepo:
    """One repository. `files` by path; `commit` changes with `touch`."""

    files: dict[str, bytes]
    commit: str = "a" * 40
    gated: str | bool = False
    private: bool = False
    downloads: int = 10
    likes: int = 1
    last_modified: str = "2025-08-05T17:00:00.000Z"
    tags: list[str] = field(default_factory=lambda: ["gguf", "license:apache-2.0"])
    pipeline_tag: str | None = "text-generation"
    gguf: dict[str, Any] | None = field(
        default_factory=lambda: {"total": 135_000_000, "architecture": "llama", "context_length": 8192}
    )
    told_sha256: dict[str, str] = field(default_factory=dict)
    """Hashes the list tells instead of the true ones."""
    without_lfs: bool = False

    def sha256(self, path: str) -> str:
        return self.told_sha256.get(path) or hashlib.sha256(self.files[path]).hexdigest()


@dataclass
class Refusal:
    """One answer instead of the file."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Asked:
    """A request as it came in."""

    method: str
    host: str
    path: str
    headers: dict[str, str]
    on_second_host: bool


class FakeHub:
    """The hub and, on a second port, the host its files are redirected to. Use as a context manager.

    Attributes:
        cuts: the next file bodies break off after so many bytes each.
        refusals: the next requests for files are refused so, one each.
        second_refusals: the same on the second host.
        redirects: whether files come from the second host.
        drip: seconds between single bytes of a body; 0 sends at full speed.
        pace: seconds between pieces of `piece_bytes`.
        gate: bodies wait for it before every piece; set at first.
        knows_ranges: a hub without answers every Range with all.
        wrong_bytes: changes a body on its way out (same length).
        extra_bytes: so many bytes more than announced (chunked, without a length).
        etag: what the body's ETag is made of; by default the hash.
        linked: whether the first answer tells hash and size of the file.
    """

    def __init__(self, repos: dict[str, FakeRepo] | None = None) -> None:
        self.repos = repos or {}
        self.asked: list[Asked] = []
        self.cuts: deque[int] = deque()
        self.refusals: deque[Refusal] = deque()
        self.second_refusals: deque[Refusal] = deque()
        self.api_refusals: deque[Refusal] = deque()
        self.redirects = True
        self.drip = 0.0
        self.pace = 0.0
        self.gate = threading.Event()
        self.gate.set()
        self.knows_ranges = True
        self.wrong_bytes: Callable[[str, bytes], bytes] = lambda _, data: data
        self.extra_bytes = 0
        self.etag: Callable[[str, bytes], str] = lambda _, data: hashlib.sha256(data).hexdigest()
        self.linked = True
        self.piece_bytes = 65_536
        self.waits_after_cut = False
        self.fixed_answer: bytes | None = None
        """What the API says to everything."""
        self.holds_answers = False
        """The API says nothing."""
        self.redirect_to: str | None = None
        self.redirect_by: Callable[[], str | None] | None = None
        """Where to next; None serves the file."""
        self.extra_headers: dict[str, str] = {}
        """Headers of bodies."""
        self.page_size = 1000
        self.sent_bytes = 0
        self.on_body: Callable[[str, int], None] = lambda _path, _start: None
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._servers: list[_Server] = []
        self._threads: list[threading.Thread] = []
        self._ports = (0, 0)

    # --- life ---------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def second_endpoint(self) -> str:
        return f"http://localhost:{self._ports[1]}"

    def start(self) -> None:
        """Listen; at the same ports again after `stop`."""
        self._servers = [_Server(self, port, is_second=number == 1) for number, port in enumerate(self._ports)]
        self._ports = (self._servers[0].server_address[1], self._servers[1].server_address[1])
        self._threads = [
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True) for server in self._servers
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Break every connection and stop listening."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self.break_connections()
        for thread in self._threads:
            thread.join(10)
        self._servers, self._threads = [], []

    def break_connections(self) -> None:
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            _end(each)

    def cut_then_wait(self, at: int) -> None:
        """The next body breaks off there; the ones after it give nothing until `gate` is set."""
        self.waits_after_cut = True
        self.cuts.append(at)

    def file_requests(self) -> list[Asked]:
        """What was asked of the hub itself for weights."""
        return [
            asked
            for asked in self.asked
            if "/resolve/" in asked.path and ".gguf" in asked.path and not asked.on_second_host
        ]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, hub: FakeHub, port: int, *, is_second: bool) -> None:
        self.hub = hub
        self.is_second = is_second
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.hub._lock:
            self.hub._sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.hub._lock:
            self.hub._sockets.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub = self.server.hub
        with hub._lock:
            hub.asked.append(
                Asked(
                    self.command,
                    self.headers.get("Host", ""),
                    self.path,
                    {name.lower(): value for name, value in self.headers.items()},
                    self.server.is_second,
                )
            )
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        if path.startswith("/api/"):
            return self._api(path, parse_qs(parts.query))
        target = hub.redirect_by() if hub.redirect_by is not None else None
        if target is not None:
            return self._redirect(target, {})
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._with_repo(match[1], match[2], lambda _, repo: self._file(repo, match[3]))
        return self._refuse(404, "EntryNotFound")

    # --- the API ------------------------------------------------------------------------------------------

    def _api(self, path: str, query: dict[str, list[str]]) -> None:
        hub = self.server.hub
        if hub.holds_answers:
            return self._hold()
        if hub.fixed_answer is not None:
            return self._raw(hub.fixed_answer, {})
        if path == "/api/whoami-v2":
            return self._who()
        if path == "/api/models":
            return self._list(query)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            return self._with_repo(match[1], match[2], self._record)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path):
            return self._with_repo(match[1], match[2], lambda name, repo: self._tree(name, repo, query))
        return self._refuse(404, "EntryNotFound")

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _who(self) -> None:
        if self._token() != TOKEN:
            return self._refuse(401, "", "Invalid credentials in Authorization header")
        return self._json({"name": "tester", "type": "user"})

    def _list(self, query: dict[str, list[str]]) -> None:
        hub = self.server.hub
        if hub.api_refusals:
            refusal = hub.api_refusals.popleft()
            return self._refuse(refusal.status, "", headers=refusal.headers)
        text = query.get("search", [""])[0].lower()
        author = query.get("author", [""])[0]
        found = [
            self._described(name, repo)
            for name, repo in hub.repos.items()
            if text in name.lower() and (not author or name.startswith(f"{author}/")) and not repo.private
        ]
        key = query.get("sort", ["downloads"])[0]
        found.sort(key=lambda entry: -entry["likes"] if key == "likes" else -entry["downloads"])
        limit = int(query.get("limit", ["30"])[0])
        start = int(query.get("cursor", ["0"])[0])
        headers = {}
        if start + limit < len(found):
            headers["Link"] = f'<{hub.endpoint}/api/models?limit={limit}&cursor={start + limit}>; rel="next"'
        return self._json(found[start : start + limit], headers)

    def _with_repo(self, name: str, revision: str, serve: Callable[[str, FakeRepo], None]) -> None:
        hub = self.server.hub
        repo = hub.repos.get(name)
        if repo is None or (repo.private and self._token() != TOKEN):
            return self._refuse(401 if not self._token() else 404, "RepoNotFound")
        if revision not in ("main", repo.commit):
            return self._refuse(404, "RevisionNotFound")
        return serve(name, repo)

    def _described(self, name: str, repo: FakeRepo) -> dict[str, Any]:
        return {
            "id": name,
            "author": name.split("/", maxsplit=1)[0],
            "downloads": repo.downloads,
            "likes": repo.likes,
            "lastModified": repo.last_modified,
            "gated": repo.gated,
            "tags": repo.tags,
            "pipeline_tag": repo.pipeline_tag,
            "gguf": repo.gguf,
        }

    def _record(self, name: str, repo: FakeRepo) -> None:
        self._json(self._described(name, repo) | {"sha": repo.commit})

    def _tree(self, name: str, repo: FakeRepo, query: dict[str, list[str]]) -> None:
        entries: list[dict[str, Any]] = [{"type": "directory", "path": "sub", "size": 0, "oid": "0" * 40}]
        for path, data in repo.files.items():
            entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": "b" * 40}
            if path.endswith(".gguf") and not repo.without_lfs:
                entry["lfs"] = {"oid": repo.sha256(path), "size": len(data), "pointerSize": 134}
            entries.append(entry)
        hub = self.server.hub
        start = int(query.get("cursor", ["0"])[0])
        end = start + hub.page_size
        headers = {}
        if end < len(entries):
            headers["Link"] = f'<{hub.endpoint}/api/models/{name}/tree/{repo.commit}?cursor={end}>; rel="next"'
        self._json(entries[start:end], headers)

    # --- files --------------------------------------------------------------------------------------------

    def _file(self, repo: FakeRepo, path: str) -> None:
        hub = self.server.hub
        if path not in repo.files:
            return self._refuse(404, "EntryNotFound")
        is_weights = path.endswith(".gguf")
        if repo.gated and is_weights and not self.server.is_second:
            if not self._token():
                return self._refuse(401, "GatedRepo", "Access to model is restricted.")
            if self._token() != TOKEN:
                return self._refuse(403, "GatedRepo", "You are not in the authorized list.")
        refusals = hub.second_refusals if self.server.is_second else hub.refusals
        if is_weights and refusals:
            refusal = refusals.popleft()
            return self._refuse(refusal.status, "", headers=refusal.headers)
        linked = {"X-Repo-Commit": repo.commit}
        if hub.linked and is_weights:
            linked |= {"X-Linked-Etag": f'"{repo.sha256(path)}"', "X-Linked-Size": str(len(repo.files[path]))}
        if is_weights and hub.redirects and hub.redirect_by is None and not self.server.is_second:
            return self._redirect(hub.redirect_to or f"{hub.second_endpoint}{self.path}?signature=once", linked)
        return self._send(path, repo.files[path], {} if self.server.is_second else linked)

    def _redirect(self, target: str, headers: dict[str, str]) -> None:
        self.send_response(302)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Location", quote(target, safe=":/?=&[]%"))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, path: str, data: bytes, headers: dict[str, str]) -> None:
        hub = self.server.hub
        etag = hub.etag(path, data)
        start, end, status = 0, len(data), 200
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range", "").strip('"')
        if wanted and hub.knows_ranges and condition in ("", etag):
            start = int(wanted[1])
            if start >= len(data):
                return self._refuse(416, "", headers={"Content-Range": f"bytes */{len(data)}"})
            end = min(int(wanted[2]) + 1, len(data)) if wanted[2] else len(data)
            status = 206
        body = hub.wrong_bytes(path, data)[start:end]
        self.send_response(status)
        self.send_header("ETag", f'"{etag}"')
        for key, value in (headers | hub.extra_headers).items():
            self.send_header(key, value)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        if hub.extra_bytes:
            body += b"x" * hub.extra_bytes
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return None
        if path.endswith(".gguf"):
            hub.on_body(path, start)
        self._write(path, body)
        return None

    def _write(self, path: str, body: bytes) -> None:
        hub = self.server.hub
        limit = hub.cuts.popleft() if hub.cuts and path.endswith(".gguf") else None
        piece_bytes = 1 if hub.drip else hub.piece_bytes
        for at in range(0, len(body), piece_bytes):
            piece = body[at : at + piece_bytes]
            if limit is not None and at + len(piece) > limit:
                if hub.waits_after_cut:
                    hub.waits_after_cut = False
                    hub.gate.clear()
                self.wfile.write(piece[: limit - at])
                self.wfile.flush()
                self.close_connection = True
                _end(self.connection)
                return
            if path.endswith(".gguf"):
                hub.gate.wait(30)
            self.wfile.write(piece)
            with hub._lock:
                hub.sent_bytes += len(piece)
            if hub.drip or hub.pace:
                time.sleep(hub.drip or hub.pace)

    def _hold(self) -> None:
        while self.server.hub.holds_answers:
            time.sleep(0.02)
        self.close_connection = True

    # --- answers ------------------------------------------------------------------------------------------

    def _json(self, value: Any, headers: dict[str, str] | None = None) -> None:
        self._raw(json.dumps(value).encode(), headers or {})

    def _raw(self, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for key, text in headers.items():
            self.send_header(key, text)
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, code: str, message: str = "", *, headers: dict[str, str] | None = None) -> None:
        body = json.dumps({"error": message or code}).encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        if message:
            self.send_header("X-Error-Message", message)
        for key, text in (headers or {}).items():
            self.send_header(key, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
