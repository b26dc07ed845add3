"""The front's end of the wire: calls by id, one packet a loop turn each way."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from fornada_sdk.wire import messages
from fornada_sdk.wire.framing import MAX_PACKET, MORE, Assembler, frame, frames, pack, split
from fornada_sdk.wire.messages import Kind

HEAD = messages.encode({"request_id": "bench", "trace_id": "bench", "account": "local"})
DEADLINE_S = 60.0
LARGEST_ANSWER = 64 * 1024 * 1024


class Link:
    """One runner's SEQPACKET socket on an event loop."""

    def __init__(self, end: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        end.setblocking(False)
        self._end = end
        self._loop = loop
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._queue: list[bytes] = []
        self._packets: list[bytes] = []
        self._next = 1
        self._parts = Assembler(LARGEST_ANSWER)
        self.ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(end.fileno(), self._readable)

    def call(self, body: bytes) -> "asyncio.Future[bytes]":
        """The answer's body. Raises RuntimeError for what isn't ok."""
        number, self._next = self._next, self._next + 1
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[number] = answer
        self._put(*frames(Kind.INVOKE, Kind.PART, number, messages.invoke_head(HEAD, DEADLINE_S), [body]))
        return answer

    def _put(self, *made: bytes) -> None:
        if not self._queue:
            self._loop.call_soon(self._flush)
        self._queue.extend(made)

    def _flush(self) -> None:
        self._packets.extend(pack(self._queue))
        self._queue.clear()
        while self._packets:
            try:
                self._end.send(self._packets[0])
            except BlockingIOError:
                self._loop.add_writer(self._end.fileno(), self._writable)
                return
            except OSError as error:
                self._end_all(RuntimeError(f"the runner has gone: {error.strerror}"))
                return
            del self._packets[0]

    def _writable(self) -> None:
        self._loop.remove_writer(self._end.fileno())
        self._flush()

    def _readable(self) -> None:
        try:
            packet = self._end.recv(MAX_PACKET)
        except BlockingIOError:
            return
        if not packet:
            self._loop.remove_reader(self._end.fileno())
            self._end_all(RuntimeError("the runner has gone"))
            return
        arrived: list[int] = []
        for kind, flags, part, number, payload in split(packet):
            if flags & MORE and kind != Kind.PART:
                self._parts.opened(kind, part, number, payload)
            elif kind == Kind.PART:
                whole = self._parts.continued(flags, part, number, payload)
                if whole:
                    self._arrived(whole[0], number, memoryview(whole[2]), arrived.append)
            else:
                self._arrived(kind, number, payload, arrived.append)
        if arrived:
            self._put(frame(Kind.ACK, 0, b"".join(number.to_bytes(8, "little") for number in arrived)))

    def _arrived(self, kind: int, number: int, payload: memoryview, acknowledge: Callable[[int], None]) -> None:
        match kind:
            case Kind.ANSWER:
                acknowledge(number)
                answer = self._waiting.pop(number, None)
                head, body = messages.split_head(payload)
                if answer is None or answer.done():
                    return
                if head == messages.OK_HEAD:
                    answer.set_result(bytes(body))
                else:
                    status = messages.decode(head)
                    if status.get("status", "ok") == "ok":
                        answer.set_result(bytes(body))
                    else:
                        answer.set_exception(RuntimeError(str(status)))
            case Kind.HELLO if messages.decode(payload).get("state") == "ready":
                self._is_ready()
            case Kind.READY:
                self._is_ready()
            case Kind.FAILED:
                self._end_all(RuntimeError(str(messages.decode(payload))))

    def _is_ready(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def _end_all(self, error: Exception) -> None:
        everybody: list[asyncio.Future[Any]] = [self.ready, *self._waiting.values()]
        for waiting in everybody:
            if not waiting.done():
                waiting.set_exception(error)
