"""What a link needs of whoever it tells: the runner's owner, as node.link sees it."""

from typing import Any, Protocol

from fornada.core.errors import OutOfDeviceMemory
from fornada.node.call import Call


class Ears(Protocol):
    """Who is told what the runner says. What doesn't fit the order of things may raise ProtocolError, as everything that breaks the rules."""

    def greeted(self, hello: dict[str, Any]) -> None: ...

    def progressed(self, progress: dict[str, Any]) -> None: ...

    def loaded(self, ready: dict[str, Any]) -> None: ...

    def failed(self, failure: dict[str, Any]) -> None: ...

    def slept(self, said: dict[str, Any]) -> None: ...

    def woken(self, said: dict[str, Any]) -> None: ...

    def asked(self, number: int, booking: dict[str, Any]) -> None:
        """BOOK; answer with `Link.booked`."""

    def freed(self) -> None:
        """Calls have ended, or the socket takes bytes again: there may be room for more."""

    def abandoned(self) -> None:
        """A caller has left what the runner works on."""

    def ran_out(self, call: Call, error: OutOfDeviceMemory) -> OutOfDeviceMemory | None:
        """A call has ended for want of device memory, and nothing of its answer has gone out. None: it is tried again, and no longer the
        link's; else what its caller is to be told."""

    def orphaned(self, request: int) -> None: ...

    def faulted(self, reason: str) -> None: ...

    def hung_up(self) -> None:
        """The runner has closed its end: it is dead, or will be soon."""
