"""A client that holds the raw socket: it can half-close, reset, dribble, stall, pipeline, and says when each byte arrived.

Strict where a real client is: JSON without NaN or doubled keys, chunks by their sizes, an end only where the protocol has one.
"""

import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.bounds import bound

Address = tuple[str, int]


class Closed(ConnectionError):
    """The other side ended the connection before the message was whole; `got` is what came of it."""

    def __init__(self, message: str, got: bytes = b"") -> None:
        super().__init__(message)
        self.got = got


def strict_json(data: bytes) -> Any:
    """The value of `data`. Raises ValueError for NaN, Infinity, doubled keys, bytes that are no UTF-8 and a byte-order mark."""

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is no JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise ValueError(f"a key stands twice: {[key for key, _ in pairs]}")
        return table

    try:
        return json.loads(data.decode("utf-8"), parse_constant=constant, object_pairs_hook=once)
    except ValueError as error:
        raise ValueError(f"no strict JSON ({error}): {data[:300]!r}") from error


@dataclass
class Head:
    """Status line and headers. Names are in lower case; `at` is when the last of them had arrived (monotonic seconds)."""

    status: int
    reason: str
    fields: list[tuple[str, str]]
    at: float

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.fields)

    @property
    def chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"


@dataclass
class Response:
    """A whole answer and when it came (monotonic seconds)."""

    status: int
    headers: dict[str, str]
    body: bytes
    sent_at: float
    first_at: float
    done_at: float

    @property
    def took_s(self) -> float:
        """From the last byte of the request to the last of the answer."""
        return self.done_at - self.sent_at

    def json(self) -> Any:
        """The body as strict JSON."""
        return strict_json(self.body)

    @property
    def result(self) -> Any:
        """`result` of a Workers AI envelope whose answer must be a success."""
        assert self.status == 200, f"{self.status}: {self.body[:500]!r}"
        body = self.json()
        assert body["success"] is True and body["errors"] == [], body
        return body["result"]

    @property
    def code(self) -> int:
        """The code of the first error of a refusal."""
        body = self.json()
        assert body["success"] is False, body
        return int(body["errors"][0]["code"])

    @property
    def message(self) -> str:
        """The message of the first error of a refusal."""
        return str(self.json()["errors"][0]["message"])


@dataclass
class Event:
    """One event of an SSE stream."""

    at: float
    data: str
    name: str = ""

    def json(self) -> Any:
        return strict_json(self.data.encode())


@dataclass
class Events:
    """A stream to its end. `complete`: the final chunk came, so the body is whole; else the connection just closed."""

    head: Head
    events: list[Event]
    complete: bool
    ended_at: float

    @property
    def items(self) -> list[Any]:
        """The JSON of every event that isn't [DONE] or an error."""
        return [event.json() for event in self.events if event.data != "[DONE]" and event.name != "error"]

    @property
    def done(self) -> bool:
        return bool(self.events) and self.events[-1].data == "[DONE]"

    @property
    def errors(self) -> list[Event]:
        return [event for event in self.events if event.name == "error" or '"errors"' in event.data]


