"""Keys: what one is, what it proves, and what its role may do.

    fnd_0123456789abcdef_x…x        prefix, id, secret

The id is public: it stands in lists, in logs and in the usage. The secret is 256 random bits and is shown once; what is kept of it is its
SHA-256 (docs/decisions/0017).
"""

import enum
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, NewType, Protocol

import msgspec

from fornada.core.errors import InvalidSpec
from fornada.core.names import AccountId, check_deployable

KeyId = NewType("KeyId", str)
"""Sixteen hex digits."""
NO_KEY = KeyId("")
PREFIX = "fnd"
ID_BYTES = 8
SECRET_BYTES = 32
_FORM = re.compile(rf"{PREFIX}_([0-9a-f]{{{2 * ID_BYTES}}})_([0-9a-f]{{{2 * SECRET_BYTES}}})\Z")
_MEANT = re.compile(rf"{PREFIX}_([0-9a-f]{{{2 * ID_BYTES}}})(?:_[0-9a-f]*)?\Z")
_BEGINS = PREFIX.encode()
_ANYWHERE = re.compile(rb"(%b(?:_|%%5[fF])[0-9a-f]{%d}(?:_|%%5[fF]))[0-9a-f]{8,%d}" % (_BEGINS, 2 * ID_BYTES, 2 * SECRET_BYTES))
LONGEST_ACCOUNT = 128
RPM_MOST = 100_000
"""Requests a minute of a limit: the time of each is remembered."""


class Role(enum.IntEnum):
    """What a key may do; each role may what those before it may."""

    NOBODY = 0
    """No key, or none that is known: what the node tells everybody."""
    USER = 1
    """Runs models, sees its account's jobs, files and usage, lists models."""
    DEPLOYER = 2
    """Deploys and removes its account's models, loads and unloads them, reads their output."""
    ADMIN = 3
    """The whole node."""


ROLES: dict[str, Role] = {role.name.lower(): role for role in Role if role is not Role.NOBODY}
"""Word of a role, as commands and answers spell it."""


class Key(msgspec.Struct, frozen=True):
    """A key as it is kept: all but the secret."""

    id: KeyId
    account: AccountId
    role: Role
    digest: bytes
    """SHA-256 of the secret."""
    created: float
    """Seconds since 1970."""
    revoked: float | None = None
    requests_per_minute: int = 0
    """0: no limit."""
    neurons_per_day: float = 0.0
    """0: no limit."""
    models: tuple[str, ...] = ()
    """Names of the models that it may run; empty: all that its account may."""

    @property
    def valid(self) -> bool:
        return self.revoked is None


class Presented(NamedTuple):
    """A key as somebody shows it."""

    id: KeyId
    secret: str


def new_key(
    account: AccountId,
    role: Role,
    *,
    now: float,
    chance: Callable[[int], bytes],
    requests_per_minute: int = 0,
    neurons_per_day: float = 0.0,
    models: Sequence[str] = (),
) -> tuple[Key, str]:
    """A key, and its text, which is nowhere else. `chance` gives so many random bytes. Raises ValueError with what can't be."""
    if not account or len(account) > LONGEST_ACCOUNT or not account.isprintable() or account != account.strip():
        raise ValueError(f"an account is 1 to {LONGEST_ACCOUNT} printable characters, without spaces around them")
    if account in (".", ".."):
        raise ValueError(f"an account can't be called '{account}': clients take that out of the paths that it stands in")
    if role is Role.NOBODY:
        raise ValueError(f"a role is one of {', '.join(ROLES)}")
    if not 0 <= requests_per_minute <= RPM_MOST or not 0 <= neurons_per_day < float("inf"):
        raise ValueError(f"a limit is a number above 0, and requests a minute are at most {RPM_MOST}; 0 means none")
    id = KeyId(chance(ID_BYTES).hex())
    secret = chance(SECRET_BYTES).hex()
    key = Key(
        id=id,
        account=account,
        role=role,
        digest=digest_of(secret),
        created=now,
        requests_per_minute=requests_per_minute,
        neurons_per_day=neurons_per_day,
        models=tuple(dict.fromkeys(map(_model, models))),
    )
    return key, f"{PREFIX}_{id}_{secret}"


def id_of(text: str) -> KeyId:
    """The id that is meant: it alone, or in front of or within a key. Whoever has to end a key in a hurry has only that at hand."""
    found = _MEANT.match(text.strip())
    return KeyId(found[1] if found else text)


def _model(name: str) -> str:
    try:
        return check_deployable(name)
    except InvalidSpec as refusal:
        raise ValueError(f"'{name[:200]!s}' names no model: {refusal.message}") from None


def read_key(text: str) -> Presented | None:
    """Id and secret of what was shown; None for what can be no key."""
    found = _FORM.match(text)
    return Presented(KeyId(found[1]), found[2]) if found else None


def without_keys(text: bytes) -> bytes:
    """`text` for a log: of each key in it the id is left. People put them where an account or a model belongs, in a path that is logged."""
    return _ANYWHERE.sub(rb"\1...", text) if _BEGINS in text else text


def digest_of(secret: str) -> bytes:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).digest()


_NOBODY_S_DIGEST = bytes(32)


def proves(secret: str, key: Key | None) -> bool:
    """Whether the secret is the key's, and the key valid. Takes the same time for every key, and where there is none."""
    right = hmac.compare_digest(digest_of(secret), key.digest if key is not None else _NOBODY_S_DIGEST)
    return right and key is not None and key.valid


class KeysPort(Protocol):
    """The node's keys. `fornada keys` changes them from another process while the node runs."""

    def keys(self) -> list[Key]:
        """All that ever were, the oldest first; revoked ones too, so that the node stays locked when the last one goes."""

    def put_key(self, key: Key) -> None: ...

    def revoke_key(self, id: KeyId, *, now: float) -> Key | None:
        """None where there is no such key. One that was revoked stays as it was."""

    def forget_keys(self) -> int:
        """All of them, and that there were any: the node is open again where it may be. How many there were."""

    def keys_version(self) -> int:
        """Another number whenever somebody else has changed something in the store. Microseconds."""
