"""Responses of OpenAI's API that are kept, so that a later request can go on from them: values and the port."""

from typing import Protocol

import msgspec

from fornada.core.names import AccountId


class KeptResponse(msgspec.Struct, frozen=True):
    """One of them."""

    id: str
    account: AccountId
    created: float
    """Seconds since 1970."""
    body: bytes
    """The response as JSON."""
    input: bytes
    """The items that were asked, as a JSON list."""
    turns: bytes
    """The whole conversation up to here and with it, as a JSON list of a chat's messages."""

    @property
    def size(self) -> int:
        return len(self.body) + len(self.input) + len(self.turns)


class ResponseStore(Protocol):
    """Responses on disk. What belongs to another account isn't there. Every call may raise DiskFull; InternalFault where the disk fails
    otherwise."""

    def keep_response(self, kept: KeptResponse, *, since: float, most: int, most_bytes: int) -> None:
        """Forgets those from before `since`, and the account's oldest beyond so many and so many bytes. It outlives every process; a power
        loss may cost the last second."""

    def response(self, id: str, account: AccountId, *, since: float) -> KeptResponse | None:
        """None for one from before `since`, too."""

    def remove_response(self, id: str, account: AccountId) -> bool:
        """Whether it was there."""
