"""A connection that has become a WebSocket: one request, and messages both ways until either side has had enough.

    OPENING ─the model listens, or answers─► OPEN ─either side's Close─► CLOSING ─the other's, or its time is over─► CLOSED
       └─refused─► an HTTP answer ──────────────────────────────────────────────────────────────────────────────────────┘

It takes the connection's place at the transport. The handshake waits for the model, so that whatever keeps it from listening still has a status.
What the caller says beyond the wire's window waits in the socket; what the model says beyond its own waits in the runner.
"""

import asyncio
import base64
import binascii
import enum
import hashlib
import re
from collections import deque
from time import monotonic

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from fornada.core.errors import BadRequest, FornadaError, InternalFault, Unavailable
from fornada.core.keys import Role
from fornada.core.requests import Speaker
from fornada.edge.auth import Caller
from fornada.edge.calls import JSON_TYPE, Target
from fornada.edge.headers import Facts, read_facts
from fornada.edge.observer import LEFT, OK, Meter, outcome_of
from fornada.edge.problems import SWITCHING, close_code, event_data, problem
from fornada.edge.server.lines import CLOSE, header_lines
from fornada.edge.server.shared import Shared
from fornada.edge.server.unsent import Unsent
from fornada.edge.targets import origin_form
from fornada_sdk.wire.messages import BYTES, INPUT_COST, INPUT_WINDOW, TEXT

MESSAGE_BYTES = 1024 * 1024
"""Of one message of a caller, whatever the model."""
HELD_BYTES = 64 * 1024
"""Of messages that the model has no room for: from there on nothing is read."""
FRAMES, PAUSE_S = 64, 0.01
"""Of a caller that are heard at once, and what the next ones wait for: each is work, even one that says nothing."""
PING_S, SILENT_S = 20.0, 60.0
"""Without a byte from the caller it is asked whether it is there, and given up."""
IDLE_S = 300.0
"""Without a message either way it is over."""
CLOSE_S = 5.0
"""For the other side's Close."""
NORMAL, GOING_AWAY, POLICY, TOO_BIG, FAILED, RESTART = 1000, 1001, 1008, 1009, 1011, 1012
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, 1.3."""
_KEY_BYTES = 16
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class State(enum.Enum):
    """See the module's docstring."""

    OPENING = enum.auto()
    OPEN = enum.auto()
    CLOSING = enum.auto()
    CLOSED = enum.auto()


