"""A web server of the test's own, with the faults of real ones."""

import contextlib
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

PIECE = 262_144


class Asked(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]


class Web:
    """Serves `files` by path. What it is asked stands in `asked`."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.asked: list[Asked] = []
        self.etag = '"one"'
        self.ranges = True
        self.says_length = True
        self.pause_s = 0.0
        """Between two pieces of a body."""
        self.break_after: list[int] = []
        """The next answers end after so many bytes of their body, with the connection."""
        self.statuses: list[int] = []
        """The next answers have these statuses."""
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web._answer(self)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self._stopped = False

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def serve_index(self, folder: Path) -> str:
        """The wheels of the folder as a package index; its address."""
        pages: dict[str, list[str]] = {}
        for wheel in folder.glob("*.whl"):
            self.files[f"/files/{wheel.name}"] = wheel.read_bytes()
            pages.setdefault(wheel.name.split("-")[0], []).append(wheel.name)
        for name, wheels in pages.items():
            path = f"/simple/{name}/"
            self.files[path] = "".join(f'<a href="/files/{wheel}">{wheel}</a>\n' for wheel in wheels).encode()
            self.types[path] = "text/html"
        return f"{self.url}/simple"

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(Asked(handler.path, {name.lower(): value for name, value in handler.headers.items()}))
        if self.statuses:
            handler.send_error(self.statuses.pop(0))
            return
        if handler.path in self.redirects:
            handler.send_response(302)
            handler.send_header("location", self.redirects[handler.path])
            handler.send_header("content-length", "0")
            handler.end_headers()
            return
        if handler.path not in self.files:
            handler.send_error(404)
            return
        body = self.files[handler.path]
        start = 0
        match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("range", ""))
        if match and self.ranges and handler.headers.get("if-range", self.etag) == self.etag:
            start = int(match[1])
            if start >= len(body):
                handler.send_error(416)
                return
            handler.send_response(206)
            handler.send_header("content-range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            handler.send_response(200)
        if self.says_length:
            handler.send_header("content-length", str(len(body) - start))
        handler.send_header("etag", self.etag)
        handler.send_header("content-type", self.types.get(handler.path, "application/octet-stream"))
        handler.end_headers()
        with contextlib.suppress(ConnectionError):  # the client left, as some tests want it to
            body = body[start : start + self.break_after.pop(0)] if self.break_after else body[start:]
            for piece in range(0, len(body), PIECE):
                handler.wfile.write(body[piece : piece + PIECE])
                time.sleep(self.pause_s)
        handler.close_connection = True
