"""Who comes in, and as whom.

    open mode   no keys: any or no token, but only from this machine's own pages and programs
      Host      a loopback name or address, any port: a page that had its name point at 127.0.0.1 (DNS rebinding) is refused
      Origin    the same, or one of `[auth] cors`: a page on the web can't drive the node through its visitor's browser
    keyed mode  whoever shows a key is that key's account and has its role; who shows none is nobody, and gets what nobody may
                have. Host and Origin decide nothing then: a page has no key, unless its owner gave it one.

An authenticator is asked once for each new set of request headers, never for each request (see headers.Facts). Which of the two modes holds is
edge.keyring's business.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from fornada.core.errors import BadRequest, Forbidden, ForeignOrigin, Unauthorized
from fornada.core.keys import LONGEST_ACCOUNT, NO_KEY, Key, KeyId, Role, proves, read_key
from fornada.core.names import LOCAL_ACCOUNT, AccountId

_LOOPBACK_V4 = re.compile(r"127\.\d{1,3}\.\d{1,3}\.\d{1,3}\Z")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:/?#@\s\\]+)(?::(?P<port>\d{0,5}))?\Z")
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#\\]+)\Z")


class Caller(NamedTuple):
    """Who asks. `account` is None for somebody who may act for any account."""

    account: AccountId | None = None
    role: Role = Role.ADMIN
    key: KeyId = NO_KEY
    models: frozenset[str] | None = None
    """The models that the key may run; None: all that its account may."""
    rpm: int = 0
    """Requests a minute that the key may send; 0: no limit."""
    neurons: float = 0.0
    """Those that it may use a day; 0: no limit."""
    paced: bool = True
    """Its requests count towards those of a minute; items of jobs don't, which run in what is left over."""
    why: str = ""
    """Why it is nobody."""

    def acting_for(self, account: AccountId | None) -> AccountId:
        """The account that a request is for: the path's, else the caller's own. Raises Forbidden for somebody else's."""
        if account is None:
            return self.account or LOCAL_ACCOUNT
        if self.account is not None and self.account != account:
            raise Forbidden(f"these credentials are those of the account '{self.account}', and the path names another")
        return account

    @property
    def sees(self) -> AccountId | None:
        """Whose view of the node it has where the path names no account; None: an administrator's, who sees everybody's."""
        if self.account is None:
            return LOCAL_ACCOUNT
        return None if self.role is Role.ADMIN else self.account

    @property
    def within(self) -> AccountId | None:
        """Whose jobs and the like it may see and end; None: everybody's."""
        return None if self.role is Role.ADMIN else self.account

    def require(self, role: Role) -> None:
        """Raises Unauthorized for nobody, Forbidden for a lower role."""
        if self.role >= role:
            return
        if self.role is Role.NOBODY:
            raise Unauthorized(self.why)
        raise Forbidden(f"this needs a key with the role {role.name.lower()}; this one's is {self.role.name.lower()}")

    def own(self, account: AccountId, what: str) -> None:
        """Raises Forbidden where something of `account` isn't this caller's to change."""
        if self.account is not None and self.role is not Role.ADMIN and self.account != account:
            raise Forbidden(f"'{what}' isn't your account's; its owner or an administrator may do this")


ANYBODY = Caller()


class Credentials(NamedTuple):
    """What of a request's headers decides who may come in."""

    host: str | None
    origin: str | None
    token: str | None
    """Bearer token, or the key of a header that holds one alone."""


class Authenticator(Protocol):
    """The mode of the node: open, or by keys."""

    def admit(self, credentials: Credentials) -> Caller:
        """Who it is, perhaps nobody. Raises ForeignOrigin."""

    def allows_origin(self, origin: str) -> bool:
        """Whether pages of that origin may read answers."""


class OpenMode:
    """Everybody on this machine."""

    def __init__(self, cors: Sequence[str] = ()) -> None:
        self._cors = frozenset(origin.rstrip("/").lower() for origin in cors)

    def admit(self, credentials: Credentials) -> Caller:
        host = credentials.host
        if host is not None and not is_loopback(host):
            raise ForeignOrigin("Host isn't a local address or name: without keys the node answers this machine alone")
        if credentials.origin is not None and not self.allows_origin(credentials.origin):
            raise ForeignOrigin("Origin isn't local: add it to [auth] cors if that page may use the node")
        return ANYBODY

    def allows_origin(self, origin: str) -> bool:
        if origin.lower() in self._cors or "*" in self._cors:
            return True
        match = _ORIGIN.match(origin.lower())
        return bool(match and match["scheme"] in ("http", "https") and is_loopback(match["authority"]))


NOBODY = Caller(AccountId(""), Role.NOBODY, why="this needs a key: send it as 'Authorization: Bearer KEY'; 'fornada keys create' makes one")
UNKNOWN = NOBODY._replace(why="the key is unknown or revoked")


class KeyedMode:
    """Those who have a key."""

    def __init__(self, keys: Iterable[Key], origins: OpenMode) -> None:
        """`origins` says which pages may read answers."""
        self._keys = {key.id: key for key in keys}
        self._origins = origins

    def admit(self, credentials: Credentials) -> Caller:
        if credentials.token is None:
            return NOBODY
        shown = read_key(credentials.token)
        if shown is None:
            return UNKNOWN
        key = self._keys.get(shown.id)
        if not proves(shown.secret, key) or key is None:
            return UNKNOWN
        return Caller(key.account, key.role, key.id, frozenset(key.models) or None, key.requests_per_minute, key.neurons_per_day)

    def allows_origin(self, origin: str) -> bool:
        return self._origins.allows_origin(origin)


def is_loopback(authority: str) -> bool:
    """Whether `host[:port]` names this machine by a name that no DNS answer can move."""
    match = _AUTHORITY.match(authority)
    if match is None:
        return False
    host = match["host"].lower().removesuffix(".")
    # Browsers resolve *.localhost themselves (RFC 6761), so that nobody can point it elsewhere.
    if host == "localhost" or host.endswith(".localhost"):
        return True
    if _LOOPBACK_V4.match(host):
        return all(int(part) < 256 for part in host.split("."))
    return host in ("[::1]", "[0:0:0:0:0:0:0:1]") or (host.startswith("[::ffff:127.") and is_loopback(host[8:-1]))


def account_of(text: str) -> AccountId:
    """The account of a path. Any non-empty name does in open mode. Raises BadRequest."""
    if not text or len(text) > LONGEST_ACCOUNT or not text.isprintable():
        raise BadRequest(f"the account id must be 1 to {LONGEST_ACCOUNT} printable characters")
    return AccountId(text)
