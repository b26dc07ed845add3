"""What a gateway keeps of answers, and when a request is the same as one before."""

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from fornada.core.gateway import GatewayId, Rules
from fornada.core.names import AccountId, ModelName, VersionDigest

TEXT_TYPES = ("application/json", "text/", "image/")
_NOISE = re.compile(
    r"(accept|accept-encoding|accept-language|api-version|cache-control|content-type|dnt|origin|pragma|priority|referer|traceparent|tracestate"
    r"|user-agent|via|x-real-ip|x-session-affinity|x-auth-email)\Z|(cf-|x-stainless-|x-forwarded-|sec-)"
)
"""Headers that no answer depends on."""


class Kept(msgspec.Struct, frozen=True):
    """An answer as it is kept: whole, and good."""

    model: ModelName
    """Whose it is: a key that may not run that one may not have this either."""
    version: VersionDigest
    type: str
    """Media type."""
    lines: bytes
    """Header lines of its own."""
    body: bytes
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def bytes(self) -> int:
        """That it takes, about."""
        return len(self.body) + len(self.lines) + 512


def cache_key(
    *,
    account: AccountId,
    gateway: GatewayId,
    provider: str,
    endpoint: str,
    version: VersionDigest,
    media_type: str,
    body: bytes,
    headers: Mapping[str, str],
    form: str,
    rules: Rules,
) -> bytes:
    """Two requests with the same one get the same answer. `headers`: those that model code may see. `version` is in it because another
    version of a model answers otherwise. A key that the caller names stands for all that, but never reaches beyond its gateway, nor beyond
    the `form` of answers that was asked for: no client can read another API's, or events where it waits for an object."""
    if rules.cache_key is not None:
        return _digest(account, gateway, "named", form, rules.cache_key)
    shown = [f"{name}: {headers[name]}" for name in sorted(headers) if not _NOISE.match(name)]
    return _digest(account, gateway, "exact", provider, endpoint, version, media_type, *shown, body=canonical(body))


def canonical(body: bytes) -> bytes:
    """JSON with its keys in order and without blanks; anything else as it is."""
    try:
        return msgspec.json.encode(msgspec.json.decode(body), order="deterministic")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return b"\0" + body


def may_be_kept(type: str) -> bool:
    """Whether answers of that media type are: texts and pictures."""
    return type.lower().startswith(TEXT_TYPES)


def _digest(*words: str, body: bytes = b"") -> bytes:
    # With their lengths: else two words could be moved against one another.
    found = hashlib.sha256(msgspec.json.encode(_words(words)))
    found.update(b"\n" + body)
    return found.digest()


def _words(words: Sequence[str]) -> list[str]:
    return list(words)
