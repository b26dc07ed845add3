"""What the head of a request says, or why it is refused for its head alone."""

from fornada.core.errors import BadRequest, FornadaError, HeadersTooLarge
from fornada.core.resources import format_size
from fornada.edge.headers import Facts, read_facts
from fornada.edge.server.shared import Shared
from fornada.edge.server.unwrapped import is_wrapped, unwrap
from fornada.edge.targets import authority_of, origin_form

USUAL_URL = 1024
"""Bytes of a request's target up to which its length is no matter."""


def facts_of(url: bytes, fields: list[tuple[bytes, bytes]], shared: Shared, *, version: str) -> Facts | FornadaError:
    """`version` is the protocol's, as in "1.1"."""
    limit = shared.settings.header_bytes
    old = version != "1.1"
    if len(url) + sum(len(name) + len(value) + 4 for name, value in fields) > limit:
        return headers_too_large(limit)
    if old and version != "1.0":
        return BadRequest("only HTTP/1.1 and HTTP/1.0 are spoken here")
    if url[:1] == b"/":
        return _read(url, fields, shared, old=old)
    authority = authority_of(url)
    if authority is None and url != b"*":
        return BadRequest("the request's target must be a path or an http address")
    others = [pair for pair in fields if authority is None or pair[0].lower() != b"host"]
    return _read(origin_form(url), [(b"host", authority), *others] if authority is not None else others, shared, old=old)


def _read(path: bytes, fields: list[tuple[bytes, bytes]], shared: Shared, *, old: bool) -> Facts | FornadaError:
    if not is_wrapped(path, fields):
        return read_facts(fields, shared.authenticator, old=old)
    try:
        target, fields = unwrap(path, fields)
    except BadRequest as refusal:
        return refusal
    facts = read_facts(fields, shared.authenticator, old=old)
    facts.target = target
    return facts


def headers_too_large(limit: int) -> HeadersTooLarge:
    return HeadersTooLarge(f"request line and headers take more than {limit} bytes ({format_size(limit)})")
