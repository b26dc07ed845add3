"""Requests that the parser can't take as they came, written again so that it can."""

from collections.abc import Sequence

_UPGRADE = frozenset((b"upgrade", b"connection", b"http2-settings"))


def without_upgrade(method: bytes, url: bytes, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The head of an HTTP/1.1 request without its wish for another protocol. Its parts were checked by the parser."""
    kept = [b"%b: %b\r\n" % (name, value) for name, value in fields if name.lower() not in _UPGRADE]
    if any(name.lower() == b"connection" and b"close" in value.lower() for name, value in fields):
        kept.append(b"connection: close\r\n")
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, url, b"".join(kept))


def with_ascii_target(data: bytes) -> bytes | None:
    """`data`, which begins with a request line, with the bytes above 127 of its target percent-encoded. None: nothing to mend."""
    end = data.find(b"\r\n")
    line = data[:end]
    pieces = line.split(b" ")
    if end < 0 or len(pieces) != 3 or line.isascii():
        return None
    method, target, version = pieces
    if not (method.isascii() and version.isascii()):
        return None
    encoded = b"".join(b"%%%02X" % byte if byte > 127 else bytes((byte,)) for byte in target)
    return b"%b %b %b%b" % (method, encoded, version, data[end:])
