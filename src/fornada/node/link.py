"""The control plane's end of the wire to one runner.

Requests go out and answers come in as plain calls on the event loop: no task, no future, no timer for a request. What is sent
during one turn of the loop leaves in as few packets as possible (node.outbox).

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

from fornada.core.errors import FornadaError, InternalFault, OutOfDeviceMemory
from fornada.core.names import NEVER, Instant
from fornada.core.requests import AnswerHead
from fornada.node.arenas import LONG_BYTES, Arenas
from fornada.node.bodies import HEAD_BYTES, Bodies
from fornada.node.call import ABANDONED, CREDIT_STEP, DONE, SENT, STREAMING, WAITING, Call
from fornada.node.ears import Ears
from fornada.node.heads import object_of, refusal_of, short_head
from fornada.node.life_words import LifeWords
from fornada.node.metering import UNMETERED, Meter
from fornada.node.outbox import Outbox
from fornada.telemetry.metrics import Spread
from fornada_sdk.wire.arena import PLACE
from fornada_sdk.wire.framing import HEADER, HEADER_SIZE, MAX_PACKET, MAX_PAYLOAD, MORE, STORED, ProtocolError, frame, frames
from fornada_sdk.wire.messages import (
    CREDIT_BODY,
    INVOKE_PREFIX,
    OK_HEAD,
    STREAM_WINDOW,
    TAKEN_BODY,
    Kind,
    encode,
    invoke_head,
    split_head,
    with_head,
)

OUTBOX_BYTES = 4 * 1024**2
"""Bytes that may wait for the socket before requests stay in their line."""
TURN_S = 0.001
"""How long one runner is listened to before the others have their turn. A packet of small messages may take several ms itself."""
MUCH = MAX_PACKET // 4
"""After a packet of this size there is probably another one."""
_INVOKE = struct.Struct(HEADER.format + INVOKE_PREFIX.format.lstrip("<"))
_INVOKE_KIND, _ANSWER_KIND, _ITEM_KIND, _PART_KIND = int(Kind.INVOKE), int(Kind.ANSWER), int(Kind.ITEM), int(Kind.PART)
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
        max_body: int,
        now: Callable[[], Instant],
        loop: asyncio.AbstractEventLoop,
        meter: Meter | None = None,
    ) -> None:
        """`max_body`: bytes of the longest request. Times from sending to answer go to `service_s` (the last ones, for predictions) and
        to `runner_s` (the metric).
        """
        self._fd = descriptor
        self._ears = ears
        self._service_s = service_s
        self._runner_s = runner_s
        self._now = now
        self._loop = loop
        self._meter = meter or UNMETERED
        self._bodies = Bodies(self._is_awaited)
        self._life = LifeWords(ears, now)
        self._owed_bytes = 0
        """Of answers of ours that were put into the outbox since the socket took no more."""
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
        self._outbox = Outbox(descriptor, is_open=lambda: self.open, on_room=ears.freed, loop=loop)
        self._arenas = Arenas(
            descriptor,
            outbox=self._outbox,
            most_bytes=max_body,
            under_way=self.calls.__contains__,
            at_rest=lambda: not self.calls and not self.foreign,
            loop=loop,
        )
        loop.add_reader(descriptor, self._readable)

    def requests_under_way(self) -> frozenset[str]:
        """The ids of the requests that the runner works on, as its lines of output name them."""
        return frozenset(call.request.request_id for call in self.calls.values())

    # ---- sending

    @property
    def has_room(self) -> bool:
        """One more call may be sent."""
        outbox = self._outbox
        return len(self.calls) + len(self.foreign) < self.capacity and outbox.size < OUTBOX_BYTES and not outbox.blocked and self.open

    def send(self, call: Call, now: Instant) -> None:
        """INVOKE. The caller has looked at `has_room`."""
        request = call.request
        call.state = SENT
        call.sent_at = now
        call.wire = self
        alone = not self.calls
        self.calls[call.id] = call
        self.live += 1
        self._meter.sent(call)
        head = request.head
        body = request.body
        if len(body) == 1:
            piece = body[0]
            size = INVOKE_PREFIX.size + len(head) + len(piece)
            if size <= MAX_PAYLOAD:
                prefix = _INVOKE.pack(size, _INVOKE_KIND, 0, 0, call.id, len(head), call.deadline - now)
                outbox = self._outbox
                outbox.frames.append(b"".join((prefix, head, piece)))
                outbox.size += size
                if alone:
                    outbox.flush()
                else:
                    outbox.flush_soon()
                return
        prefix = invoke_head(head, call.deadline - now)
        length = sum(map(len, body))
        if length > LONG_BYTES and len(prefix) < LONG_BYTES // 2:
            place = self._arenas.place(call.id, body, length)
            if place is not None:
                self._outbox.put(frame(_INVOKE_KIND, call.id, prefix + place, flags=STORED))
                return
        for piece in frames(_INVOKE_KIND, _PART_KIND, call.id, prefix, body):
            self._outbox.put(piece)

    def abandon(self, call: Call) -> None:
        """Nobody waits for the call any more. CANCEL; the slot comes back with the runner's ANSWER or END."""
        call.state = ABANDONED
        self.live -= 1
        self._outbox.put(frame(Kind.CANCEL, call.id))
        self._ears.freed()
        self._ears.abandoned()

    def credit(self, call: Call) -> None:
        """CREDIT, for no more than has come."""
        owed = min(call.taken_bytes, call.seen) - call.credited
        if owed >= CREDIT_STEP:
            call.credited += owed
            self._outbox.put(frame(Kind.CREDIT, call.id, CREDIT_BODY.pack(owed)))

    def say(self, call: Call, kind: int, data: bytes) -> None:
        """INPUT."""
        for piece in frames(Kind.INPUT, _PART_KIND, call.id, bytes((kind,)), [data]):
            self._outbox.put(piece)

    def stop(self, grace_s: float) -> None:
        """STOP: no new work, finish what runs, exit."""
        self._outbox.put(frame(Kind.STOP, 0, encode({"grace_s": grace_s})))

    def sleep(self) -> None:
        """SLEEP. No call is under way."""
        self._outbox.put(frame(Kind.SLEEP, 0, encode({})))

    def wake(self) -> None:
        """WAKE."""
        self._outbox.put(frame(Kind.WAKE, 0, encode({})))

    def booked(self, number: int, *, refusal: str) -> None:
        """BOOKED; an empty `refusal` says that the bytes are the runner's. Raises ProtocolError for a runner that doesn't read."""
        self._outbox.owe(frame(Kind.BOOKED, number, encode({"ok": not refusal, "message": refusal})))

    def cancel_foreign(self, requests: Iterable[int]) -> None:
        """A predecessor's requests, whose callers are gone: CANCEL, and their slots count as taken until they end."""
        self.foreign.update(requests)
        for request in self.foreign:
            self._outbox.put(frame(Kind.CANCEL, request))
        self._ears.abandoned()

    def cut_off(self, error: FornadaError) -> None:
        """Refuses every caller who waits. The calls stay until the runner or its end frees them."""
        for call in list(self.calls.values()):
            call.refuse(error)

    def take_back(self, *, behind: int) -> list[Call]:
        """What waits in the runner behind so many others, of which none will end, to be sent to another one."""
        unbegun = [call for call in list(self.calls.values())[behind:] if call.state is SENT]
        for call in unbegun:
            del self.calls[call.id]
            self.live -= 1
            self._meter.lost(call)
            call.state = WAITING
        return unbegun

    def hear_out(self, *, until: Instant = NEVER) -> None:
        """Takes in what it has sent: all of it once the process has ended; one that lives can go on for as long as it likes."""
        while self._read() and self._now() < until:
            pass

    def forget(self) -> None:
        """The process has ended, and with it what it worked on."""
        for call in self.calls.values():
            self._meter.lost(call)

    def close(self) -> None:
        """No call may be live any more. The descriptor stays open."""
        self._outbox.close()
        self._deafen()
        self._arenas.close()
        self.calls.clear()
        self.foreign.clear()
        self.live = 0

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
        outbox = self._outbox
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
                        outbox.acks.append(request)
                        took_s = now - call.sent_at
                        self._runner_s.observe(took_s)
                        self._service_s.append(took_s)
                        self._meter.ended(call, said, took_s)  # before a sink can let the acknowledgement go out
                        try:
                            call.sink.answer(said, packet[body:at])
                        except Exception as error:  # noqa: BLE001 - the boundary with who reads model output
                            self._untold(error, call.sink.refuse)
                        continue
                if kind == _ITEM_KIND and not flags:
                    self._item(part, request, packet[begin:at])
                elif flags & MORE or kind == _PART_KIND:
                    self._assemble(kind, flags, part, request, packet[begin:at], now)
                elif flags & STORED:
                    self._stored(kind, request, packet[begin:at], now)
                else:
                    self._hear(kind, part, request, packet[begin:at], now)
            self._outbox.bound_acks()
        except (ProtocolError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            self._fault(str(error))
            return
        except BaseException:
            # Our bug, but the other callers' answers in this packet are not to be lost with it.
            if at < end:
                self._loop.call_soon(self._take, packet, at)
            self._loop.call_soon(self._ears.freed)
            raise
        if outbox.acks and not outbox.flush_due:
            outbox.acknowledge_soon()
        if self.ended != ended:  # most packets of a stream end nothing
            self._ears.freed()

    def _fault(self, reason: str) -> None:
        self._deafen()
        self._ears.faulted(reason)

    def _is_awaited(self, request: int) -> bool:
        call = self.calls.get(request)
        return call is not None and call.state is not ABANDONED

    def _assemble(self, kind: int, flags: int, part: int, request: int, payload: bytes, now: Instant) -> None:
        whole = self._bodies.take(kind, flags, part, request, payload)
        if whole is None:
            return
        if whole.payload is None:
            self._unheard(whole.kind, request)
        else:
            self._hear(whole.kind, whole.part, request, whole.payload, now)
            if whole.kind == _ANSWER_KIND:
                self._arenas.came_in_parts()

    def _stored(self, kind: int, request: int, payload: bytes, now: Instant) -> None:
        """An answer whose body lies in a file."""
        place = len(payload) - PLACE.size
        if kind != _ANSWER_KIND or place < 0:
            raise ProtocolError(f"request {request}: a message of kind {kind} in a file")
        head, rest = split_head(payload[:place])
        if rest:
            raise ProtocolError(f"request {request}: an answer in two places")
        if self._is_awaited(request):
            self._speech(kind, request, head, self._arenas.answer(payload[place:]), now)
        else:
            self._unheard(kind, request)

    def _unheard(self, kind: int, request: int) -> None:
        """The end of a long message that was thrown away, since nobody waited for it when it began."""
        call = self.calls.get(request)
        if call is not None and call.state is not ABANDONED:
            raise ProtocolError(f"request {request}: what it is answered began before it was asked")
        if kind == _ITEM_KIND:
            return
        if call is None:
            self._unknown(kind, request, _OK)
        else:
            self._meter.unheard(call, self._now() - call.sent_at)
            self._drop(call)

    def _hear(self, kind: int, part: int, request: int, payload: bytes, now: Instant) -> None:
        match kind:
            case Kind.ITEM:
                self._item(part, request, payload)
            case Kind.ANSWER | Kind.STREAM:
                self._speech(kind, request, *split_head(payload), now)
            case Kind.END:
                self._speech(kind, request, payload, b"", now)
            case Kind.TAKEN:
                self._listens(request, payload)
            case Kind.BOOK:
                self._ears.asked(request, object_of(payload))
            case Kind.HELLO | Kind.PROGRESS | Kind.READY | Kind.FAILED | Kind.SLEPT | Kind.WOKEN:
                message = self._life.hear(kind, payload)
                if kind == Kind.HELLO:
                    self._arenas.spoken = message.get("arenas") is True
            case Kind.ARENA:
                self._arenas.confirmed(object_of(payload))
            case _:
                raise ProtocolError(f"a message of kind {kind} from a runner")

    def _speech(self, kind: int, request: int, head: bytes, body: bytes | memoryview, now: Instant) -> None:
        if len(head) > HEAD_BYTES:
            raise ProtocolError(f"request {request}: a head of {len(head)} bytes")
        said = _OK if head == OK_HEAD else _HEADS.decode(head)
        call = self.calls.get(request)
        if call is None:
            self._unknown(kind, request, said)
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
        if call.state is ABANDONED:
            self._meter.ended(call, said, now - call.sent_at)
            self._drop(call)
            return
        del self.calls[request]
        self.ended += 1
        self._outbox.acks.append(request)
        self._end(call, said, body, error, now)

    def _drop(self, call: Call) -> None:
        """The runner has ended a call that nobody waits for."""
        del self.calls[call.id]
        self.ended += 1
        self._outbox.acks.append(call.id)
        call.state = DONE

    def _end(self, call: Call, said: AnswerHead, body: bytes | memoryview, error: FornadaError | None, now: Instant) -> None:
        streamed = call.state is STREAMING
        self.live -= 1
        if isinstance(error, OutOfDeviceMemory) and not (streamed or call.listens):
            self._meter.lost(call)  # before it may be sent again
            error = self._ears.ran_out(call, error)
            if error is None:
                return
        call.state = DONE
        call.wheel.discard(call)
        took_s = now - call.sent_at
        self._runner_s.observe(took_s)
        self._service_s.append(took_s)
        self._meter.ended(call, said, took_s)
        sink = call.sink
        if streamed:
            self._tell(sink.stream_ends, error, said, refuse=sink.stream_ends)
        elif error is None:
            self._tell(sink.answer, said, body, refuse=sink.refuse)
        else:
            sink.refuse(error)

    def _listens(self, request: int, payload: bytes) -> None:
        call = self.calls.get(request)
        if call is None or call.state is ABANDONED:
            return
        hear = getattr(call.sink, "listens", None)
        if hear is None or len(payload) != TAKEN_BODY.size:
            raise ProtocolError(f"request {request}: it listens to somebody who doesn't speak")
        call.listens = True
        self._tell(hear, TAKEN_BODY.unpack(payload)[0], refuse=call.refuse)

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

    def _unknown(self, kind: int, request: int, said: AnswerHead) -> None:
        if kind == Kind.STREAM:
            self._outbox.owe(frame(Kind.CANCEL, request))
            return
        if request in self.foreign:
            self.foreign.discard(request)
            self._ears.freed()
        self._meter.orphaned(request, said)
        self._outbox.acks.append(request)
        self._ears.orphaned(request)
