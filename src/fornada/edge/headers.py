"""Request headers, read once.

A connection sends the same headers again and again. `Facts` holds everything that follows from them, so that a request whose
headers are byte for byte those of the one before costs one comparison of lists.
"""

import re
from collections.abc import Sequence

import msgspec

from fornada.core.errors import BadRequest, FornadaError
from fornada.core.requests import Priority
from fornada.edge.auth import ANYBODY, Authenticator, Caller, Credentials
from fornada.edge.ids import echoable

LONGEST_TIMEOUT_MS = 24 * 3600 * 1000
LONGEST_AFFINITY = 256
PRIORITIES = {b"high": Priority.HIGH, b"normal": Priority.NORMAL, b"low": Priority.LOW}
SMALL_BODY = 16 * 1024
"""Bodies up to here are read without asking the route for its limit first; the route checks it afterwards."""
# Not for model code: what speaks of the connection, and whatever may hold a secret.
_HOP = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        "x-request-id",
        "x-priority",
        "x-timeout-ms",
    )
)
_SECRET = re.compile(r"auth|cookie|token|secret|password|passwd|credential|api-?key|session-key|signature|\Ax-api|user-service-key|jwt")
_KEYS = ("x-api-key", "x-auth-key", "x-auth-user-service-key")
"""Headers that a key comes in where there is no Authorization: Anthropic's, and Cloudflare's older ones."""
_BEARERS = ("cf-aig-authorization", "authorization")
"""Behind a gateway `authorization` may be some provider's; what is meant for the gateway stands beside it."""
CREDENTIALS = frozenset(name.encode() for name in (*_BEARERS, *_KEYS, "x-auth-email"))
"""All headers that say who asks."""
_CORS_METHODS = b"GET, POST, PUT, PATCH, DELETE, OPTIONS"
_EXPOSED = (
    b"cf-ai-req-id, x-request-id, retry-after, x-should-retry, content-type, "
    b"cf-aig-cache-status, cf-aig-log-id, cf-aig-step, cf-aig-request-id, cf-aig-event-id"
)


class Facts:
    """What a request's headers say. `refusal` is set where they say something that can't be."""

    __slots__ = (
        "affinity",
        "ambiguous",
        "caller",
        "chunked",
        "content_length",
        "content_type",
        "cors",
        "expect_continue",
        "fields",
        "forwarded",
        "media_type",
        "plain",
        "preflight",
        "priority",
        "refusal",
        "request_id",
        "target",
        "through",
        "timeout_s",
        "token",
        "upgrade",
    )

    def __init__(self, fields: Sequence[tuple[bytes, bytes]]) -> None:
        self.fields = fields
        self.refusal: FornadaError | None = None
        self.caller: Caller = ANYBODY
        self.token = False
        """It came with a token or a key, whether or not the node asks for one."""
        self.content_type = ""
        self.media_type = ""
        """`content_type` without parameters, in lower case."""
        self.content_length: int | None = None
        self.chunked = False
        self.ambiguous = False
        """Others may see the body end elsewhere: the connection can't be used any further."""
        self.upgrade = False
        self.expect_continue = False
        self.request_id: str | None = None
        self.priority = Priority.NORMAL
        self.timeout_s: float | None = None
        self.affinity: str | None = None
        self.through: str | None = None
        """The AI gateway that the request is to go through."""
        self.cors = b""
        """Response header lines that let a page read the answer."""
        self.preflight = False
        self.plain = False
        """Nothing about it is special: no refusal, no chunks, no expectation, a small body or none."""
        self.target: bytes | None = None
        """Where the request goes, if its first line says something else (edge.server.unwrapped)."""
        self.forwarded = "{}"
        """JSON object of the headers that model code may see."""

    def get(self, name: bytes) -> bytes | None:
        """The first value of a header; `name` in lower case."""
        return next((value for key, value in self.fields if key.lower() == name), None)


def read_facts(fields: Sequence[tuple[bytes, bytes]], authenticator: Authenticator, *, old: bool = False) -> Facts:
    """Facts of the header fields as they came. `old`: an HTTP/1.0 request, which may lack a Host."""
    facts = Facts(fields)
    named: dict[str, bytes] = {}
    for key, value in fields:
        name = key.decode("ascii").lower()
        if name in named:
            if name in ("host", "origin", "content-type", "authorization", "cf-aig-authorization"):
                facts.refusal = BadRequest(f"the header {name} came twice")
            value = named[name] + b", " + value
        named[name] = value
    try:
        _read(facts, named, authenticator, old=old)
    except FornadaError as refusal:
        facts.refusal = facts.refusal or refusal
    special = facts.refusal or facts.chunked or facts.upgrade or facts.expect_continue
    facts.plain = not special and (facts.content_length or 0) <= SMALL_BODY
    return facts


