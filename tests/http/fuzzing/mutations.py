"""Seeded changes of a request: of its JSON, its bytes, its headers, its target."""

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 2**31, 2**63, -(2**63) - 1, 10**40, 1e308, 5e-324, "", " ", "x" * 5000, "\x00", "\ud800", "💥" * 50,
    "../../etc/passwd", "%00%2f", "'; DROP TABLE jobs; --", "{{7*7}}", "${HOME}", "<script>", "NaN", "null", "true", "0", "-1", [], {}, [[]], [None],
    [0] * 300, {"": ""}, {"a": {"b": {"c": []}}}, "data:image/png;base64,", "data:;base64,!!", "http://127.0.0.1/", "file:///etc/passwd",
    "1970-01-01T00:00:00Z", "@fuzz/none:latest", "a" * 300 + "/b",
)  # fmt: skip
NAMES = (
    "",
    "model",
    "input",
    "stream",
    "messages",
    "prompt",
    "text",
    "options",
    "__proto__",
    "a" * 300,
    "\x00",
    "ü",
    "tools",
    "requests",
    "n",
    "id",
)
HEADERS: tuple[tuple[str, str], ...] = (
    ("content-type", ""), ("content-type", "application/json; charset=utf-16"), ("content-type", "text/plain;charset=UTF-8"),
    ("content-type", "multipart/form-data"), ("content-type", "multipart/form-data; boundary=" + "x" * 300), ("content-type", "a/b; " * 50),
    ("content-encoding", "gzip"), ("content-encoding", "identity"), ("accept", "text/event-stream"), ("accept-encoding", "br, gzip"),
    ("x-request-id", "\u00e9" * 20), ("x-request-id", "y" * 400), ("x-timeout-ms", "-5"), ("x-timeout-ms", "1e9"), ("x-timeout-ms", "abc"),
    ("x-timeout-ms", "1"), ("x-priority", "999999999999"), ("x-priority", "z"), ("authorization", "Bearer"), ("authorization", "Basic Og=="),
    ("authorization", "Bearer " + "k" * 3000), ("x-auth-email", "a@b"), ("x-auth-key", "\t"), ("idempotency-key", "i" * 5000), ("range", "bytes=0-0"),
    ("if-none-match", "*"), ("expect", "100-continue"), ("cf-aig-gateway-id", "../x"), ("cf-aig-cache-ttl", "-1"), ("cf-aig-metadata", "{"),
    ("inference-header-content-length", "7"), ("inference-header-content-length", "99999999999999"), ("anthropic-version", "x"), ("cookie", "a=b"),
    ("forwarded", "for=1.2.3.4"), ("x-forwarded-host", "evil.example"), ("x-stainless-lang", "python"), ("content-length-x", "1"),
)  # fmt: skip
QUERIES = ("queueRequest=true", "queueRequest", "stream=1", "limit=-1", "limit=1e3", "page=0", "page=99999999999999999999", "per_page=x", "after=%00",
           "a=%ff", "a&b&&c==", "tags=" + "x" * 80, "grace=-1", "grace=nan", "label=x", "follow=2", "task=%2e%2e", "model=", "version=3")  # fmt: skip


@dataclass(frozen=True)
class Request:
    """One request, not yet bytes: `value` is its JSON body where it has one, else `data`."""

    operation: str
    """Method and pattern: which line of the description it began as."""
    method: str
    path: str
    """Percent-encoded."""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    value: Any = None
    """The body as JSON; None: `data` is the body."""
    data: bytes | None = None
    intact: bool = True
    """Only the JSON was changed, and the description of the operation tells what has to become of it."""

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def body(self) -> bytes | None:
        if self.value is None:
            return self.data
        return json.dumps(self.value, ensure_ascii=True).encode()


Change = Callable[[Request, random.Random], Request]


