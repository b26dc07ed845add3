"""Names to addresses, without letting a slow name service cost more than some threads."""

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence

from fornada.core.policy.outbound import Place

THREADS_MOST = 16
"""Names that are looked up at the same time. One thread for each: nothing else in this process may wait behind them."""

ADDRESSES_MOST = 64
"""Of one name: each is looked at in the event loop, and a name service may tell thousands."""

LookUp = Callable[[Place], Sequence[str]]
"""Blocks. Raises OSError."""


def system_look_up(wanted: Place) -> Sequence[str]:
    """As the machine's own programs find addresses. Raises OSError."""
    try:
        found = socket.getaddrinfo(wanted.host, wanted.port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that the codec of names refuses
        raise OSError(str(error)) from None
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))[:ADDRESSES_MOST]


class Lookups:
    """Whoever asks for a place that is being looked up joins."""

    def __init__(self, look_up: LookUp, loop: asyncio.AbstractEventLoop) -> None:
        self._look_up = look_up
        self._loop = loop
        self._under_way: dict[Place, asyncio.Future[Sequence[str]]] = {}

    async def find(self, wanted: Place) -> Sequence[str]:
        """Raises OSError. Cancelled, it leaves the look-up to those who joined, and to its thread."""
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(wanted.host))]
        found = self._under_way.get(wanted)
        if found is None:
            if len(self._under_way) >= THREADS_MOST:
                raise OSError("too many names are being looked up")
            found = self._under_way[wanted] = self._loop.create_future()
            # A daemon: the C library can't be interrupted, and the end of this process isn't to wait for a name.
            threading.Thread(target=self._run, args=(wanted, found), name="fornada-look-up", daemon=True).start()
        return await asyncio.shield(found)

    def _run(self, wanted: Place, found: "asyncio.Future[Sequence[str]]") -> None:
        addresses: Sequence[str] = ()
        failure: OSError | None = None
        try:
            addresses = self._look_up(wanted)
        except OSError as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._found, wanted, found, addresses, failure)

    def _found(self, wanted: Place, found: "asyncio.Future[Sequence[str]]", addresses: Sequence[str], failure: OSError | None) -> None:
        del self._under_way[wanted]
        if failure is None:
            found.set_result(addresses)
        else:
            found.set_exception(failure)
            found.exception()  # nobody need be waiting any more
