"""Who has shown that a file is his to read, by bringing it himself: a sum alone tells only that somebody knows of it."""

from collections.abc import Iterable
from typing import Protocol

from fornada.core.names import AccountId

EVERYBODY = AccountId("")
"""No account's name: what ships with the node is everybody's."""


class ProofStore(Protocol):
    """Which sha256 each account has had from a source of its own. Every call may raise DiskFull, InternalFault."""

    def has_proved(self, account: AccountId, sha256: str) -> bool:
        """Also what is everybody's."""

    def put_proved(self, account: AccountId, sha256: str) -> None: ...

    def keep_proved(self, sums: Iterable[str]) -> None:
        """Forgets those of all other files."""
