"""What comes over an outbound channel, taken for what it is: anything at all.

The sender keeps a copy of the socket that it passes, and may change whatever belongs to the open file, such as whether it blocks.
So nothing here or later relies on the socket's own settings: each call says MSG_DONTWAIT for itself.
"""

import array
import os
import select
import socket
from typing import NamedTuple

from fornada_sdk.wire.outbound import CONNECT_MOST, read_connect


class Wish(NamedTuple):
    """`host` and `port` are unchecked; the stream belongs to whoever gets the wish."""

    host: str
    port: int
    stream: socket.socket


class BadWish(Exception):
    """One message that is none. The message is half a line."""

    def __init__(self, reason: str, stream: socket.socket | None = None) -> None:
        super().__init__(reason)
        self.stream = stream
        """Where an answer may go."""


class ChannelOver(Exception):
    """Nothing will come any more."""


def next_wish(channel: socket.socket) -> Wish | None:
    """The next one, None if there is none at present. Raises BadWish, after which there may be more, and ChannelOver."""
    try:
        # Room for one descriptor: the kernel closes all others before they cost us anything.
        packet, ancillary, flags, _ = channel.recvmsg(
            CONNECT_MOST, socket.CMSG_LEN(array.array("i").itemsize), socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        )
    except (BlockingIOError, InterruptedError):
        return None
    except OSError as error:
        raise ChannelOver(error.strerror or str(error)) from None
    stream, reason = _stream(ancillary)
    if not packet and not ancillary:
        if _hung_up(channel):
            raise ChannelOver("closed by the runner")
        raise BadWish("an empty message")
    if flags & socket.MSG_TRUNC:
        raise BadWish(f"a message of more than {CONNECT_MOST} bytes", stream)
    if stream is None:
        # None arrives, too, where this process may open no more files.
        raise BadWish(reason or "a message without a descriptor")
    if flags & socket.MSG_CTRUNC:
        raise BadWish("a message with several descriptors", stream)
    try:
        host, port = read_connect(packet)
    except ValueError as error:
        raise BadWish(f"a message that can't be read: {error}", stream) from None
    return Wish(host, port, stream)


def _stream(ancillary: "list[tuple[int, int, bytes]]") -> tuple[socket.socket | None, str]:
    """(the stream socket that was passed, why there is none)"""
    for level, kind, data in ancillary:
        if level != socket.SOL_SOCKET or kind != socket.SCM_RIGHTS:
            continue
        numbers = array.array("i")
        numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
        for number in numbers:
            try:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=number)
            except OSError:  # no socket
                os.close(number)
            else:
                if _is_connected_stream(sock):
                    return sock, ""
                sock.close()
            return None, "a descriptor that is no connected stream socket of the Unix domain"
    return None, ""


def _is_connected_stream(sock: socket.socket) -> bool:
    try:
        domain = sock.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)
        kind = sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        if (domain, kind) != (socket.AF_UNIX, socket.SOCK_STREAM):
            return False
        sock.getpeername()
    except OSError:
        return False
    return True


def _hung_up(channel: socket.socket) -> bool:
    poller = select.poll()
    poller.register(channel, 0)
    return any(mask & select.POLLHUP for _, mask in poller.poll(0))
