"""The files that one control plane has given this runner for long bodies: requests are read from one, answers written to the other."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Iterable
from typing import Any

from fornada_sdk.wire.arena import PLACE, MemoryFile, Slots
from fornada_sdk.wire.framing import MAX_PACKET, ProtocolError

DESCRIPTORS_MOST = 4


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """The next packet with the descriptors that came with it, if any. Raises as socket.recv does."""
    descriptors = array.array("i")
    space = socket.CMSG_SPACE(DESCRIPTORS_MOST * descriptors.itemsize)
    packet, ancillary, _, _ = sock.recvmsg(MAX_PACKET, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return packet, list(descriptors)


class Arenas:
    """Of one attachment. `answers` is for the thread that holds the session's `telling`, `requests` for the one that reads."""

    def __init__(self) -> None:
        self._requests: MemoryFile | None = None
        self._answers: MemoryFile | None = None
        self._slots = Slots(0)
        self._lent: dict[int, int] = {}
        """Offsets of answers that aren't acknowledged, by request."""

    def given(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Takes a file; returns what is to be answered, {} for nothing. Raises ProtocolError. The descriptors are owned here."""
        requests, answers = message.get("requests"), message.get("answers")
        size = requests or answers
        if len(descriptors) != 1 or not isinstance(size, int) or (self._requests if requests else self._answers) is not None:
            for descriptor in descriptors:
                os.close(descriptor)
            if not descriptors:
                return {}  # this process may open no more: everything goes on in packets
            raise ProtocolError(f"an ARENA that can't be: {message}")
        if requests:
            self._requests = MemoryFile(descriptors[0], size)
            return {"requests": size}
        self._answers = MemoryFile(descriptors[0], size)
        self._slots = Slots(size)
        return {}

    def read(self, place: bytes) -> bytes:
        """A request's body. Raises ProtocolError for a PLACE where none can be."""
        if self._requests is None or len(place) != PLACE.size:
            raise ProtocolError("a body in a file that there isn't")
        at, size = PLACE.unpack(place)
        try:
            return self._requests.read(at, size)
        except (OSError, ValueError) as error:
            raise ProtocolError(f"a body that can't be read: {error}") from None

    def lend(self, request: int, body: bytes) -> bytes | None:
        """Puts an answer's body into the file until it is acknowledged. Its PLACE, None where it can't lie there."""
        answers = self._answers
        if answers is None or request in self._lent:
            return None
        at = self._slots.take(len(body))
        if at < 0:
            return None
        try:
            answers.write(at, [body])
        except OSError:
            self._slots.free(at)
            return None
        self._lent[request] = at
        return PLACE.pack(at, len(body))

    def acknowledged(self, requests: Iterable[int]) -> None:
        lent = self._lent
        if lent:
            for request in requests:
                at = lent.pop(request, -1)
                if at >= 0:
                    self._slots.free(at)

    def trim(self) -> None:
        """Gives the kernel what no answer lies in."""
        if self._answers is not None:
            for at, size in self._slots.holes():
                try:
                    self._answers.give_back(at, size)
                except OSError:
                    return

    def close(self) -> None:
        """Also in a forked process."""
        for file in (self._requests, self._answers):
            if file is not None:
                file.close()
        self._requests = self._answers = None
