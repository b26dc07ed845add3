"""Which client asks which route: a relay before a node that notes the head of every request that goes through it.

`make clients` turns it on (FORNADA_TEST_ROUTES names a folder) for the tests of real clients, and docs/reference/clients.md is
made from what it saw. Our own test client asks the node directly, and isn't noted.
"""

import atexit
import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

FOLDER = os.environ.get("FORNADA_TEST_ROUTES", "")
HEAD = re.compile(rb"(?:\A|[\n}\]])(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r\n((?:[!-~]+:[^\r\n]*\r\n)*)\r\n")
BROKEN_HEAD = 16384
"""Bytes of the stream that are kept for a head that comes in pieces."""
CLIENTS = (
    (rb"mf-url: ", "env.AI (miniflare)"),
    (rb"user-agent: wrangler", "wrangler"),
    (rb"user-agent: [^\r]*langchain-cloudflare", "langchain-cloudflare"),
    (rb"user-agent: (?:async)?cloudflare/python", "cloudflare (Python)"),
    (rb"user-agent: (?:async)?openai/python", "openai (Python)"),
    (rb"user-agent: openai/js", "openai (npm)"),
    (rb"user-agent: (?:async)?anthropic/python", "anthropic (Python)"),
    (rb"user-agent: [^\r]*ai-sdk/", "workers-ai-provider (npm)"),
    (rb"user-agent: geventhttpclient|user-agent: python-geventhttpclient", "tritonclient"),
    (rb"user-agent: curl/", "curl"),
)
LIBRARIES = (
    (rb"user-agent: python-requests", "requests"),
    (rb"user-agent: python-httpx", "httpx"),
    (rb"user-agent: undici|user-agent: node", "fetch (Node)"),
)
"""What tells of a client only that it is written with one of these."""
_lock = threading.Lock()
_seen: set[tuple[str, str]] = set()
_relays: dict[tuple[str, str], str] = {}
_others: set[str] = set()
_routes: set[str] = set()


def through(url: str, client: str = "") -> str:
    """The address at which the node at `url` is asked in these tests: its own, unless requests are noted. `client`: who asks there,
    where the requests say nothing but which HTTP library sent them."""
    if not FOLDER:
        return url
    with _lock:
        if (url, client) not in _relays:
            if not _relays:
                atexit.register(_save)
            _relays[url, client] = _Relay(url, client).url
        return _relays[url, client]


class _Relay:
    def __init__(self, url: str, client: str) -> None:
        self._client = client
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        self._upstream = parts.hostname, parts.port
        self._patterns: list[tuple[str, str, re.Pattern[str]]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(self._upstream)
            except OSError:
                return
            with server:
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                self._ask(client, server)
                back.join()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                rest = self._note(rest + data)
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _note(self, data: bytes) -> bytes:
        end = 0
        for found in HEAD.finditer(data):
            end = found.end()
            method, target, fields = found[1].decode(), found[2].decode("latin-1"), found[3].lower()
            if client := _named(fields) or self._client or _library(fields):
                inner = re.search(rb"mf-url: https://workers-binding\.ai(\S+)", fields)
                route = self._route(method, f"/binding/-{inner[1].decode()}" if inner else target)
                with _lock:
                    _seen.add((route, client))
            else:
                agent = re.search(rb"user-agent: ([^\r]*)", fields)
                _others.add(agent[1].decode("latin-1") if agent else "")
        return data[end:][-BROKEN_HEAD:]

    def _route(self, method: str, target: str) -> str:
        path = target.partition("?")[0].rstrip("/") or "/"
        if not self._patterns:
            self._patterns = list(self._described())
        for described, pattern, expression in self._patterns:
            if described == method and expression.fullmatch(path):
                return f"{method} {pattern}"
        return f"{method} {path} (not described)"

    def _described(self) -> Iterator[tuple[str, str, re.Pattern[str]]]:
        connection = HTTPConnection(*self._upstream, timeout=30)
        connection.request("GET", "/openapi.json")
        paths = json.loads(connection.getresponse().read())["paths"]
        connection.close()
        # Names of models hold slashes: a pattern without any comes before one that would take it for a name.
        for pattern in sorted(paths, key=lambda pattern: (pattern.count("{"), -len(pattern))):
            expression = re.compile("(.+)".join(re.escape(piece) for piece in re.split(r"\{\w+\}", pattern)))
            for method in paths[pattern]:
                _routes.add(f"{method.upper()} {pattern}")
                yield method.upper(), pattern, expression


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):  # both ways: whoever still sends is told
        sink.shutdown(socket.SHUT_RDWR)


def _named(fields: bytes) -> str:
    return next((name for mark, name in CLIENTS if re.search(mark, fields)), "")


def _library(fields: bytes) -> str:
    return next((name for mark, name in LIBRARIES if re.search(mark, fields)), "")


def _save() -> None:
    folder = Path(FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}.json").write_text(
        json.dumps({"routes": sorted(_routes), "seen": sorted(_seen), "unknown": sorted(_others)}, indent=1)
    )
