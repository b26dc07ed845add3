"""One client of the proxy, from its first byte to its last.

READING_HEAD --a wish is sent--> WAITING --{}--> PASSING --both ends over--> (closed)
      |                             |
      +------- refused -------------+--> LINGERING --it has read the refusal--> (closed)
"""

from __future__ import annotations

import array
import enum
import os
import socket
from typing import NamedTuple

from fornada_sdk.wire.outbound import ANSWER_MOST, Answer, Flow, Outcome, connect_packet, read_answer

CONNECTIONS_MOST = 128
HEAD_MOST = 32768
HEAD_S = 30.0
ANSWER_S = 60.0
"""Longer than a control plane takes to look a name up and to connect, and than a new one takes to come."""
LINGER_S = 2.0
REASON_LONGEST = 200
HTTP_PORT = 80
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_STATUSES = {Outcome.REFUSED: 403, Outcome.FAILED: 502, Outcome.BUSY: 503}
_OWN_HEADERS = frozenset([b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"])
"""Between the client and us."""


class Phase(enum.Enum):
    READING_HEAD = enum.auto()
    WAITING = enum.auto()
    PASSING = enum.auto()
    LINGERING = enum.auto()


class Wish(NamedTuple):
    """What the head asks for. `head` goes to the host first; `most` bytes of the client follow it, None: as many as there are."""

    host: str
    port: int
    head: bytes
    most: int | None


class BadHead(ValueError):
    """No request to a proxy. The message is one line."""


class Client:
    """Driven by the forwarder's loop; `turn` raises OSError when a side has gone."""

    def __init__(self, sock: socket.socket, channel: socket.socket, now: float) -> None:
        self.closed = False
        self.deadline = now + HEAD_S
        self._channel = channel
        self._client = sock
        self._node: socket.socket | None = None
        self._phase = Phase.READING_HEAD
        self._received = b""
        """Of the head, then of the answer."""
        self._rest = b""
        """What the client sent behind its head."""
        self._wish = Wish("", 0, b"", None)
        self._up: Flow | None = None
        self._down: Flow | None = None

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        return (self._client,) if self._node is None else (self._client, self._node)

    def waits_for(self, sock: socket.socket) -> tuple[bool, bool]:
        """(to read, to write)"""
        if self._phase is Phase.WAITING:
            return sock is self._node, False
        if self._up is None or self._down is None:
            return sock is self._client, False
        ours, others = (self._up, self._down) if sock is self._client else (self._down, self._up)
        return ours.wants_read, others.wants_write

    def turn(self, sock: object, readable: bool, writable: bool, now: float) -> None:
        """Goes as far as it gets without waiting. Raises OSError."""
        if self._phase is Phase.READING_HEAD:
            self._read_head(now)
        elif self._phase is Phase.WAITING:
            self._read_answer(now)
        elif self._phase is Phase.LINGERING:
            self.closed = not self._client.recv(HEAD_MOST)
        elif self._up is not None and self._down is not None:
            if self._is_too_much():
                self.closed = True
                return
            for flow in (self._up, self._down):
                if readable and sock is flow.source and flow.wants_read:
                    flow.read()
                elif writable and sock is flow.sink and flow.wants_write:
                    flow.write()
            self.closed = self._up.over and self._down.over

    def refuse(self, status: int, message: str, now: float) -> None:
        """Says why, and closes once the client has read it."""
        text = " ".join(message.split())
        # Libraries show the reason phrase of a refused tunnel and drop the body: it has to stand in both.
        reason = text[:REASON_LONGEST].encode("ascii", "replace")
        body = text.encode("utf-8", "replace") + b"\n"
        fields = b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close" % len(body)
        try:
            self._client.send(b"HTTP/1.1 %d %s\r\n%s\r\n\r\n%s" % (status, reason, fields, body), socket.MSG_NOSIGNAL)
            self._client.shutdown(socket.SHUT_WR)
        except OSError:
            self.closed = True
        self._phase = Phase.LINGERING
        self.deadline = now + LINGER_S
        if self._node is not None:
            self._shut(self._node)

    def expire(self, now: float) -> None:
        """The deadline of what it waits for is over."""
        if self._phase is Phase.READING_HEAD:
            self.refuse(408, "the request didn't come", now)
        elif self._phase is Phase.WAITING:
            self.refuse(504, f"{self._wish.host}:{self._wish.port}: the node hasn't answered within {ANSWER_S:g} s", now)
        else:
            self.closed = True

    def close(self) -> None:
        for sock in self.sockets:
            self._shut(sock)
            sock.close()

    def close_in_child(self) -> None:
        for sock in self.sockets:
            os.close(sock.detach())

    def _shut(self, sock: socket.socket) -> None:
        """A copy in a process that the model forked must not keep the other side waiting."""
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has gone

    def _is_too_much(self) -> bool:
        """The client sends a second request, perhaps for another host, on a connection that was for one."""
        if self._wish.most is None or self._up is None or self._up.over or self._up.wants_write:
            return False
        if self._up.passed < len(self._wish.head) + self._wish.most:
            return False
        try:
            return bool(self._client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False

    def _read_head(self, now: float) -> None:
        data = self._client.recv(HEAD_MOST)
        if not data:
            self.closed = True
            return
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0 and len(self._received) <= HEAD_MOST:
            return
        if end < 0 or end > HEAD_MOST:
            self.refuse(431, f"a head of more than {HEAD_MOST} bytes", now)
            return
        head, self._rest, self._received = self._received[:end], self._received[end + 4 :], b""
        try:
            self._wish = read_head(head)
            if self._wish.most is not None and len(self._rest) > self._wish.most:
                raise BadHead("one request at a time: the next one may be for another host")
            self._ask(now)
        except BadHead as error:
            self.refuse(400, str(error), now)

    def _ask(self, now: float) -> None:
        wish = self._wish
        try:
            packet = connect_packet(wish.host, wish.port)
        except ValueError as error:
            raise BadHead(str(error)) from None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        self._node = ours
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
        try:
            self._channel.sendmsg([packet], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            self.refuse(503, f"{wish.host}:{wish.port}: more connections wait for the node than it takes; try again", now)
        except OSError as error:
            self.refuse(502, f"{wish.host}:{wish.port}: the node can't be asked: {error.strerror}", now)
        else:
            self._phase = Phase.WAITING
            self.deadline = now + ANSWER_S
        finally:
            theirs.close()

    def _read_answer(self, now: float) -> None:
        assert self._node is not None
        try:
            data = self._node.recv(ANSWER_MOST)
        except ConnectionResetError:
            data = b""
        self._received += data
        line, newline, begun = self._received.partition(b"\n")
        if not newline and data and len(self._received) < ANSWER_MOST:
            return
        try:
            answer = read_answer(line)
        except ValueError:
            answer = Answer(Outcome.FAILED, f"{self._wish.host}:{self._wish.port}: the node has dropped the connection before it was made")
        if answer.outcome is not Outcome.MADE:
            self.refuse(_STATUSES[answer.outcome], answer.message, now)
            return
        up, down = self._wish.head + self._rest, begun if self._wish.head else ESTABLISHED + begun
        self._up = Flow(self._client, self._node, begun=up)
        self._down = Flow(self._node, self._client, begun=down)
        self._phase = Phase.PASSING
        self.deadline = float("inf")
        self._up.write()
        self._down.write()


def read_head(head: bytes) -> Wish:
    """A request to a proxy: CONNECT, or an absolute http: address. Raises BadHead."""
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise BadHead("that is no HTTP request")
    method, target, version = words
    if method == b"CONNECT":
        host, port = _host_port(target, None)
        return Wish(host, port, b"", None)
    scheme, separator, rest = target.partition(b"://")
    if scheme.lower() != b"http" or not separator:
        raise BadHead("this is a proxy: it takes CONNECT host:port, and http: addresses in full")
    cut = min((at for at in (rest.find(mark) for mark in b"/?#") if at >= 0), default=len(rest))
    authority, path = rest[:cut], rest[cut:]
    host, port = _host_port(authority.rpartition(b"@")[2], HTTP_PORT)
    if not path.startswith(b"/"):
        path = b"/" + path
    fields = [(line.partition(b":")[0].strip().lower(), line) for line in lines]
    # One request a connection: the next one may be for another host.
    kept = [line for name, line in fields if name not in _OWN_HEADERS]
    rewritten = b"\r\n".join([b" ".join([method, path, version]), *kept, b"Connection: close", b"", b""])
    return Wish(host, port, rewritten, _body_length(fields))


def _body_length(fields: list[tuple[bytes, bytes]]) -> int | None:
    """None where only the body itself tells its end."""
    length = 0
    for name, line in fields:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            value = line.partition(b":")[2].strip()
            if not value.isdigit() or len(value) > 18:
                raise BadHead("a Content-Length that is no number")
            length = int(value)
    return length


def _host_port(authority: bytes, default: int | None) -> tuple[str, int]:
    """As the client wrote them, the host without brackets. Raises BadHead."""
    try:
        text = authority.decode("utf-8")
    except UnicodeDecodeError:
        raise BadHead("a host that is no text") from None
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, ""
    if not port and default is not None:
        number = default
    elif port.isascii() and port.isdigit() and len(port) <= 5:
        number = int(port)
    else:
        raise BadHead("CONNECT needs host:port" if default is None else "an address with a port that is none")
    if not host:
        raise BadHead("an address without a host")
    return (host[1:-1] if host.startswith("[") and host.endswith("]") else host), number
