"""The control plane's end of the wire to one runner.

Requests go out and answers come in as plain calls on the event loop: no task, no future, no timer for a request. What is sent
during one turn of the loop leaves in as few packets as possible; acknowledgements ride along, or follow within ACK_S.

A runner is hostile. Whatever it sends that the wire doesn't allow is a fault: `Ears.faulted` is told once, nothing more is
read, and the process is killed. Answers to requests that nobody knows are acknowledged and counted: a predecessor asked.
"""

import asyncio
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from fornada.core.errors import FornadaError, InternalFault
from fornada.core.names import Instant
from fornada.core.requests import AnswerHead
from fornada.node.call import ABANDONED, DONE, SENT, STREAMING, Call
from fornada.node.ears import Ears
from fornada.node.heads import object_of, refusal_of, short_head
from fornada.telemetry.metrics import Spread
from fornada_sdk.wire.framing import HEADER, HEADER_SIZE, MAX_PACKET, MAX_PAYLOAD, MORE, Assembler, ProtocolError, frame, frames
from fornada_sdk.wire.messages import (
    CREDIT_BODY,
    INVOKE_PREFIX,
    OK_HEAD,
    STREAM_WINDOW,
    Kind,
    encode,
    invoke_head,
    split_head,
    with_head,
)

ACK_S = 0.02
"""How long an acknowledgement waits for a message that it can travel with."""
ACKS_AT_ONCE = 64
CREDIT_STEP = STREAM_WINDOW // 4
OUTBOX_BYTES = 4 * 1024**2
"""Bytes that may wait for the socket before requests stay in their line."""
BODY_BYTES = 256 * 1024**2
"""The largest answer, and the most that the parts of all unfinished answers of one runner may hold."""
HEAD_BYTES = 1024**2
"""The largest message that is read as JSON: reading takes time, and many times its size in memory."""
OWED_BYTES = 1024**2
OWED_ACKS = 65536
"""Bytes of answers of ours, and acknowledgements, that may wait for a runner that doesn't read."""
PROGRESS_A_SECOND = 50
"""What is taken in of PROGRESS, as many again in one go; more is left out: a flood would cost us more than its sender."""
TURN_S = 0.001
"""How long one runner is listened to before the others have their turn. A packet of small messages may take several ms itself."""
MUCH = MAX_PACKET // 4
"""After a packet of this size there is probably another one."""

_INVOKE = struct.Struct(HEADER.format + INVOKE_PREFIX.format.lstrip("<"))
_INVOKE_KIND, _ANSWER_KIND, _ITEM_KIND, _PART_KIND = int(Kind.INVOKE), int(Kind.ANSWER), int(Kind.ITEM), int(Kind.PART)
_LONG = frozenset([_ANSWER_KIND, _ITEM_KIND])
"""What may be longer than HEAD_BYTES."""
_OK_PREFIX = with_head(OK_HEAD)
_OK_SIZE = len(_OK_PREFIX)
_OK = AnswerHead()
_HEADS = msgspec.json.Decoder(AnswerHead)