@dataclass
class Connection:
    """One TCP connection. Every wait ends by `timeout_s` (scaled by tests.bounds)."""

    address: Address
    timeout_s: float = 10
    receive_buffer: int = 0
    """SO_RCVBUF: a small one makes a slow reader felt."""
    _buffer: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        self.sent_at = 0.0
        self.socket = socket.socket(socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET, socket.SOCK_STREAM)
        try:
            if self.receive_buffer:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
            self.socket.settimeout(bound(self.timeout_s))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.connect(self.address)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # ---- ways to leave ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """FIN (or RST where unread bytes wait)."""
        self.socket.close()

    def half_close(self) -> None:
        """FIN of our direction; we can still read."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """RST: SO_LINGER 0, then close."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # ---- sending ------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)
        self.sent_at = time.monotonic()

    def send_slowly(self, data: bytes, *, piece: int, pause_s: float) -> None:
        """`data` in pieces of `piece` bytes with a pause after each."""
        for start in range(0, len(data), piece):
            self.send(data[start : start + piece])
            time.sleep(pause_s)

    def send_request(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, chunked: bool = False
    ) -> None:
        """A whole request; with `chunked` the body goes in chunks and without a length."""
        self.send(request_bytes(self.address, method, target, body, headers, chunked=chunked))

    # ---- receiving ----------------------------------------------------------------------------------------------------

    def read_head(self) -> Head:
        """The next status line with its headers (also a 100). Raises Closed."""
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        raw, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        at = time.monotonic()
        first, *lines = raw.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        status, _, reason = rest.partition(" ")
        assert version in ("HTTP/1.1", "HTTP/1.0"), first
        fields = []
        for line in lines:
            name, colon, value = line.partition(":")
            assert colon and name == name.strip() and name, f"a broken header line: {line!r}"
            fields.append((name.lower(), value.strip()))
        return Head(int(status), reason, fields, at)

    def read_response(self, *, of: str = "POST") -> Response:
        """The next answer to a request of method `of`, skipping 1xx. Raises Closed where the body isn't whole."""
        head = self.read_head()
        first_at = head.at
        while 100 <= head.status < 200:
            head = self.read_head()
        if of == "HEAD" or head.status in (204, 304):
            body = b""
        elif head.chunked:
            body = b"".join(data for _, data in self.read_chunks())
        elif "content-length" in head.headers:
            body = self._exactly(int(head.headers["content-length"]))
        else:
            body = self._to_the_end()
        return Response(head.status, head.headers, body, self.sent_at, first_at, time.monotonic())

    def read_exactly(self, count: int) -> bytes:
        """So many bytes, whatever they are. Raises Closed."""
        return self._exactly(count)

    def unread(self) -> bytes:
        """What came behind the last message that was read."""
        rest, self._buffer = self._buffer, b""
        return rest

    def read_chunks(self) -> Iterator[tuple[float, bytes]]:
        """(arrival, data) of each chunk; ends at the final one. Raises Closed if the connection ends before it."""
        while True:
            size = int(self._line().split(b";")[0], 16)
            if size == 0:
                while self._line():
                    pass
                return
            data = self._exactly(size)
            at = time.monotonic()
            assert self._exactly(2) == b"\r\n", "a chunk must end in CRLF"
            yield at, data

    def read_events(self) -> Iterator[Event]:
        """The events of an SSE body as they arrive. Raises Closed if the connection ends before the final chunk."""
        pending = b""
        for at, data in self.read_chunks():
            pending += data
            while b"\n\n" in pending:
                block, _, pending = pending.partition(b"\n\n")
                yield _event(at, block.decode("utf-8"))
        assert not pending.strip(), f"half an event at the end: {pending!r}"

    def events_to_end(self) -> Events:
        """Head and all events of an SSE answer, until it ends or the connection does."""
        head = self.read_head()
        assert head.status == 200, (head, self.rest())
        assert head.headers.get("content-type", "").startswith("text/event-stream"), head.headers
        return self.rest_of_events(head)

    def rest_of_events(self, head: Head) -> Events:
        """The events that follow a head that was read already, until the stream ends or the connection does."""
        events: list[Event] = []
        try:
            for event in self.read_events():
                events.append(event)  # noqa: PERF402 - what came before the break is kept
            complete = True
        except (Closed, ConnectionResetError):
            complete = False
        return Events(head, events, complete, time.monotonic())

    def at_end(self, *, within_s: float) -> bool:
        """Whether the other side closes within bound(within_s) and sends nothing more."""
        if self._buffer:
            return False
        self.socket.settimeout(bound(within_s))
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(bound(self.timeout_s))

    def rest(self) -> bytes:
        """What is left to read until the connection ends or stays silent for half a second. Never raises."""
        data, self._buffer = self._buffer, b""
        self.socket.settimeout(0.5)
        try:
            while piece := self.socket.recv(65536):
                data += piece
        except OSError:
            pass
        finally:
            self.socket.settimeout(bound(self.timeout_s))
        return data

    def _more(self) -> None:
        data = self.socket.recv(262144)
        if not data:
            raise Closed("the connection ended before the message was whole", self._buffer)
        self._buffer += data

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> bytes:
        pieces, have = [self._buffer], len(self._buffer)
        self._buffer = b""
        while have < size:
            data = self.socket.recv(min(1 << 20, max(size - have, 65536)))
            if not data:
                raise Closed(f"the connection ended {size - have} bytes before the end of a body of {size}", b"".join(pieces))
            pieces.append(data)
            have += len(data)
        whole = b"".join(pieces)
        self._buffer = whole[size:]
        return whole[:size]

    def _to_the_end(self) -> bytes:
        pieces = [self._buffer]
        self._buffer = b""
        while data := self.socket.recv(262144):
            pieces.append(data)
        return b"".join(pieces)


def request_bytes(
    address: Address,
    method: str,
    target: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    chunked: bool = False,
    chunk: int = 8192,
) -> bytes:
    """A request on the wire. A given header replaces the one that would have been made; an empty value leaves it out."""
    host, port = address
    fields = {"host": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"}
    if chunked:
        fields["transfer-encoding"] = "chunked"
    elif body is not None:
        fields["content-length"] = str(len(body))
    fields.update({name.lower(): value for name, value in (headers or {}).items()})
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value)]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    if body is None:
        return head
    if not chunked:
        return head + body
    pieces = [body[start : start + chunk] for start in range(0, len(body), chunk)]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def _event(at: float, block: str) -> Event:
    name, data = "", []
    for line in block.split("\n"):
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if key == "data":
            data.append(value)
        elif key == "event":
            name = value
    return Event(at, "\n".join(data), name)
