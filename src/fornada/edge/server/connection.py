"""One HTTP/1.1 connection: bytes in, requests out to their routes, answers back in the order of the requests.

    receiving    IDLE ─first byte─► HEAD ─headers complete─► BODY ─complete─► IDLE        (the phase)
    answering    the pipeline's business
    ending       answer with `connection: close` ─► lingering (what still comes is thrown away) ─► closed

Leaving: FIN, RST and half-close each mean that the caller waits for nothing any more. Reading goes on while requests run, to see it.
"""

import asyncio
from time import monotonic
from typing import cast

import httptools

from fornada.core.errors import BadRequest, FornadaError, InternalFault, TooSlow, Unavailable
from fornada.edge.calls import Target
from fornada.edge.headers import SMALL_BODY, Facts
from fornada.edge.server.asgi import ColdExchange
from fornada.edge.server.bodies import DRAIN_BYTES, LINGER_BYTES, LINGER_S, SMALL_PIECE, too_large
from fornada.edge.server.conversation import conversation
from fornada.edge.server.exchange import HotExchange
from fornada.edge.server.head import USUAL_URL, facts_of, headers_too_large
from fornada.edge.server.lines import CONTINUE
from fornada.edge.server.overseen import Exchange, Overseen
from fornada.edge.server.phase import Phase
from fornada.edge.server.pipeline import Pipeline
from fornada.edge.server.replay import with_ascii_target, without_upgrade
from fornada.edge.server.shared import Shared
from fornada.edge.server.unwrapped import PREFIX
from fornada.edge.targets import origin_form

_SLASH, _IDLE, _HEAD, _BODY = ord("/"), Phase.IDLE, Phase.HEAD, Phase.BODY