class Conversation(asyncio.Protocol):
    """See the module's docstring. An edge.calls.Talk to its door, and one of the server's connections."""

    changes = False
    follows = False
    rests = False
    size = 0

    def __init__(self, shared: Shared, transport: asyncio.Transport, facts: Facts, target: Target) -> None:
        self.shared = shared
        self.facts = facts
        self.target = target
        self.trace_id = shared.trace()
        self.request_id = facts.request_id or self.trace_id
        self.meter: Meter | None = None
        self._transport = transport
        self._state = State.OPENING
        self._frames = Connection(ConnectionType.SERVER)
        self._ticket: Speaker | None = None
        self._began = self._heard = self._spoke = self._asked = monotonic()
        """When it began, any byte came, a message went either way, and the caller was asked whether it is there."""
        self._coming = bytearray()
        """Of the message that isn't complete: in one piece, since a list of very small ones would take many times their bytes."""
        self._inbox: deque[tuple[int, bytes]] = deque()
        self._held = self._outstanding = 0
        """What the messages of the inbox, and those that the model hasn't taken, count for."""
        self._listening = False
        self._reading = True
        self._behind: asyncio.TimerHandle | None = None
        """There is more than was heard."""
        self._full = False
        """The transport has more to send than it likes."""
        self._unsent = Unsent()
        self._owed = 0
        self._counted = False

    def start(self, method: bytes, early: bytes) -> None:
        """Takes the transport. `early`: what came behind the request."""
        self.shared.connections.add(self)
        self._transport.set_protocol(self)
        refusal = self._refusal(method)
        if refusal is not None:
            self.fail(refusal)
            return
        try:
            self.target.door.open(self)
        except Exception as error:  # noqa: BLE001 - a bug of ours
            self.shared.observer.failed(where=self.target.name, request_id=self.request_id, error=error)
            self.fail(InternalFault("the server failed; its log says more"))
        if early:
            self.data_received(early)

    def admit(self, caller: Caller) -> None:
        """Raises Unauthorized, Forbidden."""
        caller.require(Role.USER)
        caller.acting_for(self.target.account)

    def _refusal(self, method: bytes) -> FornadaError | None:
        shared, facts = self.shared, self.facts
        refusal = facts.refusal or self._barred(facts) or self.target.error
        if refusal is None and (facts.chunked or facts.content_length):
            refusal = BadRequest("a request for a WebSocket has no body")
        if refusal is None and accepted(facts) is None:
            refusal = BadRequest("a WebSocket needs 'Sec-WebSocket-Version: 13', and a 'Sec-WebSocket-Key' of 16 bytes in base64")
        if not shared.open:
            refusal = refusal or shared.refusal(method, b"/")
        return refusal or (Unavailable("the node is being upgraded", retry_after_s=1) if shared.departing else None)

    def _barred(self, facts: Facts) -> FornadaError | None:
        try:
            self.admit(facts.caller)
        except FornadaError as refusal:
            return refusal
        return None

    # -- the transport's side

    def data_received(self, data: bytes) -> None:
        if self._state is State.CLOSED:
            return
        self._heard = self.shared.now
        if self._frames.state not in (ConnectionState.OPEN, ConnectionState.LOCAL_CLOSING):
            return
        self._frames.receive_data(data)
        if self._behind is None:
            self._hear()

    def _hear(self) -> None:
        """As many frames as others can wait for."""
        for number, event in enumerate(self._frames.events(), 1):
            if isinstance(event, TextMessage | BytesMessage):
                self._take(event)
            elif isinstance(event, Ping):
                if self._state is State.OPEN and not self._full:
                    self._transport.write(self._frames.send(event.response()))
            elif isinstance(event, CloseConnection):
                self._closed_by_caller(event)
            elif not isinstance(event, Pong):
                self.close(FAILED, "unknown frame")
            if not self.busy:
                return
            if number == FRAMES:
                self._behind = asyncio.get_running_loop().call_later(PAUSE_S, self._hear_on)
                break
        self._read_or_wait()

    def _hear_on(self) -> None:
        self._behind = None
        if self.busy and not self._transport.is_closing():
            self._hear()

    def eof_received(self) -> bool:
        self.leave()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        self.shared.connections.discard(self)

    def pause_writing(self) -> None:
        self._full = True
        self._unsent.forget()

    def resume_writing(self) -> None:
        self._full = False
        self._unsent.forget()
        self._settle()

    # -- the caller's messages

    def _take(self, event: TextMessage | BytesMessage) -> None:
        if self._state not in (State.OPENING, State.OPEN):
            return
        self._coming += event.data.encode() if isinstance(event.data, str) else event.data
        if len(self._coming) > MESSAGE_BYTES:
            self._coming = bytearray()
            self.close(TOO_BIG, f"a message has {MESSAGE_BYTES} bytes at most")
            return
        if not event.message_finished:
            return
        whole = bytes(self._coming)
        self._coming = bytearray()
        self._spoke = self.shared.now
        self._inbox.append((TEXT if isinstance(event, TextMessage) else BYTES, whole))
        self._held += len(whole) + INPUT_COST
        self._feed()

    def _feed(self) -> None:
        """Gives the model what it has room for."""
        ticket, inbox = self._ticket, self._inbox
        while inbox and self._listening and ticket is not None:
            kind, data = inbox[0]
            cost = len(data) + INPUT_COST
            if self._outstanding + cost > INPUT_WINDOW < 2 * self._outstanding:
                break
            inbox.popleft()
            self._held -= cost
            self._outstanding += cost
            ticket.say(kind, data)
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        room = self._held <= HELD_BYTES and self._behind is None
        if room is not self._reading and self._state is not State.CLOSED:
            self._reading = room
            if room:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _closed_by_caller(self, event: CloseConnection) -> None:
        if self._frames.state is ConnectionState.OPEN:  # it broke the protocol
            self.close(int(event.code), event.reason or "")
            return
        if self._state is State.OPEN:
            self._transport.write(self._frames.send(event.response()))
            self._count(OK)
        self.leave()
        self._finish()

    # -- the door's side: edge.calls.Talk

    def keep(self, ticket: Speaker) -> None:
        """What `submit` returned."""
        if self._state in (State.OPENING, State.OPEN):
            self._ticket = ticket
            self._feed()
        else:
            ticket.leave()

    def open(self) -> None:
        """The handshake: there is somebody to talk with."""
        if self._state is not State.OPENING:
            return
        self._state = State.OPEN
        self._spoke = self.shared.now
        lines = b"upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: %b\r\n" % (accepted(self.facts) or b"")
        if chosen := subprotocol(self.facts):
            lines += b"sec-websocket-protocol: %b\r\n" % chosen
        self._transport.write(self.shared.lines.of(SWITCHING) + lines + self._ids() + b"\r\n")

    def listens(self, taken: int) -> None:
        """The model listens, and has taken so many bytes more."""
        self.open()
        self._listening = True
        self._outstanding = max(0, self._outstanding - taken)
        self._feed()

    def say(self, data: bytes, *, text: bool) -> None:
        """One message of the model."""
        self.open()
        if self._state is not State.OPEN:
            return
        self._spoke = self.shared.now
        message = TextMessage(data=data.decode()) if text else BytesMessage(data=data)
        self._transport.write(self._frames.send(message))
        self._owed += len(data)
        self._settle()

    def end(self, run_s: float) -> None:
        """The model has said all it had."""
        self.open()
        self._ticket = None
        self._count(OK, run_s)
        self.close(NORMAL, "")

    def fail(self, error: FornadaError, *, from_model: bool = False) -> None:
        """A refusal: with a status as long as nothing was opened, else as a last message, and a code that says whose fault it is."""
        if self._state not in (State.OPENING, State.OPEN):
            return
        self._count(outcome_of(error))
        if self._state is State.OPEN:
            self.say(event_data(error, self.trace_id), text=True)
            self.close(close_code(error), type(error).__name__)
            return
        found = problem(error, self.target.style, self.trace_id, from_model=from_model)
        lines = self.shared.lines.of(found.status) + JSON_TYPE + header_lines(found.headers) + self._ids() + self.facts.cors + CLOSE
        self._tell(found.status, error)
        self._transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (lines, len(found.body), found.body))
        self.leave()
        self._finish()

    # -- the server's side

    @property
    def busy(self) -> bool:
        return self._state is not State.CLOSED

    def stop_taking(self, *, new: bool = False) -> None:
        """The node drains, or another control plane takes over."""
        if self._state is State.OPENING:
            self.fail(Unavailable("the node is shutting down", retry_after_s=1))
        else:
            self.close(GOING_AWAY, "the node is shutting down")

    def depart(self) -> None:
        """Another control plane has taken over, which can't go on with this."""
        if self._state is State.OPENING:
            self.fail(Unavailable("the node is being upgraded", retry_after_s=1))
        else:
            self.close(RESTART, "the node is being upgraded")

    def forget(self) -> None:
        """Keys have changed."""
        facts = read_facts(self.facts.fields, self.shared.authenticator)
        if facts.refusal is not None or self._barred(facts) is not None:
            self.close(POLICY, "the key isn't valid any more")

    def hold(self) -> None:
        """Nothing: it never rests, and so is never given away."""

    def go_on(self) -> None:
        """It did all the while."""

    def detach(self) -> int:
        raise OSError("a conversation can't be given away")

    def abort(self) -> None:
        self._transport.abort()

    def look_at_the_clock(self) -> None:
        """Called every tick."""
        now = self.shared.now
        if self._unsent.stalled(self._transport, now, full=self._full):
            self.abort()
        if not self._reading:
            self._heard = now  # it is we who don't listen
        if self._state is State.CLOSING and now - self._spoke > CLOSE_S:
            self._finish()
        elif self._state is State.OPEN:
            if now - self._spoke > IDLE_S:
                self.close(GOING_AWAY, f"nothing was said for {IDLE_S:g} s")
            elif now - self._heard > SILENT_S:
                self.close(FAILED, f"no sign of life for {SILENT_S:g} s")
            elif now - max(self._heard, self._asked) > PING_S:
                self._asked = now
                self._transport.write(self._frames.send(Ping()))

    # -- ending

    def close(self, code: int, reason: str) -> None:
        """Says so, and waits a moment for the other side to do the same."""
        if self._state is State.OPENING:
            self.leave()
            self._finish()
        elif self._state is State.OPEN:
            self._state = State.CLOSING
            self._spoke = self.shared.now
            self._transport.write(self._frames.send(CloseConnection(code=code, reason=reason.encode()[:120].decode(errors="ignore"))))
            self.leave()
            self._inbox.clear()
            self._held = 0
            self._feed()

    def leave(self) -> None:
        """Nobody waits for the model any more."""
        self._count(LEFT)
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.leave()

    def _finish(self) -> None:
        self._state = State.CLOSED
        self._transport.close()

    def _settle(self) -> None:
        if self._owed and self._ticket is not None and not self._full:
            owed, self._owed = self._owed, 0
            self._ticket.taken(owed)

    def _ids(self) -> bytes:
        return b"cf-ai-req-id: %b\r\nx-request-id: %b\r\n" % (self.trace_id.encode(), self.request_id.encode())

    def _count(self, outcome: str, run_s: float = 0.0) -> None:
        if self._counted:
            return
        self._counted = True
        meter = self.meter or self.shared.unnamed
        meter.done(outcome, monotonic() - self._began, run_s)
        if self.shared.verbose and outcome == OK:
            self._tell(SWITCHING, None)

    def _tell(self, status: int, error: FornadaError | None) -> None:
        self.shared.observer.answered(
            request_id=self.request_id,
            trace_id=self.trace_id,
            method="GET",
            route=self.target.name,
            status=status,
            error=error,
            seconds=monotonic() - self._began,
        )


