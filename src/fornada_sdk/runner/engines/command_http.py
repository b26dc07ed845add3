"""HTTP to a server on a Unix socket or a port of this machine: one connection a call, given up as soon as nobody wants the answer."""

from __future__ import annotations

import http.client
import io
import json
import os
import select
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable, cast

from fornada_sdk.runner.engines.command_line import HOST, SOCKET_PATH_LONGEST, Address

STEP_S = 0.05
"""How often a call that waits for the server looks whether it is still wanted."""
CHUNK = 65536
EVENT_LONGEST = 16 * 1024 * 1024


class Unwanted(Exception):
    """The caller has gone."""


def never() -> bool:
    """For calls that nobody cancels."""
    return False


class Exchange:
    """One call: the answer's status and headers are there, its body is read piece by piece. To be closed."""

    def __init__(
        self,
        address: Address,
        method: str,
        path: str,
        body: Any = None,
        *,
        cancelled: Callable[[], bool] = never,
        timeout_s: float | None = None,
    ) -> None:
        """`body` is sent as JSON. Raises OSError or http.client.HTTPException where there is no answer, Unwanted."""
        self._connection = _Connection(address, cancelled, None if timeout_s is None else time.monotonic() + timeout_s)
        try:
            data = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
            headers = {"Host": "localhost", "Connection": "close"}
            if data is not None:
                headers["Content-Type"] = "application/json"
            self._connection.request(method, path, body=data, headers=headers)
            self._response = self._connection.getresponse()
        except BaseException:
            self._connection.close()
            raise
        self.status = self._response.status
        self.type = (self._response.getheader("Content-Type") or "").partition(";")[0].strip().lower()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Also in the middle of the body: the server learns by it that nobody listens any more."""
        self._response.close()
        self._connection.close()

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes. Raises as the constructor does; an end before the end is an http.client.IncompleteRead."""
        while True:
            chunk = self._response.read1(CHUNK)
            if not chunk:
                if self._response.length:  # read1 doesn't mind
                    raise http.client.IncompleteRead(b"", self._response.length)
                return
            yield chunk

    def read(self, most: int) -> bytes:
        """The whole body. Raises ValueError where it has more than `most` bytes."""
        pieces, size = [], 0
        for chunk in self.chunks():
            pieces.append(chunk)
            size += len(chunk)
            if size > most:
                raise ValueError(f"the server's answer has more than {most} bytes")
        return b"".join(pieces)


def events(chunks: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Server-sent events as (field, text): "data" with its lines joined, or "error", which some servers write in its place."""
    rest = b""
    field, texts = "data", cast("list[str]", [])
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > EVENT_LONGEST:
            raise ValueError(f"an event of the server's stream has more than {EVENT_LONGEST} bytes")
        for line in lines:
            name, _, text = line.rstrip(b"\r").partition(b":")
            if name in (b"data", b"error"):
                field = "error" if name == b"error" else field
                texts.append(_value(text))
            elif not name and not text and texts:
                yield field, "\n".join(texts)
                field, texts = "data", []
    if texts:
        yield field, "\n".join(texts)


def _value(text: bytes) -> str:
    return (text[1:] if text.startswith(b" ") else text).decode("utf-8", "replace")


class _Connection(http.client.HTTPConnection):
    def __init__(self, address: Address, cancelled: Callable[[], bool], deadline: float | None) -> None:
        super().__init__("localhost")
        self._address = address
        self._cancelled = cancelled
        self._deadline = deadline

    def connect(self) -> None:
        connected = _connected(self._address)
        connected.setblocking(False)
        self.sock = cast("socket.socket", _Patient(connected, self._cancelled, self._deadline))


def _connected(address: Address) -> socket.socket:
    family = socket.AF_UNIX if address.socket else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # A server of this machine that doesn't even accept within that time won't answer either.
        sock.settimeout(5.0)
        if not address.socket:
            sock.connect((HOST, address.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        elif len(os.fsencode(address.socket)) <= SOCKET_PATH_LONGEST:
            sock.connect(address.socket)
        else:
            folder = os.open(os.path.dirname(address.socket), os.O_PATH | os.O_CLOEXEC)
            try:
                sock.connect(f"/proc/self/fd/{folder}/{os.path.basename(address.socket)}")
            finally:
                os.close(folder)
    except BaseException:
        sock.close()
        raise
    return sock


class _Patient:
    """What http.client asks of a socket; every wait ends with the deadline, and within a step of the caller's leaving."""

    def __init__(self, sock: socket.socket, cancelled: Callable[[], bool], deadline: float | None) -> None:
        self._sock = sock
        self._cancelled = cancelled
        self._deadline = deadline
        self._readers = 0
        self._closed = False

    def sendall(self, data: Any) -> None:
        left = memoryview(data)
        while left:
            self._wait(select.POLLOUT)
            try:
                left = left[self._sock.send(left) :]
            except BlockingIOError:
                continue

    def receive_into(self, buffer: Any) -> int:
        while True:
            self._wait(select.POLLIN)
            try:
                return self._sock.recv_into(buffer)
            except BlockingIOError:
                continue

    def makefile(self, mode: str) -> io.BufferedReader:
        self._readers += 1
        return io.BufferedReader(_Reading(self), CHUNK)

    def close(self) -> None:
        """http.client closes its socket as soon as the head is there, and reads the body from the file."""
        self._closed = True
        if not self._readers:
            self._sock.close()

    def read_no_more(self) -> None:
        self._readers -= 1
        if self._closed and not self._readers:
            self._sock.close()

    def _wait(self, event: int) -> None:
        poller = select.poll()
        poller.register(self._sock, event)
        while True:
            if self._cancelled():
                raise Unwanted
            if poller.poll(STEP_S * 1000):
                return
            if self._deadline is not None and time.monotonic() > self._deadline:
                raise TimeoutError("the server didn't answer in time")


class _Reading(io.RawIOBase):
    def __init__(self, patient: _Patient) -> None:
        super().__init__()
        self._patient = patient

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._patient.read_no_more()

    def readinto(self, buffer: Any) -> int:
        return self._patient.receive_into(buffer)
