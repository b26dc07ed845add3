"""Which mode the node is in, and the gate before its routes.

    open ──the first key──► keyed ──`fornada keys forget`──► open          (on a loopback address; elsewhere never open)

Keys are changed by another process. The store's mark tells of it at once, the tick a moment later in any case.
"""

from collections.abc import Callable, Sequence

from fornada.core.keys import KeysPort
from fornada.edge.auth import Authenticator, Caller, Credentials, KeyedMode, OpenMode


class Keyring:
    """An Authenticator that follows the keys in the store. Without a port the node is open for good."""

    def __init__(
        self,
        keys: KeysPort | None = None,
        *,
        cors: Sequence[str] = (),
        loopback: bool = True,
        mark: Sequence[int] | memoryview = (0,),
        locked: Callable[[bool], None] = lambda locked: None,
    ) -> None:
        """`loopback`: nobody but this machine can come, so that the node may be open. `mark`: see store.mark. `locked` is told whether there
        are keys, now and at each change. Raises what the port raises."""
        self._keys = keys
        self._open = OpenMode(cors)
        self._loopback = loopback
        self._locked = locked
        self.mark = mark
        self.seen = -1
        """`mark[0]` as of the last look: whoever relies on an answer of `admit` compares the two before."""
        self._version = -1
        self.mode: Authenticator = self._open
        self.look()

    @property
    def locked(self) -> bool:
        """Whether it takes a key to come in."""
        return self.mode is not self._open

    def admit(self, credentials: Credentials) -> Caller:
        return self.mode.admit(credentials)

    def allows_origin(self, origin: str) -> bool:
        return self.mode.allows_origin(origin)

    def look(self) -> bool:
        """Reads the keys where somebody may have changed them; whether it did. Raises what the port raises."""
        if self._keys is None:
            self.seen = self.mark[0]
            return False
        mark, version = self.mark[0], self._keys.keys_version()
        if (mark, version) == (self.seen, self._version):
            return False
        keys = self._keys.keys()
        is_open = self._loopback and not keys
        self.mode = self._open if is_open else KeyedMode([key for key in keys if key.valid], self._open)
        self._locked(not is_open)
        # Only now: where reading failed the next look tries again.
        self.seen, self._version = mark, version
        return True