def conversation(shared: Shared, transport: asyncio.Transport, facts: Facts, method: bytes, url: bytes) -> Conversation | None:
    """One to be started; None where no WebSocket is wished for, or none can be had: such a request counts without its wish."""
    if method != b"GET" or (facts.get(b"upgrade") or b"").strip().lower() != b"websocket":
        return None
    target = shared.talks.find(origin_form(facts.target or url))
    return Conversation(shared, transport, facts, target) if target is not None else None


def subprotocol(facts: Facts) -> bytes:
    """The first that the caller offers; empty where it offers none. None of them means anything here, but a browser that has offered some
    gives a handshake up that chooses none (WHATWG, WebSockets, 2.1)."""
    offered = b",".join(value for name, value in facts.fields if name.lower() == b"sec-websocket-protocol").split(b",")
    return next((name for each in offered if _TOKEN.fullmatch(name := each.strip())), b"")


def accepted(facts: Facts) -> bytes | None:
    """Sec-WebSocket-Accept; None where the request isn't as RFC 6455, 4.2.1 has it."""
    key = (facts.get(b"sec-websocket-key") or b"").strip()
    try:
        fine = len(base64.b64decode(key, validate=True)) == _KEY_BYTES and (facts.get(b"sec-websocket-version") or b"").strip() == b"13"
    except binascii.Error:
        return None
    return base64.b64encode(hashlib.sha1(key + _MAGIC).digest()) if fine else None
