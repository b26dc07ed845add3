"""A mirror of artifacts, as FORNADA_MIRROR asks it (GET /sha256/HEX), that can be slow, break off, lie, and knows what it sent."""

import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.harness.waiting import until

PIECE = 16384


class Mirror:
    """Serves `files` (sha256 -> bytes) on a loopback port while used as a context manager."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)
        self.pace_bytes_s = 0.0
        """Bytes a second of one download; 0: as fast as it goes."""
        self.break_after = 0
        """Bytes after which a download breaks off; 0: never."""
        self.ranges: list[str] = []
        """The Range header of each request, "" where it had none."""
        self.sent = 0
        """Bytes of bodies sent, all downloads together."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def host_port(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Mirror":
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def wait_sent(self, count: int, *, within_s: float = 15) -> None:
        """Waits until `count` bytes have been sent, all downloads together."""
        until(lambda: self.sent >= count, within_s=within_s, what=f"{count} bytes were downloaded", every_s=0.002)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                mirror.answer(self)

            def log_message(self, *_args: Any) -> None:
                pass

        return Handler

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """One download, honouring Range: bytes=N-."""
        data = self.files.get(handler.path.removeprefix("/sha256/"))
        if data is None:
            handler.send_error(404)
            return
        wanted = handler.headers.get("range", "")
        start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
        with self._lock:
            self.ranges.append(wanted)
        handler.send_response(206 if wanted else 200)
        handler.send_header("content-length", str(len(data) - start))
        handler.send_header("etag", f'"{hash(data)}"')
        if wanted:
            handler.send_header("content-range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        handler.end_headers()
        try:
            self._send(handler, data[start:])
        except OSError:
            handler.close_connection = True

    def _send(self, handler: BaseHTTPRequestHandler, data: bytes) -> None:
        sent = 0
        while sent < len(data):
            if self.break_after and sent >= self.break_after:
                handler.close_connection = True
                return
            piece = data[sent : sent + PIECE]
            handler.wfile.write(piece)
            sent += len(piece)
            with self._lock:
                self.sent += len(piece)
            if self.pace_bytes_s:
                time.sleep(len(piece) / self.pace_bytes_s)
