"""`POST /v1/models/{model}[/versions/{number}|/labels/{label}]:predict`, `:classify`, `:regress`."""

import re

import msgspec

from fornada.core.errors import BadRequest, FornadaError, UnknownModel
from fornada.core.names import AccountId, Reference, parse_reference
from fornada.edge.calls import Exchange, Target
from fornada.edge.dialects.tfserving.answer import ServingSink, Shape, WeightsSink
from fornada.edge.dialects.tfserving.body import read_examples, read_predict, tensors_of
from fornada.edge.invoke import Invoker
from fornada.edge.problems import Style
from fornada.edge.targets import decoded
from fornada.edge.tensor_calls import TensorCalls
from fornada.edge.tensor_json import check_text
from fornada.edge.version_numbers import Numbered

_PATH = re.compile(
    rb"/v1/models/(?P<name>.+?)(?:/versions/(?P<number>\d{1,19})|/labels/(?P<label>[^/]+))?(?::|%3[Aa])(?P<verb>predict|classify|regress)/*\Z",
    re.DOTALL,
)


class ServingDoor:
    """The hot routes."""

    def __init__(self, invoker: Invoker, calls: TensorCalls, numbered: Numbered) -> None:
        self._invoker = invoker
        self._calls = calls
        self._numbered = numbered

    def match(self, path: bytes, query: bytes) -> Target | None:
        found = _PATH.match(path)
        if found is None:
            return None
        query_of_target = {"verb": found["verb"].decode(), "number": (found["number"] or b"").decode()}
        try:
            name = decoded(found["name"]).strip("/")
            reference = parse_reference(f"{name}:{decoded(found['label'])}" if found["label"] else name)
        except FornadaError as error:
            return Target(door=self, style=Style.TEXT, error=error)
        return Target(door=self, style=Style.TEXT, name=name, reference=reference, query=query_of_target)

    def limit(self, target: Target) -> int:
        try:
            return self._invoker.limit(target)
        except UnknownModel as refusal:
            raise UnknownModel(f"Could not find any versions of model {target.name}", nearest=refusal.nearest) from None

    def handle(self, exchange: Exchange) -> None:
        target = exchange.target
        try:
            assert target.reference is not None
            account = exchange.facts.caller.acting_for(None)
            model = self._calls.find(exchange, target.name, self._versioned(target, account), account)
            verb = target.query["verb"]
            check_text(exchange.size)
            asked = read_predict(exchange.body()) if verb == "predict" else read_examples(exchange.body())
            shape = Shape(verb, asked.rows)
            if model.declared is not None:
                tensors = tensors_of(asked.values, model.declared)
                self._calls.submit(exchange, ServingSink(exchange, shape), model, account, tensors, parameters={})
                return
            body = msgspec.json.encode({"inputs": asked.values})
            self._invoker.run(exchange, WeightsSink(exchange, shape), model.resolved, account, (body,))
        except FornadaError as error:
            exchange.fail(error)

    def _versioned(self, target: Target, account: AccountId) -> Reference:
        reference = target.reference
        assert reference is not None
        number = target.query["number"]
        if not number:
            return reference
        if reference.version or reference.label:
            raise BadRequest("the path names a version twice")
        entry = self._invoker.resolve(reference, account).entry
        return Reference(reference.name, version=self._numbered.digest(entry, number))