def mutated(request: Request, rng: random.Random) -> Request:
    """`request` with one to four changes, most of them in its JSON where it has one."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        changes: list[Change] = [_header, _query, _path, _method]
        weights = [2, 2, 1, 0.3]
        if request.value is not None:
            changes += [_json, _json_to_bytes]
            weights += [14, 2]
        elif request.data:
            changes += [_bytes]
            weights += [8]
        request = rng.choices(changes, weights)[0](request, rng)
    return request


def _json(request: Request, rng: random.Random) -> Request:
    holder = [copy.deepcopy(request.value)]
    parent, key = rng.choice(list(_places(holder)))
    kind = rng.randrange(7)
    if kind == 0 and parent is not holder:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[rng.choice(NAMES)] = parent.pop(key)
    elif kind == 2 and isinstance(parent[key], dict):
        parent[key][rng.choice(NAMES)] = rng.choice(ODD)
    elif kind == 3 and isinstance(parent[key], list):
        parent[key] = (parent[key] or [0]) * rng.choice((2, 7, 120))
    elif kind == 4:
        nested: Any = parent[key]
        for _ in range(rng.choice((1, 3, 40))):
            nested = [nested] if rng.random() < 0.5 else {"x": nested}
        parent[key] = nested
    elif kind == 5 and isinstance(parent[key], str):
        at = rng.randrange(len(parent[key]) + 1)
        parent[key] = parent[key][:at] + rng.choice([str(odd) for odd in ODD]) + parent[key][at:]
    else:
        parent[key] = copy.deepcopy(rng.choice(ODD))
    value = holder[0] if holder else {}
    if value is None:
        return replace(request, value=None, data=b"null", intact=False)
    return replace(request, value=value)


def _places(value: Any) -> Any:
    for key, item in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        yield value, key
        if isinstance(item, dict | list):
            yield from _places(item)


def _json_to_bytes(request: Request, rng: random.Random) -> Request:
    body = request.body or b""
    return _bytes(replace(request, value=None, data=body, intact=False), rng)


def _bytes(request: Request, rng: random.Random) -> Request:
    body = bytearray(request.data or b"")
    for _ in range(rng.choice((1, 2, 8))):
        at = rng.randrange(len(body) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            del body[at : at + rng.choice((1, 10, 1000))]
        elif kind == 1:
            body[at:at] = rng.randbytes(rng.choice((1, 4, 64)))
        elif kind == 2 and body:
            body[at % len(body)] ^= 1 << rng.randrange(8)
        elif kind == 3:
            body[at:at] = rng.choice(
                (b"NaN", b"\xef\xbb\xbf", b"\xff\xfe", b"[" * 3000, b'{"a":' * 500, b"\x00", b"1" * 400, b'"\\ud800"', b",", b"//")
            )
        elif kind == 4:
            body = body[:at]
        else:
            body[at:at] = body[: rng.randrange(200)]
    return replace(request, data=bytes(body), intact=False)


def _header(request: Request, rng: random.Random) -> Request:
    name, value = rng.choice(HEADERS)
    return replace(request, headers={**request.headers, name: value}, intact=False)


def _query(request: Request, rng: random.Random) -> Request:
    more = rng.choice(QUERIES)
    return replace(request, query=f"{request.query}&{more}" if request.query else more, intact=False)


def _path(request: Request, rng: random.Random) -> Request:
    parts = request.path.split("/")
    at = rng.randrange(1, len(parts)) if len(parts) > 1 else 0
    kind = rng.randrange(5)
    if kind == 0:
        parts[at] = quote(rng.choice([str(odd) for odd in ODD if not isinstance(odd, str) or "\ud800" not in odd])[:400], safe="")
    elif kind == 1:
        parts.insert(at, rng.choice(("", ".", "..", "%2e%2e", "%2F", "%00", "%zz", "x" * 300)))
    elif kind == 2:
        parts = parts[: at + 1]
    elif kind == 3:
        parts[at] = parts[at].upper()
    else:
        parts[at] = parts[at].replace("/", "%2F").replace("@", "%40") + rng.choice(("/", "%2F", ":x", "%20", ";a=b"))
    return replace(request, path="/".join(parts) or "/", intact=False)


def _method(request: Request, rng: random.Random) -> Request:
    return replace(request, method=rng.choice(("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "FUZZ")), intact=False)
