"""Who may come in. Today the open mode alone: any or no token, but only from this machine's own pages and programs.

    Host    a loopback name or address, any port: a page that had its name point at 127.0.0.1 (DNS rebinding) is refused
    Origin  the same, or one of `[auth] cors`: a page on the web can't drive the node through its visitor's browser

An authenticator is asked once for each new set of request headers, never for each request (see headers.Facts).
"""

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fornada.core.errors import BadRequest, Forbidden, ForeignOrigin
from fornada.core.names import LOCAL_ACCOUNT, AccountId

_LOOPBACK_V4 = re.compile(r"127\.\d{1,3}\.\d{1,3}\.\d{1,3}\Z")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:/?#@\s\\]+)(?::(?P<port>\d{0,5}))?\Z")
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#\\]+)\Z")
LONGEST_ACCOUNT = 128


class Caller(NamedTuple):
    """Who asks. `account` is None for somebody who may act for any account."""

    account: AccountId | None = None

    def acting_for(self, account: AccountId | None) -> AccountId:
        """The account that a request is for: the path's, else the caller's own. Raises Forbidden for somebody else's."""
        if account is None:
            return self.account or LOCAL_ACCOUNT
        if self.account is not None and self.account != account:
            raise Forbidden("these credentials belong to another account")
        return account


ANYBODY = Caller()


class Credentials(NamedTuple):
    """What of a request's headers decides who may come in."""

    host: str | None
    origin: str | None
    token: str | None
    """Bearer token, or the key of the legacy pair."""


class Authenticator(Protocol):
    """The mode of the node: open, or (from issue E on) by keys."""

    def admit(self, credentials: Credentials) -> Caller:
        """Raises ForeignOrigin, Unauthorized, BadRequest."""

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