class Connection(Overseen):
    """See the module's docstring."""

    __slots__ = (
        "_again_facts",
        "_again_keep",
        "_again_target",
        "_again_url",
        "_complete",
        "_deferred",
        "_facts",
        "_fields",
        "_fresh",
        "_head_size",
        "_headers",
        "_incoming",
        "_last",
        "_limit",
        "_lingering",
        "_most",
        "_parser",
        "_phase",
        "_pipeline",
        "_seen_headers",
        "_since",
        "_thrown",
        "_told",
        "_transport",
        "_trappings",
        "_url",
        "_wish",
        "shared",
    )

    def __init__(self, shared: Shared, *, fresh: bool = True) -> None:
        """Not `fresh`: another control plane has served it before."""
        self.shared = shared
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._pipeline = Pipeline(on_close=self._close, on_idle=self._rest)
        self._phase = _IDLE
        self._since = shared.now
        self._fresh = fresh
        """No request has been received yet."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._fields: list[tuple[bytes, bytes]] | None = None
        self._facts: Facts | None = None
        """What `_fields` say; most often also what the next request's headers say."""
        self._again_url: bytes | None = None
        """Target of the last request where it was of a hot route and in nothing special; with it go the next three."""
        self._again_facts: Facts
        self._again_target: Target
        self._again_keep = True
        self._seen_headers = self._headers
        """As of the last tick."""
        self._head_size = 0
        """Bytes received of headers that aren't complete."""
        self._complete = False
        """A request was completed by the bytes that are being parsed."""
        self._trappings = 0
        """Bytes received since the last piece of a body: chunk extensions and trailers. -1: a piece has just come."""
        self._deferred: FornadaError | None = None
        """What came after the requests that are still running was no request; told after their answers."""
        self._incoming: Exchange | None = None
        self._limit = self._most = 0
        """Bytes of the body that are let through without another look, and in all."""
        self._thrown = 0
        self._wish: Facts | None = None
        """Of the last request that wished for another protocol."""
        self._told = False
        """The request that is being received has its answer already."""
        self._last = False
        """No further request is taken."""
        self._lingering = False

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._pipeline.open(self._transport)
        connections = self.shared.connections
        connections.add(self)
        if len(connections) > self.shared.settings.max_connections:
            self._last = True
            self._refuse_all(Unavailable("too many connections", retry_after_s=1))
        elif self.shared.departing and not self.shared.ending:
            self.hold()

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            self._throw_away(len(data))
            return
        phase = self._phase
        self._complete = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserInvalidURLError:
            self._mend_target(data, phase)
        except httptools.HttpParserCallbackError as error:
            self._break_down(error)
        except httptools.HttpParserError as error:
            self._malformed(str(error))
        if self._phase:
            self._bound_the_rest(len(data), phase)

    def eof_received(self) -> bool:
        self._leave()
        return False  # the transport sends what it holds and closes

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._transport = None
        self.shared.connections.discard(self)

    def pause_writing(self) -> None:
        self._pipeline.pause()

    def resume_writing(self) -> None:
        self._pipeline.resume()

    # -- the parser's side

    def on_message_begin(self) -> None:
        self._phase = _HEAD
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._phase = _BODY
        if self._last:
            return
        shared = self.shared
        parser = self._parser
        if shared.mark[0] != shared.seen:
            shared.look_at_keys()
        if self._url == self._again_url and self._headers == self._fields and shared.open:
            # The head of the request before, byte for byte: everything that follows from it is known.
            if parser.get_method() == b"POST" and parser.get_http_version() == "1.1":
                trace_id = shared.trace()
                self._incoming = HotExchange(shared, self._pipeline, self._again_facts, self._again_target, trace_id, self._again_keep)
                self._limit = SMALL_BODY
                return
        self._fresh = False
        self._again_url = None
        self._begin(self._url, self._headers, old=parser.get_http_version() != "1.1")

    def on_body(self, data: bytes) -> None:
        self._trappings = -1
        exchange = self._incoming
        if exchange is None:
            self._throw_away(len(data))
            return
        exchange.size += len(data)
        if exchange.size > self._limit and (refusal := self._beyond(exchange)) is not None:
            self._refuse_early(exchange, refusal)
        else:
            chunks = exchange.chunks
            # One object for each of very small chunks would take many times the bytes that they count for.
            if len(data) < SMALL_PIECE and chunks and len(chunks[-1]) < SMALL_PIECE:
                chunks[-1] += data
            else:
                chunks.append(data)

    def on_message_complete(self) -> None:
        self._phase = _IDLE
        self._complete = True
        exchange = self._incoming
        if exchange is not None:
            self._incoming = None
            pipeline = self._pipeline
            if pipeline.running or pipeline.parked or pipeline.paused:
                pipeline.take(exchange)
            else:
                pipeline.running.append(exchange)
                exchange.start()
        else:
            self._told = False

    # -- the clock and the keys

    def forget(self) -> None:
        """Keys have changed: who comes next is looked at again, and who follows something and may no longer is cut off."""
        self._fields = self._again_url = None
        if self.follows and self.shared.expelled(cast(ColdExchange, self._pipeline.running[0])):
            self.abort()

    def look_at_the_clock(self) -> None:
        """Called every tick: ends what takes too long."""
        now = self.shared.now
        settings = self.shared.settings
        if self._headers is not self._seen_headers:  # each request has a list of its own: there was one since the last tick
            self._seen_headers = self._headers
            if self._phase is not _HEAD:
                self._since = now
        waited = now - self._since
        if self._pipeline.stalled(now):
            self.abort()
        elif self._lingering:
            if waited > LINGER_S:
                self.abort()
        elif not self._pipeline.reading:
            self._since = now  # it is we who don't listen
        elif self._phase is _HEAD or (self._fresh and not self._last):
            if waited > settings.header_timeout_s:
                self._refuse_all(TooSlow(f"the request's headers were not complete within {settings.header_timeout_s:g} s"))
        elif self._phase is _BODY:
            if waited > settings.body_timeout_s:
                self._refuse_all(TooSlow(f"no byte of the body came for {settings.body_timeout_s:g} s"))
        elif not self._pipeline.empty:
            self._since = now
        elif waited > settings.idle_timeout_s and self._transport is not None:
            self._transport.close()

    # -- a request's head

    def _begin(self, url: bytes, fields: list[tuple[bytes, bytes]], *, old: bool) -> None:
        """What the head says becomes an exchange that takes the body, or a refusal. `old`: not HTTP/1.1."""
        facts = self._facts
        if facts is None or fields != self._fields or old or url[0] != _SLASH or len(url) > USUAL_URL or url.startswith(PREFIX):
            found = facts_of(url, fields, self.shared, version=self._parser.get_http_version())
            if isinstance(found, FornadaError):
                self._refuse_all(found)
                return
            facts = found
            usual = url[:1] == b"/" and not old and facts.target is None
            self._fields, self._facts = (fields, facts) if usual else (None, None)
            url = facts.target or url
        if facts.chunked:
            self._headers = []  # trailers, which nobody reads
        parser = self._parser
        if parser.get_method() == b"CONNECT":  # the parser would stop behind each of them, whatever else its head says
            self._refuse_all(BadRequest("this is no proxy: CONNECT is refused"))
            return
        if facts.upgrade and parser.should_upgrade():
            self._wish = facts
            return  # the parser stops behind this head, and says so
        shared = self.shared
        keep_alive = parser.should_keep_alive()
        method = parser.get_method()
        target = shared.target(url, facts) if method == b"POST" else None
        exchange: Exchange
        if target is None:
            exchange = ColdExchange(shared, self._pipeline, facts, method, url, shared.trace(), keep_alive, old)
            refusal = facts.refusal or shared.barred(facts.caller, exchange)
        else:
            exchange = HotExchange(shared, self._pipeline, facts, target, shared.trace(), keep_alive, old=old)
            refusal = facts.refusal or shared.barred(facts.caller, exchange) or target.error
            if facts.plain and refusal is None and facts is self._facts and len(url) <= USUAL_URL:
                self._again_url, self._again_facts, self._again_target, self._again_keep = url, facts, target, keep_alive
        if not shared.open:
            refusal = refusal or shared.refusal(method, origin_form(url))
        elif shared.departing and exchange.changing:
            refusal = refusal or Unavailable("the node is being upgraded", retry_after_s=1)
        self._incoming = exchange
        refusal = refusal or self._bound(exchange)
        if refusal is not None:
            # After a refusal instead of `100 Continue` nobody knows whether the body comes: only closing keeps the two in step.
            exchange.keep_alive = keep_alive and not facts.expect_continue and not facts.ambiguous
            self._refuse_early(exchange, refusal)
        elif facts.expect_continue and self._pipeline.empty and self._transport is not None:
            self._transport.write(CONTINUE)

    def _bound(self, exchange: Exchange) -> FornadaError | None:
        """Sets the limits of the body; a refusal where it is known to be too large, or the model to be none."""
        self._limit = SMALL_BODY
        facts = exchange.facts
        if not facts.chunked and (facts.content_length or 0) <= SMALL_BODY:
            return None
        try:
            self._most = exchange.limit()
        except FornadaError as error:
            return error
        if (facts.content_length or 0) > self._most:
            return too_large(self._most)
        self._limit = min(SMALL_BODY, self._most)
        return self.shared.bodies.refusal()

    def _beyond(self, exchange: Exchange) -> FornadaError | None:
        """More came than was let through so far: lets more through, within the body's bound and the room of all bodies together."""
        if exchange.size > self._most:
            return too_large(self._most)
        if exchange.room is None:
            exchange.room = self.shared.bodies.hold()
        most = self._most if exchange.facts.chunked else exchange.facts.content_length or self._most
        refusal = exchange.room.grow(exchange.size, most=most)
        self._limit = exchange.room.bytes
        return refusal

    # -- refusals

    def _refuse_early(self, exchange: Exchange, refusal: FornadaError) -> None:
        """Answers before the body has come. The rest of it is thrown away, so that the connection stays usable."""
        exchange.early = refusal
        exchange.chunks = []
        exchange.room = None
        if (exchange.facts.content_length or 0) - exchange.size > DRAIN_BYTES:
            exchange.keep_alive = False
        if not exchange.keep_alive:
            self._last = True
        self._incoming = None
        self._told = True
        self._thrown = 0
        self._pipeline.take(exchange)

    def _refuse_all(self, refusal: FornadaError) -> None:
        """Answers something that is no whole request, and ends the connection."""
        transport = self._transport
        self._incoming = None
        self._last = True
        if transport is None or self._lingering:
            return
        if not self._pipeline.empty:
            self._deferred = refusal
            self._pipeline.ending = True
            return
        if self._told:
            self._linger()
            return
        transport.write(self.shared.refused(refusal, self._url))
        self._linger()

    def _malformed(self, reason: str) -> None:
        if self._last or self._lingering:
            return  # bytes after the last request of a connection that closes
        self._refuse_all(BadRequest(f"the request can't be read: {reason[:200]}"))

    def _break_down(self, error: BaseException) -> None:
        cause = error.__context__ or error
        self.shared.observer.failed(where="connection", request_id="", error=cause)
        if self._pipeline.break_down():
            self.abort()
        else:
            self._refuse_all(InternalFault("the server failed; its log says more"))

    def _upgrade(self, rest: bytes) -> None:
        """A WebSocket, where a route has them. Else the request counts without its wish (RFC 9110, 7.8): some clients wish it every time."""
        if self._incoming is not None or self._last:
            return
        transport, facts = self._transport, self._wish
        if transport is not None and facts is not None and self._pipeline.empty:
            talk = conversation(self.shared, transport, facts, self._parser.get_method(), self._url)
            if talk is not None:
                self._phase = _IDLE
                self._last = True
                self.shared.connections.discard(self)
                talk.start(self._parser.get_method(), rest)
                return
        head = without_upgrade(self._parser.get_method(), self._url, self._headers)
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)

    def _mend_target(self, data: bytes, phase: Phase) -> None:
        """curl sends a path in unicode as it was typed. Only where the request begins with `data`."""
        mended = with_ascii_target(data) if phase is _IDLE and not self._complete else None
        if mended is None:
            self._malformed("invalid character in the request's target")
            return
        self._parser = httptools.HttpRequestParser(self)
        self._phase = _IDLE
        self.data_received(mended)

    def _bound_the_rest(self, size: int, before: Phase) -> None:
        """The request isn't complete: bounds what comes beside its body, and notes that something came."""
        limit = self.shared.settings.header_bytes
        if before is _IDLE or self._complete:  # it has begun in these bytes
            self._since = self.shared.now
            self._head_size = 0
        if self._phase is _HEAD:
            # Where another request ended in the same bytes nobody knows how many of them are this head's: the next ones count.
            self._head_size += 0 if self._complete else size
            if self._head_size > limit:
                self._refuse_all(headers_too_large(limit))
            return
        self._since = self.shared.now
        if self._trappings < 0 or before is not _BODY:
            self._trappings = 0
        else:
            self._trappings += size
            if self._trappings > limit:
                self._refuse_all(headers_too_large(limit))

    # -- resting, leaving, ending

    def _rest(self) -> None:
        """Nothing is left to answer, and something else is to be told."""
        if self._deferred is not None:
            self._refuse_all(self._deferred)
        elif self.rests:
            self._pipeline.read_no_further()

    def _leave(self) -> None:
        self._pipeline.leave()
        self._incoming = None
        self._last = True

    def _throw_away(self, size: int) -> None:
        self._thrown += size
        if self._thrown > (LINGER_BYTES if self._lingering else DRAIN_BYTES):
            self.abort()

    def _close(self) -> None:
        """An answer that ends the connection was written."""
        self._last = True
        self._pipeline.leave()
        if self._phase is not _IDLE:
            self._linger()
        elif self._transport is not None:
            self._transport.close()

    def _linger(self) -> None:
        self._last = True
        self._lingering = True
        self._incoming = None
        self._thrown = 0
        self._since = monotonic()
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self._pipeline.read_anyway()
            if transport.can_write_eof():
                transport.write_eof()
