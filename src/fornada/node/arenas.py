"""The memory files that the control plane shares with one runner for long bodies (fornada_sdk.wire.arena), seen from this side.

    requests    absent ─a long body is to be sent─► offered ─ARENA from the runner─► in use    (until then it goes in parts)
    answers     absent ─a long answer came in parts─► in use

The runner is hostile. It can change what lies in either file at any time and say what it likes about it, so that a request's file is
only written here, an answer is copied out before anything is looked at, and what is taken stands in our own memory. Neither file is
ever mapped for reading or writing, and neither can be made shorter: there is no access that could fault.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Callable, Sequence

from fornada.node.outbox import Outbox
from fornada_sdk.wire.arena import GRAIN, PLACE, Buffer, MemoryFile, Slots
from fornada_sdk.wire.framing import ProtocolError, frame
from fornada_sdk.wire.messages import Kind, encode

LONG_BYTES = 64 * 1024
"""Bodies beyond it go through a file."""
REQUESTS_MOST = 256 * 1024**2
ANSWERS_BYTES = 64 * 1024**2
"""As much as a runner keeps for who comes next (fornada_sdk.runner.kept)."""
BODIES_AT_ONCE = 4
"""Of the largest size: what there is room for in the requests' file."""
UNUSED_S = 10.0
"""After so long without a long body the memory goes back to the kernel."""

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Arenas:
    """One link's. Without a long body there is nothing: no file, no descriptor, no timer."""

    def __init__(
        self,
        link: int,
        *,
        outbox: Outbox,
        most_bytes: int,
        under_way: Callable[[int], bool],
        at_rest: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`most_bytes`: of the longest request; 0: all go in parts. `under_way(id)`: the runner may still read that request's body. `at_rest()`:
        no answer is to come from it.
        """
        self.spoken = False
        """The runner has said that it knows of them; nothing is offered before."""
        self._link = link
        self._outbox = outbox
        self._under_way = under_way
        self._at_rest = at_rest
        self._loop = loop
        self._requests_bytes = min(BODIES_AT_ONCE * -(-most_bytes // GRAIN) * GRAIN, REQUESTS_MOST)
        self._requests: MemoryFile | None = None
        self._confirmed = False
        self._answers: MemoryFile | None = None
        self._slots = Slots(self._requests_bytes)
        self._placed: dict[int, int] = {}
        """Offsets of bodies, by request. Those that have ended are looked for when room is wanted: not on the way of small requests."""
        self._used = False
        self._timer: asyncio.TimerHandle | None = None

    def place(self, request: int, body: Sequence[Buffer], size: int) -> bytes | None:
        """Puts a request's body into the file. Its PLACE; None where it has to go in parts."""
        if not self.spoken or not self._requests_bytes:
            return None
        file = self._requests
        if file is None:
            self._requests = self._offer("requests", self._requests_bytes)
            return None
        if not self._confirmed:
            return None
        self._take_back()
        at = self._slots.take(size)
        if at < 0:
            return None
        try:
            file.write(at, body)
        except OSError:  # no memory for it
            self._slots.free(at)
            return None
        self._placed[request] = at
        self._note_use()
        return PLACE.pack(at, size)

    def confirmed(self, message: dict[str, object]) -> None:
        """The runner's ARENA. Raises ProtocolError for one that answers nothing."""
        if self._requests is None or self._confirmed or message.get("requests") != self._requests_bytes:
            raise ProtocolError("an ARENA that was never offered")
        self._confirmed = True

    def answer(self, place: bytes) -> bytes:
        """A copy of an answer's body. Raises ProtocolError for a PLACE where none can be."""
        if self._answers is None or len(place) != PLACE.size:
            raise ProtocolError("an answer in a file that there isn't")
        at, size = PLACE.unpack(place)
        try:
            data = self._answers.read(at, size)
        except (OSError, ValueError) as error:
            raise ProtocolError(f"an answer that can't be read: {error}") from None
        self._note_use()
        return data

    def came_in_parts(self) -> None:
        """A long answer did: the next one needn't."""
        if self.spoken and self._answers is None:
            self._answers = self._offer("answers", ANSWERS_BYTES)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for file in (self._requests, self._answers):
            if file is not None:
                file.close()
        self._requests = self._answers = None
        self.spoken = False

    def _offer(self, name: str, size: int) -> MemoryFile | None:
        """Passes a new file on; None where the socket takes nothing now, or there can be none: asked again with the next long body.

        It may overtake what waits to be sent: it belongs to no request.
        """
        try:
            descriptor = _new_file(f"fornada-{name}", size)
        except OSError:
            return None
        passed = descriptor
        try:
            if name == "requests":
                # Nobody's business but ours to write there. Whoever has our uid can still open it anew, and would harm itself alone.
                passed = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            sent = _pass_on(self._link, [frame(Kind.ARENA, 0, encode({})), frame(Kind.ARENA, 0, encode({name: size}))], passed)
        except OSError:
            sent = False
        finally:
            if passed != descriptor:
                os.close(passed)
        if not sent:
            os.close(descriptor)
            return None
        self._note_use()
        return MemoryFile(descriptor, size)

    def _take_back(self) -> None:
        for request in [request for request in self._placed if not self._under_way(request)]:
            self._slots.free(self._placed.pop(request))

    def _note_use(self) -> None:
        self._used = True
        if self._timer is None:
            self._timer = self._loop.call_later(UNUSED_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._used:
            self._used = False
            self._timer = self._loop.call_later(UNUSED_S, self._look)
            return
        self._take_back()
        with contextlib.suppress(OSError):
            if self._requests is not None:
                for at, size in self._slots.holes():
                    self._requests.give_back(at, size)
            if self._answers is not None and self._at_rest():
                self._answers.give_back(0, self._answers.size)  # all that came was copied; and the runner may not be awake
            elif self._answers is not None:
                self._outbox.put(frame(Kind.TRIM, 0))
        if self._placed:
            self._timer = self._loop.call_later(UNUSED_S, self._look)


def _new_file(name: str, size: int) -> int:
    """Raises OSError."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        os.fchmod(descriptor, 0o400)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _pass_on(link: int, packets: Sequence[bytes], descriptor: int) -> bool:
    """Sends two packets, the descriptor with the second. False where the socket doesn't take both: the first alone does nothing.

    Raises OSError.
    """
    announcement, packet = packets
    end = socket.socket(fileno=os.dup(link))
    try:
        end.send(announcement, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        socket.send_fds(end, [packet], [descriptor], socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    finally:
        end.close()
    return True
