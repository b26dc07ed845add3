"""What a request to a gateway stands for: the doors that it is to be put to, in their order."""

import copy
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.gateway import WORKERS_AI, Asked
from fornada.core.names import AccountId
from fornada.edge.calls import Door, Target
from fornada.edge.gateway.asked import with_config
from fornada.edge.headers import Facts
from fornada.edge.json_bodies import broken
from fornada.edge.problems import Style
from fornada.edge.targets import Targets

COMPAT = "compat"
"""Not a provider: OpenAI's routes, with the provider's name before the model's."""
MOST_ENTRIES = 20
JSON = "application/json"
_RUN = "run/"
_V1 = re.compile(r"v1(?:/|\Z)")
_PREFIX = f"{WORKERS_AI}/"


class Step(msgspec.Struct, frozen=True):
    """One door to put the request to."""

    provider: str
    endpoint: str
    """As the caller named it; for the log."""
    target: Target
    body: bytes
    facts: Facts
    asked: Asked


class Entry(msgspec.Struct, frozen=True):
    """One of the entries of a universal request. Its headers would be the provider's, and no provider is elsewhere."""

    provider: str
    endpoint: str
    query: msgspec.Raw = msgspec.Raw(b"{}")
    headers: dict[str, Any] = {}
    config: dict[str, Any] = {}


class Ways:
    """Finds the doors behind gateways."""

    def __init__(self, doors: Sequence[Door]) -> None:
        self._targets = Targets(doors)

    def find(self, account: AccountId, provider: str, endpoint: str, query: str = "") -> Target:
        """The target of an endpoint; one with an error where it has none. `endpoint`: decoded. `query`: raw."""
        if provider == COMPAT:
            path = f"v1/{endpoint}"
        elif provider == WORKERS_AI:
            path = endpoint if _V1.match(endpoint) or endpoint.startswith(_RUN) else _RUN + endpoint
        else:
            return self._nowhere(
                f"'{provider[:64]}' is a provider elsewhere, and this node sends nothing out: "
                f"its own models are the provider '{WORKERS_AI}', also under '{COMPAT}'",
                Style.ENVELOPE,
            )
        url = f"/client/v4/accounts/{quote(account, safe='')}/ai/{quote(path, safe='/@:')}"
        found = self._targets.find(f"{url}?{query}".encode() if query else url.encode())
        if found is None:
            style = Style.SUPERSET if path.startswith("v1") else Style.ENVELOPE
            return self._nowhere(f"the provider '{provider}' has no endpoint '{endpoint[:200]}' for a POST", style)
        return found

    def _nowhere(self, message: str, style: Style) -> Target:
        return Target(door=None, style=style, error=BadRequest(message))

    def entries(self, body: bytes, facts: Facts, asked: Asked, account: AccountId) -> tuple[Step, ...]:
        """The steps of a universal request. Raises BadRequest."""
        try:
            given = msgspec.json.decode(body, type=list[Entry] | Entry)
        except msgspec.ValidationError as error:
            raise BadRequest(f"a list of entries with 'provider', 'endpoint' and 'query' was expected: {error}") from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise broken(error) from None
        entries = given if isinstance(given, list) else [given]
        if not 0 < len(entries) <= MOST_ENTRIES:
            raise BadRequest(f"a request has 1 to {MOST_ENTRIES} entries")
        inner = copy.copy(facts)
        inner.content_type = inner.media_type = JSON
        return tuple(self._entry(entry, inner, asked, account) for entry in entries)

    def _entry(self, entry: Entry, facts: Facts, asked: Asked, account: AccountId) -> Step:
        endpoint = entry.endpoint.lstrip("/")
        target = self.find(account, entry.provider, endpoint)
        body = bytes(entry.query)
        return Step(
            provider=entry.provider,
            endpoint=endpoint,
            target=target,
            body=without_provider(body) if entry.provider == COMPAT else body,
            facts=facts,
            asked=with_config(asked, entry.config),
        )


def without_provider(body: bytes) -> bytes:
    """A body whose `model` may have this node's name as a provider before it."""
    if _PREFIX.encode() not in body and b"workers-ai\\/" not in body:
        return body
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        model = msgspec.json.decode(fields["model"], type=str)
    except (KeyError, msgspec.MsgspecError, RecursionError):
        return body  # its door says what is wrong with it
    fields["model"] = msgspec.Raw(msgspec.json.encode(model.removeprefix(_PREFIX)))
    return msgspec.json.encode(fields)


def model_in(body: bytes) -> str:
    """The model that a body names; empty where it names none."""
    try:
        return msgspec.json.decode(body, type=_Named).model or ""
    except (msgspec.MsgspecError, RecursionError):
        return ""


def streams_in(body: bytes) -> bool:
    """Whether a body asks for its answer in events."""
    try:
        return msgspec.json.decode(body, type=_Streaming).stream in (True, "true")
    except (msgspec.MsgspecError, RecursionError):
        return False


class _Named(msgspec.Struct):
    model: str | None = None


class _Streaming(msgspec.Struct):
    stream: bool | str | None = None
