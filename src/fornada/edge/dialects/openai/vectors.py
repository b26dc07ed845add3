"""A text-embeddings model's answer as OpenAI's list of embeddings."""

import base64
import math
from array import array
from collections.abc import Callable, Sequence
from sys import byteorder
from typing import Any

import msgspec

from fornada.core.errors import BadRequest, FornadaError, ModelRaised
from fornada.core.requests import AnswerHead, Sink
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
    """The Sink of one request for embeddings: of one run of the model, or of several after each other."""

    __slots__ = ("_base64", "_counts", "_dimensions", "_exchange", "_go_on", "_model", "_nonfinite", "_run_s", "_usage", "_written")

    def __init__(
        self,
        exchange: Exchange,
        *,
        model: str,
        counts: Sequence[int],
        base64: bool,
        dimensions: int | None,
        go_on: Callable[[Sink], None] | None = None,
    ) -> None:
        """`counts`: texts of each run. `go_on` starts the next one; None where there is but one."""
        self._exchange = exchange
        self._model = model
        self._counts = list(counts)
        self._base64 = base64
        self._dimensions = dimensions
        self._go_on = go_on
        self._written: list[bytes] = []
        self._usage = {"prompt_tokens": 0, "total_tokens": 0}
        self._nonfinite = False
        self._run_s = 0.0

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        count = self._counts.pop(0)
        try:
            vectors, usage = self._read(body)
            if len(vectors) != count:
                raise ModelRaised(f"the model answered {len(vectors)} vectors for {count} texts")
        except (msgspec.MsgspecError, RecursionError):
            self._exchange.fail(ModelRaised("the model's answer is no list of vectors under 'data'"), from_model=True)
            return
        except FornadaError as error:
            self._exchange.fail(error, from_model=True)
            return
        self._written += vectors
        for name, counted in tokens(head.usage or usage).items():
            self._usage[name] += counted
        self._nonfinite |= head.nonfinite
        self._run_s += head.run_s
        if not self._counts:
            self._reply()
        elif self._go_on is not None:
            self._go_on(self)

    def _reply(self) -> None:
        written = enumerate(self._written)
        data = b",".join(b'{"object":"embedding","index":%d,"embedding":%b}' % (number, vector) for number, vector in written)
        tail = msgspec.json.encode({"model": self._model, "usage": self._usage})[1:]
        if self._nonfinite:
            tail = tail[:-1] + b',"nonfinite":true}'
        self._exchange.reply(200, JSON_TYPE, (b'{"object":"list","data":[', data, b"],", tail), self._run_s)

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
        return [self._text_of(vector) for vector in vectors.data], vectors.usage

    def _text_of(self, vector: list[float | None]) -> bytes:
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
