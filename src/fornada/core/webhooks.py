"""Telling somebody's server that a job has ended: what is sent, how it is signed, when it is tried again. Ports and pure choices.

waiting ──2xx──> sent
   └──not within MOST_TRIES, or never permitted──> given up
"""

import enum
import hashlib
import hmac
from collections.abc import Collection
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.jobs import JobId
from fornada.core.names import AccountId
from fornada.core.policy.outbound import Outbound, Permitted, Place, place

LONGEST_URL = 2048
MOST_TRIES = 8
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 300.0
_PORTS = {"http": 80, "https": 443}
_LOCAL_NAMES = ("localhost", "local", "internal", "localdomain")


class HookState(enum.StrEnum):
    WAITING = "waiting"
    """For the job's end, or for the next try."""
    SENT = "sent"
    GIVEN_UP = "given up"


class Hook(msgspec.Struct, frozen=True):
    """A job's webhook."""

    job: JobId
    url: str
    state: HookState = HookState.WAITING
    tries: int = 0
    next_at: float = 0.0
    """Seconds since 1970: not tried before then."""
    last: str = ""
    """What became of the last try, for its owner."""


class HookStore(Protocol):
    """Webhooks on disk. Every call may raise DiskFull, InternalFault."""

    def hook(self, job: JobId) -> Hook | None: ...

    def due_hooks(self, now: float, *, most: int, besides: Collection[JobId] = (), without: Collection[AccountId] = ()) -> list[Hook]:
        """Waiting ones of jobs that have ended, whose time has come, the longest due first; `besides` those of these jobs, `without` those of
        these accounts."""

    def put_hook(self, hook: Hook) -> None:
        """In place of what is there. As durable as the end of an item."""


class HookRefused(Exception):
    """The address may not be connected to; the message is half a line."""


class HookFailed(Exception):
    """Nobody answered with a success; the message is half a line."""


class HookPort(Protocol):
    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> None:
        """Sends it once, to an address that is permitted, following nothing. Raises HookRefused, HookFailed."""


class Sending(NamedTuple):
    """One try."""

    body: bytes
    headers: dict[str, str]


def sending(body: bytes, *, job: JobId, secret: bytes, now: float) -> Sending:
    """`x-fornada-signature: t=SECONDS,v1=HEX`, where HEX is the HMAC-SHA256 of `SECONDS.BODY`."""
    at = str(int(now))
    signature = hmac.new(secret, at.encode() + b"." + body, hashlib.sha256).hexdigest()
    return Sending(body, {"content-type": "application/json", "x-fornada-signature": f"t={at},v1={signature}", "x-fornada-job": job})


def after(hook: Hook, said: str, *, sent: bool, hopeless: bool, now: float) -> Hook:
    """What a try made of it. `said`: what became of it; `hopeless`: another one would end alike."""
    tries = hook.tries + 1
    if sent:
        return msgspec.structs.replace(hook, state=HookState.SENT, tries=tries, last=said)
    if hopeless or tries >= MOST_TRIES:
        return msgspec.structs.replace(hook, state=HookState.GIVEN_UP, tries=tries, last=said)
    wait_s = min(FIRST_WAIT_S * 2 ** (tries - 1), LONGEST_WAIT_S)
    return msgspec.structs.replace(hook, tries=tries, next_at=now + wait_s, last=said)


def check_url(url: str, policy: Outbound) -> None:
    """What can be told of an address before anybody looks names up. Raises BadRequest; never says where a name lies."""
    where = _place(url)
    host = where.host
    numeric = ":" in host or host.rpartition(".")[2].isdecimal()
    if numeric:
        permitted = isinstance(policy.judge(where, [host], own=()), Permitted)
    else:
        permitted = host.rpartition(".")[2] not in _LOCAL_NAMES or where in policy.allowed
    if not permitted:
        raise BadRequest(f"'webhook': {where} is no public address, and [outbound] allow_private of the node doesn't name it")


def _place(url: str) -> Place:
    try:
        if len(url) > LONGEST_URL or not url.isprintable() or " " in url:
            raise ValueError
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or parts.username is not None or parts.password is not None:
            raise ValueError
        return place(parts.hostname or "", _PORTS[parts.scheme] if parts.port is None else parts.port)
    except ValueError:
        raise BadRequest(f"'webhook' must be an http or https address of at most {LONGEST_URL} characters, without a user in it") from None
