"""Response heads as bytes: what is the same for many answers is made once."""

from email.utils import formatdate

from fornada.edge import problems
from fornada.edge.calls import JSON_TYPE
from fornada.edge.problems import Header

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE = b"connection: close\r\n"
KEEP_OLD = b"connection: keep-alive\r\n"
"""HTTP/1.0 clients go on only when told so."""
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


OK = 200


class StatusLines:
    """Status line and date, kept for as long as they stay true: a second."""

    def __init__(self) -> None:
        self._kept: dict[int, bytes] = {}
        self._second = -1
        self._date = b""
        self.ok_json = b""
        """Of the usual answer: 200, and JSON."""

    def turn(self, wall: float) -> None:
        """Tells the time, in seconds since 1970."""
        if int(wall) != self._second:
            self._second = int(wall)
            self._date = formatdate(wall, usegmt=True).encode()
            self._kept.clear()
            self.ok_json = self.of(OK) + JSON_TYPE

    def of(self, status: int) -> bytes:
        line = self._kept.get(status)
        if line is None:
            line = b"HTTP/1.1 %d %b\r\ndate: %b\r\n" % (status, problems.phrase(status).encode(), self._date)
            self._kept[status] = line
        return line


def header_lines(headers: tuple[Header, ...]) -> bytes:
    """Header lines of pairs. Names and values are ours, or were checked: a line break would let a model write answers of its own."""
    return b"".join(b"%b: %b\r\n" % pair for pair in headers)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; `data` must not be empty, since an empty chunk ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def id_lines(trace_id: str) -> bytes:
    """Of an answer to something that had no id of its own."""
    trace = trace_id.encode()
    return b"cf-ai-req-id: %b\r\nx-request-id: %b\r\n" % (trace, trace)