def _read(facts: Facts, named: dict[str, bytes], authenticator: Authenticator, *, old: bool) -> None:
    # What frames the body comes first: it must be known also of a request that is refused.
    if "content-length" in named:
        facts.content_length = int(named["content-length"])
    if "transfer-encoding" in named:
        if named["transfer-encoding"].strip().lower() != b"chunked" or old:
            facts.ambiguous = True
            raise BadRequest("Transfer-Encoding: only chunked is understood, and not in HTTP/1.0")
        facts.chunked = True
    facts.upgrade = "upgrade" in named
    facts.expect_continue = named.get("expect", b"").strip().lower() == b"100-continue" and not old
    facts.request_id = echoable(named.get("x-request-id", b""))
    facts.content_type = _text(named.get("content-type", b""))
    facts.media_type = facts.content_type.partition(";")[0].strip().lower()
    origin = _text(named["origin"]) if "origin" in named else None
    if "host" not in named and not old:
        raise BadRequest("an HTTP/1.1 request needs a Host")
    host = _text(named["host"]) if "host" in named else None
    token = _token(named)
    facts.token = token is not None
    facts.caller = authenticator.admit(Credentials(host, origin, token))
    if origin is not None and authenticator.allows_origin(origin):
        facts.preflight = "access-control-request-method" in named
        facts.cors = _cors(origin, named) if facts.preflight else _readable(origin)
    facts.timeout_s = _timeout_s(named.get("x-timeout-ms"))
    facts.priority = _priority(named.get("x-priority"))
    if "cf-aig-gateway-id" in named:
        facts.through = _text(named["cf-aig-gateway-id"])
    affinity = _text(named.get("x-session-affinity", b""))
    facts.affinity = affinity[:LONGEST_AFFINITY] or None
    shown = {name: _text(value) for name, value in named.items() if name not in _HOP and not _SECRET.search(name)}
    facts.forwarded = msgspec.json.encode(shown).decode()


def _timeout_s(value: bytes | None) -> float | None:
    if value is None:
        return None
    text = value.strip()
    if re.fullmatch(rb"\d{1,12}(\.\d{1,6})?", text):
        milliseconds = float(text)
        if 0 < milliseconds <= LONGEST_TIMEOUT_MS:
            return milliseconds / 1000
    raise BadRequest(f"x-timeout-ms must be a number of milliseconds above 0, at most {LONGEST_TIMEOUT_MS}")


def _priority(value: bytes | None) -> Priority:
    if value is None:
        return Priority.NORMAL
    known = PRIORITIES.get(value.strip().lower())
    if known is None:
        raise BadRequest(f"x-priority must be {', '.join(name.decode() for name in PRIORITIES)}")
    return known


def _token(named: dict[str, bytes]) -> str | None:
    for name in _BEARERS:
        scheme, _, rest = _text(named.get(name, b"")).partition(" ")
        if scheme.lower() == "bearer" and rest.strip():
            return rest.strip()
    return next((_text(named[name]) for name in _KEYS if named.get(name)), None)


def _readable(origin: str) -> bytes:
    return b"access-control-allow-origin: %b\r\nvary: origin\r\naccess-control-expose-headers: %b\r\n" % (
        origin.encode("latin-1"),
        _EXPOSED,
    )


def _cors(origin: str, named: dict[str, bytes]) -> bytes:
    asked = named.get("access-control-request-headers", b"")
    allowed = asked if re.fullmatch(rb"[A-Za-z0-9\-_, ]{0,1024}", asked) else b""
    # A page of a public site that asks for a private address needs the second consent, else Chrome drops the request.
    private = b"access-control-allow-private-network: true\r\n" if "access-control-request-private-network" in named else b""
    return (
        b"access-control-allow-origin: %b\r\nvary: origin\r\naccess-control-allow-methods: %b\r\n"
        b"access-control-allow-headers: %b\r\naccess-control-max-age: 600\r\n%b"
        % (origin.encode("latin-1"), _CORS_METHODS, allowed, private)
    )


def _text(value: bytes) -> str:
    # Header values are octets; latin-1 keeps each of them and can't fail.
    return value.decode("latin-1")
