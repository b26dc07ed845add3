"""`POST /v1/images/generations`: pictures by a text-to-image model, one run for each of `n`.

    size        width and height; `auto` is left out
    seed        the first picture's, and one more for each that follows
    all else    as it is

Pictures come back in base64; with `response_format: url` as data URIs, since the node keeps none.
"""

import base64
from typing import Any

import msgspec

from fornada.core.errors import BadRequest, FornadaError, ModelRaised
from fornada.core.keys import Role
from fornada.core.names import AccountId
from fornada.core.requests import AnswerHead
from fornada.edge.body_schemas import BodySchema
from fornada.edge.calls import JSON_TYPE, Exchange, Operation
from fornada.edge.dialects.openai.in_turn import InTurn
from fornada.edge.invoke import RUN_ERRORS, RUN_HEADERS
from fornada.edge.media_kinds import kind_of, picture_in
from fornada.edge.platform_options import NO_OPTIONS, read_options
from fornada.edge.problems import is_refusal_of_model, model_refusal
from fornada.edge.v1_door import V1Door, model_of
from fornada.edge.validation import Contract

Object = dict[str, Any]
MOST = 10
_FORMATS = ("png", "jpeg", "webp")
_SCHEMA: Object = {
    "type": "object",
    "properties": {
        "model": {"type": "string", "minLength": 1, "description": "Name or alias of a text-to-image model"},
        "prompt": {"type": "string", "minLength": 1, "maxLength": 32_000},
        "n": {"type": ["integer", "null"], "minimum": 1, "maximum": MOST},
        "size": {
            "type": ["string", "null"],
            "pattern": r"^(auto|[1-9][0-9]{1,4}x[1-9][0-9]{1,4})$",
            "description": "auto, or width and height as in 512x512",
        },
        "response_format": {"enum": ["b64_json", "url", None], "description": "url: as data URIs, the node keeps no pictures"},
        "output_format": {"enum": [*_FORMATS, None], "description": "Unless said, what the model makes; refused where it makes another"},
        "stream": {"enum": [False, None], "description": "Not served"},
        "seed": {"type": ["integer", "null"]},
        "options": {"type": ["object", "null"], "properties": {"rejectIfBusy": {"type": ["boolean", "null"]}}},
    },
    "required": ["model", "prompt"],
}
BODY = BodySchema(_SCHEMA)
DRAW = Operation(
    "createImage",
    "Draw what a text says",
    {
        "type": "object",
        "properties": {
            "created": {"type": "integer"},
            "data": {
                "type": "array",
                "items": {"type": "object", "properties": {"b64_json": {"type": "string"}, "url": {"type": "string"}}},
            },
        },
        "required": ["created", "data"],
    },
    parameters=RUN_HEADERS,
    takes={"application/json": _SCHEMA},
    needs=Role.USER,
    errors=RUN_ERRORS,
)
_OURS = ("model", "n", "size", "response_format", "output_format", "stream", "options")


class ImagesDoor(V1Door):
    """The hot route of pictures."""

    route = "images/generations"
    task = "text-to-image"
    makes = "no pictures"

    def ask(self, exchange: Exchange, account: AccountId) -> None:
        fields = BODY.fields(exchange.body())
        resolved, contract = self.model(exchange, model_of(fields), account)
        given = BODY.read(fields)
        options = read_options(fields["options"]) if "options" in fields else NO_OPTIONS
        bodies = [msgspec.json.encode(each) for each in inputs_of(given, contract)]
        requests = self._invoker.requests(exchange, resolved, account, bodies, reject_if_busy=options.reject_if_busy)
        turns = InTurn(exchange, self._invoker.submit, requests)
        sink = PicturesSink(exchange, given, turns, count=len(bodies), created=int(self._clock.wall()))
        turns.go_on(sink)


def inputs_of(given: Object, contract: Contract) -> list[Object]:
    """What the model gets for each picture. Raises BadRequest."""
    asked = {name: value for name, value in given.items() if name not in _OURS}
    size = given.get("size") or "auto"
    if size != "auto":
        width, _, height = size.partition("x")
        asked.update(width=int(width), height=int(height))
    contract.check(asked)
    count = given.get("n") or 1
    if "seed" not in asked:
        return [asked] * count
    return [{**asked, "seed": asked["seed"] + number} for number in range(count)]


class PicturesSink:
    """The Sink of one request for pictures, of all its runs."""

    __slots__ = ("_count", "_created", "_data", "_exchange", "_given", "_run_s", "_turns")

    def __init__(self, exchange: Exchange, given: Object, turns: InTurn, *, count: int, created: int) -> None:
        self._exchange = exchange
        self._given = given
        self._turns = turns
        self._count = count
        self._created = created
        self._data: list[Object] = []
        self._run_s = 0.0

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        exchange = self._exchange
        if is_refusal_of_model(head.http_status):
            exchange.reply(head.http_status, JSON_TYPE, (model_refusal(head.http_status, head.message),), head.run_s)
            return
        try:
            self._data.append(self._shown(picture_in(head, body)))
        except FornadaError as error:
            exchange.fail(error, from_model=True)
            return
        self._run_s += head.run_s
        if len(self._data) < self._count:
            self._turns.go_on(self)
            return
        exchange.reply(200, JSON_TYPE, (msgspec.json.encode({"created": self._created, "data": self._data}),), self._run_s)

    def refuse(self, error: FornadaError) -> None:
        self._exchange.fail(error, from_model=True)

    def stream_begins(self, head: AnswerHead) -> None:
        self._exchange.give_up(ModelRaised("the model streams: that is no answer to a request for a picture"))

    def item(self, data: bytes) -> None:
        pass  # it was refused when it began

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        pass

    def _shown(self, picture: bytes) -> Object:
        """Raises BadRequest where it is of another kind than was asked for."""
        found, wanted = kind_of(picture), self._given.get("output_format")
        if wanted is not None and found.name != wanted:
            raise BadRequest(f"'output_format': this model answered with {found.name or 'a picture of an unknown kind'}, not with {wanted}")
        text = base64.b64encode(picture).decode()
        return {"url": f"data:{found.type};base64,{text}"} if self._given.get("response_format") == "url" else {"b64_json": text}
