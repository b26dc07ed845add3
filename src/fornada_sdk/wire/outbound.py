"""How a model reaches the hosts that its version names: each connection is asked for, decided and carried outside of its process.

    runner         makes a pair of stream sockets, keeps one, sends {"host", "port"} with the other over the outbound channel
    control plane  answers with one line of JSON on the stream: {} or {"outcome", "message"}; after {} come the connection's bytes

The outbound channel is a SEQPACKET pair that the keeper makes with the runner; one packet is one wish. Its far end is given to
every control plane, and a stream ends with the control plane that answers it. Nothing is ever sent to the runner on the channel
itself, and no descriptor ever goes into the runner: a TCP socket in its hands could be connected anew, to anywhere.
"""

import enum
import json
import socket
from typing import NamedTuple, Union

CONNECT_MOST = 1024
"""Bytes of a wish."""
ANSWER_MOST = 1024
"""Bytes of an answer, its newline included."""
BUFFER_BYTES = 65536
"""What one direction of a connection may hold that its reader hasn't taken."""


class Outcome(enum.Enum):
    """What became of a wish."""

    MADE = ""
    REFUSED = "refused"
    """Not to be reached by this model; asking again changes nothing."""
    FAILED = "failed"
    """It may be reached, and can't be."""
    BUSY = "busy"
    """Too much is under way."""


class Answer(NamedTuple):
    """`message` is one line for the model, empty where the connection was made."""

    outcome: Outcome
    message: str = ""


def connect_packet(host: str, port: int) -> bytes:
    """A wish. Raises ValueError for a host that is too long or can't be written."""
    packet = json.dumps({"host": host, "port": port}, separators=(",", ":")).encode()
    if len(packet) > CONNECT_MOST:
        raise ValueError(f"a host of {len(host)} characters")
    return packet


def read_connect(packet: bytes) -> "tuple[str, int]":
    """(host, port) as they were wished, unchecked. Raises ValueError."""
    if len(packet) > CONNECT_MOST:
        raise ValueError(f"more than {CONNECT_MOST} bytes")
    try:
        wish = json.loads(packet)
    except RecursionError:
        raise ValueError("brackets without end") from None
    if not isinstance(wish, dict):
        raise ValueError("no JSON object")
    host, port = wish.get("host"), wish.get("port")
    if not isinstance(host, str) or not isinstance(port, int) or isinstance(port, bool):
        raise ValueError("no host and port")
    return host, port


def answer_line(answer: Answer) -> bytes:
    """With the newline. A message that is too long is cut."""
    if answer.outcome is Outcome.MADE:
        return b"{}\n"
    message = " ".join(answer.message.split())
    while True:
        line = json.dumps({"outcome": answer.outcome.value, "message": message}).encode() + b"\n"
        if len(line) <= ANSWER_MOST:
            return line
        message = message[: len(message) * 3 // 4]


def read_answer(line: bytes) -> Answer:
    """Raises ValueError."""
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("an answer that is no JSON object")
    message = fields.get("message", "")
    if not isinstance(message, str):
        raise ValueError("an answer whose message is no text")
    return Answer(Outcome(fields.get("outcome", "")), message)


class Flow:
    """One direction of a connection: what `source` gives goes to `sink`, through a buffer with a bound. Never waits.

    Its owner calls `read` when the source may have something and `write` when the sink may take something, as far as they are
    wanted. The end of the source is passed on once everything before it has been.
    """

    def __init__(self, source: socket.socket, sink: socket.socket, *, begun: bytes = b"") -> None:
        """`begun` is what has already come from the source."""
        self.source = source
        self.sink = sink
        self.passed = 0
        """Bytes that the sink has taken."""
        self.over = False
        """The source has ended, and the sink has been told."""
        self._held: Union[memoryview, bytes] = begun
        self._ended = False

    @property
    def wants_read(self) -> bool:
        return not self._ended and not self._held

    @property
    def wants_write(self) -> bool:
        return bool(self._held)

    def read(self) -> bool:
        """Takes what is there, and passes it on as far as it goes; whether there was anything, an end being something. Raises OSError."""
        try:
            # Whoever holds the other copy of a socket that was passed may make it wait: the flag is for this call alone.
            data = self.source.recv(BUFFER_BYTES, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionResetError:
            data = b""  # it died with something of ours unread; what it had sent before has come already
        if data:
            self._held = memoryview(data)
        else:
            self._ended = True
        self.write()
        return True

    def write(self) -> bool:
        """Passes on what is held, as far as the sink takes it; whether it took anything. Raises OSError."""
        taken = 0
        while self._held:
            try:
                count = self.sink.send(self._held, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                break
            self._held = self._held[count:]
            taken += count
        self.passed += taken
        if self._ended and not self._held and not self.over:
            self.over = True
            try:
                self.sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has gone, which the other direction tells
        return bool(taken)
