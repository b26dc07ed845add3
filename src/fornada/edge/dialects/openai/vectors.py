"""A text-embeddings model's answer as OpenAI's list of embeddings."""

import base64
import math
from array import array
from collections.abc import Sequence
from sys import byteorder
from typing import Any

import msgspec

from fornada.core.errors import BadRequest, FornadaError, ModelRaised
from fornada.core.requests import AnswerHead
from fornada.edge.calls import JSON_TYPE, Exchange


class _Vectors(msgspec.Struct, frozen=True):
    """What a text-embeddings model answers."""

    data: list[list[float | None]]
    usage: dict[str, Any] = {}


class _Texts(msgspec.Struct, frozen=True):
    """The same, with each vector left as text: what asks for floats gets the model's own digits."""

    data: list[msgspec.Raw]
    usage: dict[str, Any] = {}


class VectorsSink:
    """The Sink of one request for embeddings."""

    __slots__ = ("_base64", "_count", "_dimensions", "_exchange", "_model")

    def __init__(self, exchange: Exchange, *, model: str, count: int, base64: bool, dimensions: int | None) -> None:
        self._exchange = exchange
        self._model = model
        self._count = count
        self._base64 = base64
        self._dimensions = dimensions

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        try:
            vectors, usage = self._read(body)
            if len(vectors) != self._count:
                raise ModelRaised(f"the model answered {len(vectors)} vectors for {self._count} texts")
        except (msgspec.MsgspecError, RecursionError):
            self._exchange.fail(ModelRaised("the model's answer is no list of vectors under 'data'"), from_model=True)
            return
        except FornadaError as error:
            self._exchange.fail(error, from_model=True)
            return
        data = b",".join(b'{"object":"embedding","index":%d,"embedding":%b}' % (number, vector) for number, vector in enumerate(vectors))
        tail = msgspec.json.encode({"model": self._model, "usage": tokens(head.usage or usage)})[1:]
        if head.nonfinite:
            tail = tail[:-1] + b',"nonfinite":true}'
        self._exchange.reply(200, JSON_TYPE, (b'{"object":"list","data":[', data, b"],", tail), head.run_s)

    def refuse(self, error: FornadaError) -> None:
        self._exchange.fail(error, from_model=True)

    def stream_begins(self, head: AnswerHead) -> None:
        self._exchange.give_up(ModelRaised("the model streams: that is no answer to a request for embeddings"))

    def item(self, data: bytes) -> None:
        pass  # it was refused when it began

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        pass

    def _read(self, body: bytes | memoryview) -> tuple[Sequence[bytes], dict[str, Any]]:
        if not self._base64 and self._dimensions is None:
            found = msgspec.json.decode(body, type=_Texts)
            return [bytes(vector) for vector in found.data], found.usage
        vectors = msgspec.json.decode(body, type=_Vectors)
        return [self._written(vector) for vector in vectors.data], vectors.usage

    def _written(self, vector: list[float | None]) -> bytes:
        if self._dimensions is not None:
            vector = shortened(vector, self._dimensions)
        if not self._base64:
            return msgspec.json.encode(vector)
        numbers = array("f", [math.nan if number is None else number for number in vector])
        if byteorder == "big":
            numbers.byteswap()
        return b'"%b"' % base64.b64encode(numbers.tobytes())


def shortened(vector: list[float | None], dimensions: int) -> list[float | None]:
    """The first `dimensions` numbers, of length 1 again. Raises BadRequest where the vector has fewer."""
    if dimensions > len(vector):
        raise BadRequest(f"'dimensions' is {dimensions}, but this model's vectors have {len(vector)}")
    if dimensions == len(vector):
        return vector
    kept = vector[:dimensions]
    length = math.hypot(*[number for number in kept if number is not None])
    return [number if number is None or not length else number / length for number in kept]


def tokens(usage: dict[str, Any]) -> dict[str, int]:
    """Usage in OpenAI's words; 0 where the model doesn't count."""
    prompt = _whole(usage.get("prompt_tokens", usage.get("input_tokens")))
    return {"prompt_tokens": prompt, "total_tokens": _whole(usage.get("total_tokens")) or prompt}


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
