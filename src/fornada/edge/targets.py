"""Raw request targets: `/client/v4/accounts/A/ai/run/@cf%2Fx%2Fy?tags=a` → which door, whose account, what model.

Models' names hold slashes, sent as they are or as %2F: paths are split while they are raw and decoded piece by piece.
"""

from collections.abc import Collection, Sequence
from urllib.parse import parse_qsl, unquote_to_bytes

from fornada.core.errors import BadRequest
from fornada.edge.calls import Door, TalkDoor, Target

KEPT = 1024
"""Targets remembered; beyond it all are forgotten: a caller that invents paths must not fill the memory."""
LONGEST_KEPT = 512


class Targets:
    """Finds the target of a URL; knows those that were asked for before."""

    def __init__(self, doors: Sequence[Door | TalkDoor]) -> None:
        self._doors = doors
        self._known: dict[bytes, Target | None] = {}

    def find(self, url: bytes) -> Target | None:
        """The hot target, or None where the URL is another route's."""
        try:
            return self._known[url]
        except KeyError:
            pass
        path, _, query = origin_form(url).partition(b"?")
        target = next((found for door in self._doors if (found := door.match(path, query)) is not None), None)
        if len(url) <= LONGEST_KEPT:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[url] = target
        return target


def origin_form(url: bytes) -> bytes:
    """`/path?query` of a request target in origin or absolute form, without a fragment."""
    if not url.startswith(b"/"):
        scheme, mark, rest = url.partition(b"://")
        if mark and scheme.lower() in (b"http", b"https"):
            slash = rest.find(b"/")
            url = rest[slash:] if slash >= 0 else b"/"
    return url.partition(b"#")[0]


def authority_of(url: bytes) -> bytes | None:
    """The host of a request target in absolute form, which counts before the Host header (RFC 9112, 3.2.2)."""
    if url.startswith(b"/"):
        return None
    _, mark, rest = url.partition(b"://")
    return rest.partition(b"/")[0].partition(b"?")[0] if mark else None


def decoded(raw: bytes | str) -> str:
    """A percent-encoded piece of a path as text. Raises BadRequest for what is no UTF-8 or holds a control character."""
    try:
        text = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise BadRequest("the path holds bytes that are no UTF-8") from None
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise BadRequest("the path holds a control character")
    return text


def query_of(raw: bytes, *, once: Collection[str] = ()) -> dict[str, str]:
    """Parameters of a query; of one that came twice the last. Raises BadRequest where it is no UTF-8 or has too many, and where one of
    `once` came twice. Others may: clients repeat what a route doesn't read (`include[]`), and what it reads itself (`filters[key]`)."""
    if not raw:
        return {}
    try:
        pairs = parse_qsl(raw.decode("ascii", "strict"), keep_blank_values=True, errors="strict", max_num_fields=200)
    except ValueError:  # UnicodeDecodeError among them
        raise BadRequest("the query can't be read: it is no UTF-8, or has more than 200 parameters") from None
    found = dict(pairs)
    if len(found) < len(pairs):
        for name in once:
            if (count := sum(each == name for each, _ in pairs)) > 1:
                raise BadRequest(f"'{name}' comes {count} times in the query, and has one value")
    return found
