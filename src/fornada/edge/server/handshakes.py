"""TLS on the listening sockets: whoever still shakes hands counts as a connection, and gives way to who comes.

    accept ──► shaking hands ──done──► Connection
                  └── too slow, gone, or the oldest where there is no room for the next ──► closed

asyncio would accept whatever comes, and tell of a connection only after its handshake: thousands that never end would take every
descriptor that there is.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from fornada.edge.server.connection import Connection
from fornada.edge.server.shared import Shared

AT_ONCE = 64
"""Accepted in one turn of the loop."""
PAUSE_S = 0.2
"""Before the next try where there are no descriptors, say."""


class Handshakes:
    """Those of one server, on all of its sockets."""

    def __init__(
        self, shared: Shared, context: ssl.SSLContext, *, connection: Callable[[], Connection], timeout_s: float, close_s: float
    ) -> None:
        """`close_s` is what a caller has, later on, to say that it has seen the end of its connection."""
        self._shared = shared
        self._context = context
        self._connection = connection
        self._timeout_s = timeout_s
        self._close_s = close_s
        self._under_way: dict[asyncio.Task[None], Connection] = {}
        """In the order in which they began. For a moment also those that have just become connections."""

    def __len__(self) -> int:
        return len(self._under_way)

    def listen(self, listener: socket.socket) -> "SecureListener":
        """Accepts on the socket from now on, and closes it in the end."""
        return SecureListener(listener, self._shared.loop, self._begin)

    def end(self) -> None:
        """Nothing becomes of those that are under way."""
        for task, connection in self._under_way.items():
            if connection not in self._shared.connections:
                task.cancel()

    def _begin(self, sock: socket.socket) -> None:
        room = max(self._shared.settings.max_connections - len(self._shared.connections), 1)
        while len(self._under_way) >= room:
            # Who has long been at it is the least likely to come to an end: a caller that means it needs milliseconds.
            oldest = next(iter(self._under_way))
            if self._under_way.pop(oldest) not in self._shared.connections:
                oldest.cancel()
        connection = self._connection()
        task = self._shared.loop.create_task(self._shake(sock, connection), name="handshake")
        self._under_way[task] = connection
        task.add_done_callback(lambda task: self._ended(task, sock))

    async def _shake(self, sock: socket.socket, connection: Connection) -> None:
        # OSError: it was no handshake, took too long, or the caller has gone. That is nobody's fault here, and he has seen it.
        with contextlib.suppress(OSError):
            await self._shared.loop.connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=self._context,
                ssl_handshake_timeout=self._timeout_s,
                ssl_shutdown_timeout=self._close_s,
            )

    def _ended(self, task: asyncio.Task[None], sock: socket.socket) -> None:
        self._under_way.pop(task, None)
        if task.cancelled():
            sock.close()  # the loop never had it where the task hadn't begun


class SecureListener:
    """A listening socket, as far as a server wants to know of it."""

    def __init__(self, listener: socket.socket, loop: asyncio.AbstractEventLoop, begin: Callable[[socket.socket], None]) -> None:
        self._listener = listener
        self._loop = loop
        self._begin = begin
        self._closed = False
        self._paused: asyncio.TimerHandle | None = None
        loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._paused is not None:
            self._paused.cancel()
        else:
            self._loop.remove_reader(self._listener.fileno())
        self._listener.close()

    async def wait_closed(self) -> None:
        """It is, as soon as it was asked for."""

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                sock, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listener.fileno())
                self._paused = self._loop.call_later(PAUSE_S, self._go_on)
                return
            sock.setblocking(False)
            self._begin(sock)

    def _go_on(self) -> None:
        self._paused = None
        self._loop.add_reader(self._listener.fileno(), self._accept)