class Link:
    """Owns the calls that were sent. `descriptor` belongs to who made the link; it must be non-blocking."""

    def __init__(
        self,
        descriptor: int,
        *,
        ears: Ears,
        service_s: deque[float],
        runner_s: Spread,
        now: Callable[[], Instant],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Times from sending to answer go to `service_s` (the last ones, for predictions) and to `runner_s` (the metric)."""
        self._fd = descriptor
        self._ears = ears
        self._service_s = service_s
        self._runner_s = runner_s
        self._now = now
        self._loop = loop
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._acks: list[int] = []
        self._assembler = Assembler(BODY_BYTES)
        self._owed_bytes = 0
        """Of answers of ours that were put into the outbox since the socket took no more."""
        self._flush_due = False
        self._blocked = False
        self._ack_timer: asyncio.TimerHandle | None = None
        self._heard = self._speechless
        self._progress_left: float = PROGRESS_A_SECOND
        self._progress_at = now()
        self.calls: dict[int, Call] = {}
        """Sent and not ended by the runner's word, abandoned ones too."""
        self.live = 0
        """Those of them for which a caller waits."""
        self.foreign: set[int] = set()
        """Requests of a predecessor that the runner still works on."""
        self.ended = 0
        """How many calls the runner has ended."""
        self.capacity = 1
        self.open = True
        """False after a fault, the runner's end of the socket, or `close`."""
        loop.add_reader(descriptor, self._readable)

    # ---- sending

    @property
    def has_room(self) -> bool:
        """One more call may be sent."""
        return len(self.calls) + len(self.foreign) < self.capacity and self._outbox_bytes < OUTBOX_BYTES and not self._blocked and self.open

    def send(self, call: Call, now: Instant) -> None:
        """INVOKE. The caller has looked at `has_room`."""
        request = call.request
        call.state = SENT
        call.sent_at = now
        call.wire = self
        alone = not self.calls
        self.calls[call.id] = call
        self.live += 1
        head = request.head
        body = request.body
        if len(body) == 1:
            piece = body[0]
            size = INVOKE_PREFIX.size + len(head) + len(piece)
            if size <= MAX_PAYLOAD:
                prefix = _INVOKE.pack(size, _INVOKE_KIND, 0, 0, call.id, len(head), call.deadline - now)
                self._outbox.append(b"".join((prefix, head, piece)))
                self._outbox_bytes += size
                if alone:
                    self._flush()
                elif not self._flush_due:
                    self._flush_due = True
                    self._loop.call_soon(self._flush)
                return
        for piece in frames(_INVOKE_KIND, _PART_KIND, call.id, invoke_head(head, call.deadline - now), body):
            self._put(piece)

    def abandon(self, call: Call) -> None:
        """Nobody waits for the call any more. CANCEL; the slot comes back with the runner's ANSWER or END."""
        call.state = ABANDONED
        self.live -= 1
        self._put(frame(Kind.CANCEL, call.id))
        self._ears.freed()

    def taken(self, call: Call, count: int) -> None:
        """CREDIT, once enough has come together."""
        call.taken_bytes += count
        owed = min(call.taken_bytes, call.seen) - call.credited
        if owed >= CREDIT_STEP:
            call.credited += owed
            self._put(frame(Kind.CREDIT, call.id, CREDIT_BODY.pack(owed)))

    def stop(self, grace_s: float) -> None:
        """STOP: no new work, finish what runs, exit."""
        self._put(frame(Kind.STOP, 0, encode({"grace_s": grace_s})))

    def booked(self, number: int, *, refusal: str) -> None:
        """BOOKED; an empty `refusal` says that the bytes are the runner's. Raises ProtocolError for a runner that doesn't read."""
        self._owe(frame(Kind.BOOKED, number, encode({"ok": not refusal, "message": refusal})))

    def cancel_foreign(self, requests: Iterable[int]) -> None:
        """A predecessor's requests, whose callers are gone: CANCEL, and their slots count as taken until they end."""
        for request in requests:
            self.foreign.add(request)
            self._put(frame(Kind.CANCEL, request))

    def cut_off(self, error: FornadaError) -> None:
        """Refuses every caller who waits. The calls stay until the runner or its end frees them."""
        for call in list(self.calls.values()):
            call.refuse(error)

    def last_words(self) -> None:
        """After the process has ended: takes in what it had still sent."""
        while self.open and self._read():
            pass

    def close(self) -> None:
        """No call may be live any more. The descriptor stays open."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        self._deafen()
        if self._blocked:
            self._loop.remove_writer(self._fd)
            self._blocked = False
        self.calls.clear()
        self.foreign.clear()
        self.live = 0

    def _put(self, item: bytes) -> None:
        self._outbox.append(item)
        self._outbox_bytes += len(item)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _owe(self, item: bytes) -> None:
        """As `_put`, for what the runner may ask for without end."""
        self._owed_bytes = self._owed_bytes + len(item) if self._blocked else 0
        if self._owed_bytes > OWED_BYTES:
            raise ProtocolError("it asks and asks, and doesn't read what it is told")
        self._put(item)

    def _flush(self) -> None:
        self._flush_due = False
        if self._blocked:
            return
        if self._acks:
            self._put_acks()
        outbox = self._outbox
        if not outbox:
            return
        if self._outbox_bytes + len(outbox) * HEADER_SIZE <= MAX_PACKET:
            if self._write(b"".join(outbox)):
                outbox.clear()
                self._outbox_bytes = 0
            return
        while outbox:
            count = _fitting(outbox)
            if not self._write(b"".join(outbox[:count])):
                return
            self._outbox_bytes -= sum(map(len, outbox[:count]))
            del outbox[:count]
        self._outbox_bytes = 0

    def _put_acks(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        for at in range(0, len(self._acks), 4096):
            ids = self._acks[at : at + 4096]
            item = frame(Kind.ACK, 0, struct.pack(f"<{len(ids)}Q", *ids))
            self._outbox.append(item)
            self._outbox_bytes += len(item)
        self._acks.clear()

    def _write(self, packet: bytes) -> bool:
        if not self.open:
            return True  # nobody will read it
        try:
            os.write(self._fd, packet)
        except BlockingIOError:
            self._blocked = True
            self._loop.add_writer(self._fd, self._writable)
            return False
        except OSError:
            return True  # the runner has gone; its end will be told by the keeper
        return True

    def _writable(self) -> None:
        self._loop.remove_writer(self._fd)
        self._blocked = False
        self._flush()
        if not self._blocked:
            self._ears.freed()

    # ---- receiving

    def _readable(self) -> None:
        if self._read() < MUCH:
            return
        until = self._now() + TURN_S
        while self._read() >= MUCH and self._now() < until:
            pass

    def _read(self) -> int:
        """Takes in one packet. Its size; 0 where there is none, or where a fault has made us deaf."""
        if not self.open:
            return 0
        try:
            packet = os.read(self._fd, MAX_PACKET)
        except (BlockingIOError, InterruptedError):
            return 0
        except ConnectionResetError:
            return self._read()  # it died with unread messages of ours; what it had sent before can still be read
        except OSError:
            packet = b""
        if not packet:
            self._deafen()
            self._ears.hung_up()
            return 0
        self._take(packet, 0)
        return len(packet)

    def _deafen(self) -> None:
        if self.open:
            self.open = False
            self._loop.remove_reader(self._fd)

    def _take(self, packet: bytes, at: int) -> None:
        """The frames of a packet from `at` on."""
        now = self._now()
        end = len(packet)
        calls = self.calls
        ended = self.ended
        try:
            while at < end:
                if end - at < HEADER_SIZE:
                    raise ProtocolError(f"{end - at} bytes at the end of a packet are no frame")
                length, kind, flags, part, request = HEADER.unpack_from(packet, at)
                begin = at + HEADER_SIZE
                at = begin + length
                if at > end:
                    raise ProtocolError(f"a frame of {length} bytes in the {end - begin} that are left of its packet")
                if kind == _ANSWER_KIND and not flags:
                    call = calls.get(request)
                    said: AnswerHead | None
                    if packet[begin : begin + _OK_SIZE] == _OK_PREFIX:
                        said, body = _OK, begin + _OK_SIZE
                    else:
                        said, body = short_head(packet, begin, at)
                    if call is not None and call.state is SENT and said is not None:
                        del calls[request]
                        self.ended += 1
                        call.state = DONE
                        call.wheel.discard(call)
                        self.live -= 1
                        self._acks.append(request)
                        took_s = now - call.sent_at
                        self._runner_s.observe(took_s)
                        self._service_s.append(took_s)
                        try:
                            call.sink.answer(said, packet[body:at])
                        except Exception as error:  # noqa: BLE001 - the boundary with who reads model output
                            self._untold(error, call.sink.refuse)
                        continue
                if kind == _ITEM_KIND and not flags:
                    self._item(part, request, packet[begin:at])
                elif flags & MORE or kind == _PART_KIND:
                    self._assemble(kind, flags, part, request, packet[begin:at], now)
                else:
                    self._hear(kind, part, request, packet[begin:at], now)
            if self._blocked and len(self._acks) > OWED_ACKS:
                raise ProtocolError("it answers and answers, and doesn't read what it is told")
        except (ProtocolError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            self._fault(str(error))
            return
        except BaseException:
            # Our bug, but the other callers' answers in this packet are not to be lost with it.
            if at < end:
                self._loop.call_soon(self._take, packet, at)
            self._loop.call_soon(self._ears.freed)
            raise
        if self._acks and not self._flush_due:
            self._acknowledge_soon()
        if self.ended != ended:  # most packets of a stream end nothing
            self._ears.freed()

    def _acknowledge_soon(self) -> None:
        if len(self._acks) >= ACKS_AT_ONCE:
            self._flush_due = True
            self._loop.call_soon(self._flush)
        elif self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACK_S, self._flush)

    def _fault(self, reason: str) -> None:
        self._deafen()
        self._ears.faulted(reason)

    def _assemble(self, kind: int, flags: int, part: int, request: int, payload: bytes, now: Instant) -> None:
        assembler = self._assembler
        if assembler.held + len(payload) > BODY_BYTES:
            raise ProtocolError(f"more than {BODY_BYTES} bytes of unfinished messages")
        if kind != _PART_KIND:
            assembler.opened(kind, part, request, payload)
            return
        opened = assembler.kind(request)
        if opened not in _LONG and assembler.size(request) + len(payload) > HEAD_BYTES:
            raise ProtocolError(f"a message of kind {opened} of more than {HEAD_BYTES} bytes")
        whole = assembler.continued(flags, part, request, payload)
        if whole is not None:
            opened, first, body = whole
            self._hear(opened, first, request, body, now)

    def _hear(self, kind: int, part: int, request: int, payload: bytes, now: Instant) -> None:
        match kind:
            case Kind.ITEM:
                self._item(part, request, payload)
            case Kind.ANSWER | Kind.STREAM | Kind.END:
                self._speech(kind, request, payload, now)
            case Kind.BOOK:
                self._ears.asked(request, object_of(payload))
            case Kind.PROGRESS if self._is_flood(now):
                pass
            case Kind.HELLO | Kind.PROGRESS | Kind.READY | Kind.FAILED:
                self._heard(kind, object_of(payload))
            case _:
                raise ProtocolError(f"a message of kind {kind} from a runner")

    def _is_flood(self, now: Instant) -> bool:
        """One more PROGRESS is too much. To be asked once for each."""
        self._progress_left = min(PROGRESS_A_SECOND, self._progress_left + (now - self._progress_at) * PROGRESS_A_SECOND)
        self._progress_at = now
        if self._progress_left < 1:
            return True
        self._progress_left -= 1
        return False

    def _speechless(self, kind: int, message: dict[str, Any]) -> None:
        """Before HELLO, which comes first and once."""
        if kind != Kind.HELLO:
            raise ProtocolError(f"{Kind(kind).name} before HELLO")
        self._heard = self._life
        self._ears.greeted(message)

    def _life(self, kind: int, message: dict[str, Any]) -> None:
        match kind:
            case Kind.PROGRESS:
                self._ears.progressed(message)
            case Kind.READY:
                self._ears.loaded(message)
            case Kind.FAILED:
                self._ears.failed(message)
            case _:
                raise ProtocolError("a second HELLO")

    def _speech(self, kind: int, request: int, payload: bytes, now: Instant) -> None:
        head, body = (payload, memoryview(b"")) if kind == Kind.END else split_head(payload)
        if len(head) > HEAD_BYTES:
            raise ProtocolError(f"request {request}: a head of {len(head)} bytes")
        said = _OK if head == OK_HEAD else _HEADS.decode(head)
        call = self.calls.get(request)
        if call is None:
            self._unknown(kind, request)
            return
        if kind == Kind.STREAM:
            if call.state is STREAMING:
                raise ProtocolError(f"request {request}: a second STREAM")
            if call.state is SENT:
                call.state = STREAMING
                self._tell(call.sink.stream_begins, said, refuse=call.refuse_unbegun)
            return
        if call.state is (SENT if kind == Kind.END else STREAMING):
            raise ProtocolError(f"request {request}: {Kind(kind).name} while {call.state.value}")
        error = None if said.status == "ok" else refusal_of(said)
        del self.calls[request]
        self.ended += 1
        self._acks.append(request)
        if call.state is ABANDONED:
            call.state = DONE
            return
        self._end(call, said, body, error, now)

    def _end(self, call: Call, said: AnswerHead, body: memoryview, error: FornadaError | None, now: Instant) -> None:
        streamed = call.state is STREAMING
        call.state = DONE
        call.wheel.discard(call)
        self.live -= 1
        took_s = now - call.sent_at
        self._runner_s.observe(took_s)
        self._service_s.append(took_s)
        sink = call.sink
        if streamed:
            self._tell(sink.stream_ends, error, said, refuse=sink.stream_ends)
        elif error is None:
            self._tell(sink.answer, said, body, refuse=sink.refuse)
        else:
            sink.refuse(error)

    def _item(self, part: int, request: int, payload: bytes) -> None:
        call = self.calls.get(request)
        if call is None or call.state is ABANDONED:
            return
        if call.state is not STREAMING:
            raise ProtocolError(f"request {request}: item {part} before its STREAM")
        if call.seen - call.taken_bytes >= STREAM_WINDOW:
            raise ProtocolError(f"request {request}: item {part} although {STREAM_WINDOW} bytes have not been taken yet")
        if not payload:
            return  # nothing counts against the window, so that nothing must become of it either
        call.seen += len(payload)
        try:
            call.sink.item(payload)
        except Exception as error:  # noqa: BLE001 - as above
            self._untold(error, call.refuse)

    def _tell(self, hear: Callable[..., None], *said: Any, refuse: Callable[[FornadaError], None]) -> None:
        """Tells a sink what the runner said."""
        try:
            hear(*said)
        except Exception as error:  # noqa: BLE001 - the boundary with who reads model output
            self._untold(error, refuse)

    def _untold(self, error: Exception, refuse: Callable[[FornadaError], None]) -> None:
        """A sink failed over what it was told: our bug, not the runner's. Its caller would wait for ever otherwise."""
        self._loop.call_exception_handler({"message": "a sink failed", "exception": error})
        refuse(InternalFault("the server failed over the model's answer; its log says more"))

    def _unknown(self, kind: int, request: int) -> None:
        if kind == Kind.STREAM:
            self._owe(frame(Kind.CANCEL, request))
            return
        if request in self.foreign:
            self.foreign.discard(request)
            self._ears.freed()
        self._acks.append(request)
        self._ears.orphaned(request)


def _fitting(outbox: list[bytes]) -> int:
    """How many frames from the front share a packet."""
    size = 0
    for count, item in enumerate(outbox):
        size += len(item)
        if size > MAX_PACKET:
            return count
    return len(outbox)
