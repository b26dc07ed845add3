"""The bridge to starlette: one request of a cold route, as an ASGI application sees it.

The body is read before the application starts (routes bound it); an answer goes out piece by piece, and waits while the
transport is full. A caller that leaves cancels the application's task.
"""

import asyncio
from collections.abc import MutableMapping
from time import monotonic
from typing import Any

from fornada.core.errors import FornadaError, InternalFault
from fornada.core.keys import Role
from fornada.edge.auth import Caller
from fornada.edge.calls import JSON_TYPE
from fornada.edge.headers import Facts
from fornada.edge.problems import bodiless, is_success, problem
from fornada.edge.server.bodies import Hold
from fornada.edge.server.lines import CHUNKED, CLOSE, KEEP_OLD, LAST_CHUNK, chunk
from fornada.edge.server.pipeline import Pipeline
from fornada.edge.server.shared import Shared
from fornada.edge.targets import origin_form

Message = MutableMapping[str, Any]
READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""What changes nothing."""
EXTENSION = "fornada"
"""Key of the scope under which the application finds the ColdExchange."""
_OURS = frozenset((b"content-length", b"transfer-encoding", b"connection", b"date", b"x-request-id", b"cf-ai-req-id"))


class ColdExchange:
    """One request. Its connection's pipeline keeps answers in the order of requests."""

    exclusive = True

    def __init__(
        self, shared: Shared, pipeline: Pipeline, facts: Facts, method: bytes, url: bytes, trace_id: str, keep_alive: bool, old: bool
    ) -> None:
        self.shared = shared
        self.pipeline = pipeline
        self.facts = facts
        self.method = method.decode("ascii")
        self.changing = self.method not in READING
        path, _, query = origin_form(url).partition(b"?")
        self.path = path.decode("latin-1")
        self.query = query
        self.trace_id = trace_id
        self.request_id = facts.request_id or trace_id
        self.keep_alive = keep_alive
        self.old = old
        self.chunks: list[bytes] = []
        self.size = 0
        self.room: Hold | None = None
        self.early: FornadaError | None = None
        self.output: list[bytes] | None = None
        self.finished = False
        self._left = False
        self._head: tuple[int, list[tuple[bytes, bytes]]] | None = None
        self._streaming = False
        self._asked = False
        self._gone: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = 0.0

    def admit(self, caller: Caller) -> None:
        """Raises Unauthorized, Forbidden, BadRequest."""
        self.shared.cold.admit(self.method, self.path, caller)

    def limit(self) -> int:
        """Bytes that the body may have."""
        return self.shared.cold.limit(self.method, self.path)

    def start(self) -> None:
        self._started = monotonic()
        if self.early is not None:
            self._refuse(self.early)
            return
        self._task = self.shared.loop.create_task(self._run())
        self.shared.tasks.add(self._task)
        self._task.add_done_callback(self._ended)

    @property
    def under_way(self) -> bool:
        """Whether a part of the answer is told."""
        return self._streaming and not self.finished

    def settle(self) -> None:
        """The transport takes more."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def leave(self) -> None:
        """The caller has gone: what the application still says is dropped, and its task cancelled."""
        if self._task is not None and not self.finished and not self._left:
            self._note(0)  # whatever it comes to
        self._left = True
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        await self.shared.app(self._scope(), self._receive, self._send)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.shared.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._left:
            self.shared.observer.failed(where=self.path, request_id=self.request_id, error=error)
        if self._left or self.finished:
            return
        if not self._streaming:
            self._refuse(InternalFault("the server failed; its log says more"))
            return
        # It broke in the middle: closing without the last chunk tells the caller that something is missing.
        self.keep_alive = False
        self.finished = True
        self.pipeline.answered(self, b"")

    def _scope(self) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.0" if self.old else "1.1",
            "method": self.method,
            "scheme": "http",
            # Raw on purpose: models' names hold encoded slashes, which a decoded path would not tell from real ones.
            "path": self.path if self.path == "/" else self.path.rstrip("/") or "/",
            "raw_path": self.path.encode("latin-1"),
            "query_string": self.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in self.facts.fields],
            "client": None,
            "server": None,
            "extensions": {EXTENSION: self},
        }

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self.body(), "more_body": False}
        if not self._left:
            if self._gone is None:
                self._gone = self.shared.loop.create_future()
            await asyncio.shield(self._gone)
        return {"type": "http.disconnect"}

    def body(self) -> bytes:
        """The whole body. To be called once."""
        chunks, self.chunks = self.chunks, []
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _send(self, message: Message) -> None:
        if self._left:
            raise OSError("the caller has gone")
        if message["type"] == "http.response.start":
            self._head = message["status"], list(message.get("headers", ()))
            return
        if message["type"] != "http.response.body" or self._head is None or (self.finished and self.method != "HEAD"):
            raise RuntimeError(f"the application sent {message['type']} out of turn")
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        status, headers = self._head
        if self.method == "HEAD" or bodiless(status):
            # The end of the headers is the end of the answer, whatever length they tell.
            length = b"" if more or bodiless(status) else b"content-length: %d\r\n" % len(body)
            if not self.finished:
                self._last(b"%b%b\r\n" % (self._lines(status, headers), length))
        elif not self._streaming and not more:
            self._last(b"%bcontent-length: %d\r\n\r\n%b" % (self._lines(status, headers), len(body), body))
        else:
            await self._stream(status, headers, body, more=more)

    async def _stream(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, *, more: bool) -> None:
        data = b""
        if not self._streaming:
            self._streaming = True
            if self.old:
                self.keep_alive = False
            data = self._lines(status, headers) + (b"\r\n" if self.old else CHUNKED)
        if body:
            data += body if self.old else chunk(body)
        if not more:
            self._last(data + (b"" if self.old else LAST_CHUNK))
            return
        if data and not self.pipeline.wrote(self, data) and not self._left:
            self._room = self.shared.loop.create_future()
            await self._room

    def _last(self, data: bytes) -> None:
        self.finished = True
        if self._head is not None:
            self._note(self._head[0])
            if self.shared.verbose or not is_success(self._head[0]):
                self._tell(self._head[0], None)
        self.pipeline.answered(self, data)

    def _lines(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        shared = self.shared
        lines = b"".join(b"%b: %b\r\n" % (name, value) for name, value in headers if name.lower() not in _OURS)
        if shared.ending or any(name.lower() == b"connection" and value == b"close" for name, value in headers):
            self.keep_alive = False
        persistence = b"" if self.keep_alive and not self.old else (KEEP_OLD if self.keep_alive else CLOSE)
        ids = b"cf-ai-req-id: %b\r\nx-request-id: %b\r\n" % (self.trace_id.encode(), self.request_id.encode())
        return shared.lines.of(status) + lines + ids + self.facts.cors + persistence

    def _refuse(self, error: FornadaError) -> None:
        found = problem(error, self.shared.cold.style(self.path), self.trace_id)
        if found.close:
            self.keep_alive = False
        self.finished = True
        self._note(found.status)
        self._tell(found.status, error)
        head = self._lines(found.status, list(found.headers)) + JSON_TYPE
        body = b"" if self.method == "HEAD" else found.body
        self.pipeline.answered(self, b"%bcontent-length: %d\r\n\r\n%b" % (head, len(found.body), body))

    def _note(self, status: int) -> None:
        """For the audit. Who shows no key would only fill it."""
        caller = self.facts.caller
        if not self.changing or caller.role is Role.NOBODY:
            return
        if action := self.shared.cold.action(self.method, self.path):
            self.shared.observer.acted(action=action, path=self.path, caller=caller, status=status, request_id=self.request_id)

    def _tell(self, status: int, error: FornadaError | None) -> None:
        self.shared.observer.answered(
            request_id=self.request_id,
            trace_id=self.trace_id,
            method=self.method,
            route=self.path,
            status=status,
            error=error,
            seconds=monotonic() - self._started,
        )
