"""A node's API, scripted: a real HTTP server on loopback that answers what a test tells it and remembers what it was asked."""

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit


class Asked(NamedTuple):
    method: str
    path: str
    """Percent-decoded."""
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Said(NamedTuple):
    """An answer. `close` ends the connection without one."""

    body: bytes
    status: int = 200
    type: str = "application/json"
    headers: Mapping[str, str] = MappingProxyType({})
    close: bool = False


Handler = Callable[[Asked], Said]


def model(name: str = "@local/echo", **fields: Any) -> dict[str, Any]:
    """M of INTERFACE with sensible values."""
    usual: dict[str, Any] = {
        "name": name,
        "aliases": [],
        "task": "custom",
        "engine": "python",
        "version": "3f1c0a9b2d4e" + "0" * 52,
        "state": "ready",
        "why": "",
        "declared_bytes": 512 * 1024**2,
        "peak_bytes": 48 * 1024**2,
        "last_used": None,
        "versions": [
            {"version": "3f1c0a9b2d4e" + "0" * 52, "labels": ["stable"], "state": "ready", "why": "", "created": "2026-01-02T03:04:05Z"}
        ],
        "instances": [
            {
                "id": "i-1",
                "pid": 4711,
                "state": "ready",
                "device": "cpu",
                "resident_bytes": 48 * 1024**2,
                "in_flight": 1,
                "queued": 2,
                "loads": 1,
            }
        ],
        "pinned": False,
        "account": "local",
        "description": "",
        "visibility": "node",
        "progress": None,
    }
    return {**usual, **fields}


def say(value: Any, status: int = 200, **headers: str) -> Said:
    return Said(json.dumps(value).encode(), status, headers=headers)


def error(status: int, code: int, message: str, **headers: str) -> Said:
    """The superset body."""
    body = {
        "error": {"message": message, "type": "x", "param": None, "code": str(code)},
        "success": False,
        "errors": [{"code": code, "message": message}],
        "result": {},
        "messages": [],
    }
    return say(body, status, **headers)


def events(*items: str, error: str = "") -> Said:
    text = "".join(f"data: {item}\n\n" for item in items) + (f"event: error\ndata: {error}\n\n" if error else "")
    return Said(text.encode(), type="text/event-stream")


class FakeNode:
    """`on(method, path, answer)` scripts it, `asked` holds the requests in order. A context manager."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._script: dict[tuple[str, str], Handler] = {}
        node = self

        class Requests(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10

            def answer(self) -> None:
                node._answer(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that left, as some tests mean it to."""

        self._server = Server(("127.0.0.1", 0), Requests)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> "FakeNode":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def on(self, method: str, path: str, answer: Said | Handler) -> None:
        self._script[method, path] = answer if callable(answer) else lambda _: answer

    def one(self, method: str, path: str) -> Asked:
        """The only request of that kind."""
        (found,) = [asked for asked in self.asked if (asked.method, asked.path) == (method, path)]
        return found

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        target = urlsplit(request.path)
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.command, unquote(target.path), dict(parse_qsl(target.query)), headers, body)
        self.asked.append(asked)
        handler = self._script.get((asked.method, asked.path))
        said = handler(asked) if handler else error(404, 7000, f"No route for that URI: {asked.method} {asked.path}")
        if said.close:
            request.close_connection = True
            return
        request.send_response(said.status)
        request.send_header("content-type", said.type)
        request.send_header("content-length", str(len(said.body)))
        for name, value in said.headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(said.body)
