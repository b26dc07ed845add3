"""`POST /v1/embeddings`: a text-embeddings model in OpenAI's words.

OpenAI's clients send up to 2048 texts at once, LangChain's a thousand; the task promises a model at most 100 of them. So a
longer list is run a hundred at a time, by one version of the model and within one deadline. A model with a schema of its own
says itself how many it takes.
"""

import msgspec

from fornada.core import errors
from fornada.core.errors import BadRequest
from fornada.core.keys import Role
from fornada.core.names import AccountId
from fornada.edge.calls import Exchange, Operation
from fornada.edge.dialects.openai.in_turn import InTurn
from fornada.edge.dialects.openai.vectors import VectorsSink
from fornada.edge.json_bodies import broken, fields_of
from fornada.edge.platform_options import read_options
from fornada.edge.v1_door import V1Door

MOST_INPUTS = 2048
MOST_A_RUN = 100
"""Texts of one request to a model: what the task's schema says."""


class Asked(msgspec.Struct, frozen=True):
    """The request's body, as far as it matters here. Unknown fields are let through, as everywhere."""

    model: str
    input: str | list[str | int | list[int]]
    encoding_format: str | None = None
    dimensions: int | None = None
    options: msgspec.Raw | None = None


EMBED = Operation(
    "createEmbeddings",
    "Turn texts into vectors",
    needs=Role.USER,
    answer={
        "type": "object",
        "properties": {
            "object": {"const": "list"},
            "data": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "object": {"const": "embedding"},
                        "index": {"type": "integer"},
                        "embedding": {"oneOf": [{"type": "array", "items": {"type": ["number", "null"]}}, {"type": "string"}]},
                    },
                },
            },
            "model": {"type": "string"},
            "usage": {"type": "object", "properties": {"prompt_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"}}},
        },
        "required": ["object", "data", "model", "usage"],
    },
    takes={
        "application/json": {
            "type": "object",
            "properties": {
                "model": {"type": "string"},
                "input": {
                    "oneOf": [
                        {"type": "string", "minLength": 1},
                        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": MOST_INPUTS},
                    ]
                },
                "encoding_format": {"enum": ["float", "base64", None], "description": "base64: little-endian 32-bit floats"},
                "dimensions": {"type": ["integer", "null"], "minimum": 1, "description": "Cut to so many numbers, and scaled to length 1"},
            },
            "required": ["model", "input"],
        }
    },
    errors=(errors.BadRequest, errors.UnknownModel, errors.TooLarge, errors.Busy, errors.DeadlinePassed, errors.Unavailable),
)


class EmbeddingsDoor(V1Door):
    """The hot route of embeddings."""

    route = "embeddings"
    task = "text-embeddings"
    makes = "no embeddings"

    def ask(self, exchange: Exchange, account: AccountId) -> None:
        asked, texts = read_request(exchange.body())
        resolved, contract = self.model(exchange, asked.model, account)
        reject_if_busy = asked.options is not None and read_options(asked.options).reject_if_busy
        base64 = asked.encoding_format == "base64"
        if len(texts) > MOST_A_RUN and contract.drop_nulls:
            groups = [texts[at : at + MOST_A_RUN] for at in range(0, len(texts), MOST_A_RUN)]
            bodies = (msgspec.json.encode({"text": group}) for group in groups)
            requests = self._invoker.requests(exchange, resolved, account, bodies, reject_if_busy=reject_if_busy)
            turns = InTurn(exchange, self._invoker.submit, requests)
            counts = [len(group) for group in groups]
            sink = VectorsSink(exchange, model=asked.model, counts=counts, base64=base64, dimensions=asked.dimensions, go_on=turns.go_on)
            turns.go_on(sink)
            return
        given = {"text": texts}
        if not contract.drop_nulls:
            contract.check(given)
        sink = VectorsSink(exchange, model=asked.model, counts=[len(texts)], base64=base64, dimensions=asked.dimensions)
        self._invoker.run(exchange, sink, resolved, account, (msgspec.json.encode(given),), reject_if_busy=reject_if_busy)


def read_request(body: bytes) -> tuple[Asked, list[str]]:
    """A request for embeddings, and its texts. Raises BadRequest with the field's name."""
    fields_of(body)
    try:
        asked = msgspec.json.decode(body, type=Asked)
    except msgspec.ValidationError as error:
        raise BadRequest(_named(str(error))) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise broken(error) from None
    given = [asked.input] if isinstance(asked.input, str) else asked.input
    texts = [text for text in given if isinstance(text, str) and text]
    if len(given) > MOST_INPUTS:
        raise BadRequest(f"'input' may hold at most {MOST_INPUTS} texts")
    if not all(isinstance(text, str) for text in given):
        raise BadRequest("'input' holds tokens: this node takes texts, since each model has a tokenizer of its own")
    if not given or len(texts) < len(given):
        raise BadRequest("'input' is empty, or holds an empty text")
    if asked.encoding_format not in (None, "float", "base64"):
        raise BadRequest("'encoding_format' must be float or base64")
    if asked.dimensions is not None and asked.dimensions < 1:
        raise BadRequest("'dimensions' must be at least 1")
    return asked, texts


def _named(complaint: str) -> str:
    """msgspec's complaint with the field first: it names it at the end, and a missing one not as a place."""
    text, mark, place = complaint.partition(" - at `$.")
    if mark:
        return f"'{place.rstrip('`')}': {text}"
    return complaint.replace("Object missing required field", "missing the field").replace("`", "'")
