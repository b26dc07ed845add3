"""What the hot routes below /v1 have in common, whichever API they are of: two places in the URL space, and a model that the body names."""

import re
from typing import ClassVar

from fornada.core.errors import BadRequest, FornadaError, TooLarge, UnknownModel
from fornada.core.names import AccountId, parse_reference
from fornada.core.ports import Resolved
from fornada.core.resources import format_size
from fornada.edge.auth import account_of
from fornada.edge.calls import DEFAULT_BODY, Exchange, Target
from fornada.edge.invoke import Invoker
from fornada.edge.json_bodies import Fields, value_of
from fornada.edge.problems import Style
from fornada.edge.targets import decoded
from fornada.edge.validation import Contract


class V1Door:
    """Base of the doors; `ask` is theirs."""

    route: ClassVar[str]
    """Below /v1/."""
    task: ClassVar[str]
    """Of the models that it takes."""
    makes: ClassVar[str]
    """In words: "no embeddings"."""
    most: ClassVar[int] = DEFAULT_BODY
    """Bytes of a body, whatever the model."""

    def __init__(self, invoker: Invoker) -> None:
        self._path = re.compile(rb"(?:/client/v4/accounts/([^/]+)/ai)?/v1/%b/*\Z" % self.route.encode())
        self._invoker = invoker
        self._contracts = invoker.contracts
        self._resolve = invoker.resolve
        self._clock = invoker.clock

    def match(self, path: bytes, query: bytes) -> Target | None:
        found = self._path.match(path)
        if found is None:
            return None
        try:
            account = account_of(decoded(found[1])) if found[1] else None
        except FornadaError as error:
            return Target(door=self, style=Style.SUPERSET, error=error)
        return Target(door=self, style=Style.SUPERSET, account=account)

    def limit(self, target: Target) -> int:
        return self.most

    def handle(self, exchange: Exchange) -> None:
        try:
            self.ask(exchange, exchange.facts.caller.acting_for(exchange.target.account))
        except FornadaError as error:
            exchange.fail(error)

    def ask(self, exchange: Exchange, account: AccountId) -> None:
        """Reads the body and hands the request over. Raises FornadaError."""
        raise NotImplementedError

    def model(self, exchange: Exchange, name: str, account: AccountId, *, size: int | None = None) -> tuple[Resolved, Contract]:
        """The model that the body names. `size`: bytes that count towards its limit. Raises UnknownModel, TooLarge, BadRequest."""
        try:
            resolved = self._resolve(parse_reference(name), account)
        except UnknownModel as refusal:
            raise UnknownModel(f"The model '{name}' does not exist", nearest=refusal.nearest) from None
        contract = self._contracts.of(resolved)
        exchange.meter = contract.meter
        self._invoker.admit(exchange, resolved, account)
        if (exchange.size if size is None else size) > contract.max_body:
            raise TooLarge(
                f"Request is too large: this model takes bodies of at most {contract.max_body} bytes ({format_size(contract.max_body)})"
            )
        if resolved.spec.task != self.task:
            raise BadRequest(f"'model': {name} makes {self.makes}, its task is {resolved.spec.task}")
        return resolved, contract


def model_of(fields: Fields) -> str:
    """The model that the body names. Raises BadRequest."""
    name = value_of(fields["model"]) if "model" in fields else None
    if not isinstance(name, str) or not name:
        raise BadRequest("missing the field 'model'" if name is None else "'model' must be the name of a model")
    return name
