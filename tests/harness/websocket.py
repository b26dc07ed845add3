"""A WebSocket client that holds the raw socket: it can send frames in pieces, stay silent, half-close, and see each Close."""

import base64
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wsproto.connection import Connection as Frames
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from tests.bounds import bound
from tests.harness.client import Address, Connection, Response

UPGRADE = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}


@dataclass
class Closed(Exception):
    """The conversation is over: the code of the Close, or 1006 where there was none."""

    code: int
    reason: str = ""


class WebSocket:
    """One conversation. Raises Refused where there is none."""

    def __init__(
        self, address: Address, target: str, headers: Mapping[str, str] | None = None, *, context: ssl.SSLContext | None = None
    ) -> None:
        """With a `context` over TLS, to localhost."""
        self._http = Connection(address, timeout_s=30)
        if context is not None:
            self._http.socket = context.wrap_socket(self._http.socket, server_hostname="localhost")
        key = base64.b64encode(os.urandom(16)).decode()
        self._http.send_request("GET", target, None, {**UPGRADE, "Sec-WebSocket-Key": key, **(headers or {})})
        try:
            head = self._http.read_head()
        except BaseException:
            self._http.close()
            raise
        if head.status != 101:
            body = self._http.read_exactly(int(head.headers["content-length"]))
            self._http.close()
            raise Refused(Response(head.status, head.headers, body, self._http.sent_at, head.at, head.at))
        self.headers = head.headers
        self._frames = Frames(ConnectionType.CLIENT, trailing_data=self._http.unread())
        self._messages = self._read()
        self.pings = 0

    @property
    def socket(self) -> socket.socket:
        return self._http.socket

    def send(self, message: str | bytes) -> None:
        event: Event = TextMessage(data=message) if isinstance(message, str) else BytesMessage(data=message)
        self.raw(self._frames.send(event))

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> str | bytes:
        """The next message. Raises Closed."""
        return next(self._messages)

    def close(self, code: int = 1000) -> int:
        """Says that it is over; the code of the other side's Close."""
        self.raw(self._frames.send(CloseConnection(code=code)))
        return self.end().code

    def end(self) -> Closed:
        """How it ends, whatever is said until then."""
        while True:
            try:
                next(self._messages)
            except Closed as closed:
                return closed

    def __enter__(self) -> "WebSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _read(self) -> Iterator[str | bytes]:
        parts: list[str | bytes] = []
        while True:
            for event in self._frames.events():
                if isinstance(event, TextMessage | BytesMessage):
                    parts.append(event.data if isinstance(event.data, str) else bytes(event.data))
                    if event.message_finished:
                        whole, parts = parts, []
                        yield "".join(whole) if isinstance(event, TextMessage) else b"".join(whole)  # type: ignore[arg-type]
                elif isinstance(event, Ping):
                    self.pings += 1
                    self.raw(self._frames.send(event.response()))
                elif isinstance(event, CloseConnection):
                    raise Closed(int(event.code), event.reason or "")
                else:
                    assert isinstance(event, Pong)
            self.socket.settimeout(bound(30))
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Closed(1006)
            self._frames.receive_data(data)


@dataclass
class Refused(Exception):
    """An HTTP answer instead of a WebSocket."""

    response: Response
