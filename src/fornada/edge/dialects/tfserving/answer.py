"""A model's outputs as predictions, classes or numbers."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fornada.core.errors import BadRequest, FornadaError, ModelRaised
from fornada.core.requests import AnswerHead
from fornada.core.tensors import Tensor
from fornada.edge.calls import JSON_TYPE, Exchange
from fornada.edge.tensor_calls import TensorSink
from fornada.edge.tensor_json import check_size, values
from fornada_sdk.wire.tensors import nested

BINARY = "_bytes"
"""At the end of an output's name: its values are base64, whatever they hold. The guide's "Encoding binary values" has the convention."""


class Shape:
    """Makes one verb's body of nested lists by output."""

    def __init__(self, verb: str, rows: int | None) -> None:
        self._verb = verb
        self._rows = rows

    def body(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Raises BadRequest for outputs that the verb has no use for: it was the caller's choice."""
        if self._verb == "predict":
            return self._predictions(outputs)
        results = self._classes(outputs) if self._verb == "classify" else self._numbers(outputs)
        return {"results": results, "result": results}  # the server says the one, its documentation the other

    def _predictions(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        if self._rows is None:
            return {"outputs": next(iter(outputs.values())) if len(outputs) == 1 else outputs}
        for name, value in outputs.items():
            self._check_rows(name, value)
        if len(outputs) == 1:
            return {"predictions": next(iter(outputs.values()))}
        return {"predictions": [{name: value[row] for name, value in outputs.items()} for row in range(self._rows)]}

    def _classes(self, outputs: Mapping[str, Any]) -> list[Any]:
        """[[label, score], ...] a row. Without labels they are empty, as TensorFlow Serving has them."""
        scores = outputs.get("scores", _only(outputs, lambda leaf: not isinstance(leaf, str | dict)))
        labels = outputs.get("classes", _only(outputs, lambda leaf: isinstance(leaf, str | dict)))
        if scores is None and labels is None:
            raise BadRequest("the model can't classify: it has no output 'scores' or 'classes'; ask it by :predict")
        for name, value in (("scores", scores), ("classes", labels)):
            if value is not None:
                self._check_rows(name, value)
        if scores is None:
            scores = [[0.0] * len(_listed(row)) for row in labels]
        if labels is None:
            labels = [[""] * len(_listed(row)) for row in scores]
        return [[list(pair) for pair in zip(_listed(a), _listed(b), strict=False)] for a, b in zip(labels, scores, strict=True)]

    def _numbers(self, outputs: Mapping[str, Any]) -> list[Any]:
        numbers = _only(outputs, lambda leaf: not isinstance(leaf, str | dict))
        if numbers is None:
            raise BadRequest("the model can't regress: that needs one output of numbers; ask it by :predict")
        self._check_rows("the output", numbers)
        found = [_listed(row) for row in numbers]
        if any(len(row) != 1 for row in found):
            raise BadRequest("the model can't regress: its output has more than one number a row; ask it by :predict")
        return [row[0] for row in found]

    def _check_rows(self, name: str, value: Any) -> None:
        if not isinstance(value, list) or len(value) != self._rows:
            raise BadRequest(f"'{name}' has inconsistent batch size: {self._rows} rows were sent; ask in columns ('inputs') instead")


def _listed(row: Any) -> list[Any]:
    return row if isinstance(row, list) else [row]


def _only(outputs: Mapping[str, Any], fits: Any) -> Any:
    found = [value for value in outputs.values() if fits(_leaf(value))]
    return found[0] if len(found) == 1 else None


def _leaf(value: Any) -> Any:
    while isinstance(value, list) and value:
        value = value[0]
    return value


class ServingSink(TensorSink):
    """Of a model that was asked with tensors."""

    def __init__(self, exchange: Exchange, shape: Shape) -> None:
        super().__init__(exchange, ())
        self._shape = shape

    def tell(self, tensors: Sequence[Tensor], parameters: Mapping[str, Any], run_s: float) -> None:
        check_size(tensors)
        outputs: dict[str, Any] = {}
        nonfinite = False
        for tensor in tensors:
            flat, infinite = values(tensor)
            nonfinite = nonfinite or infinite
            if tensor.dtype == "BYTES":
                flat = [_text(value, is_binary=tensor.name.endswith(BINARY)) for value in flat]
            outputs[tensor.name] = nested(flat, tensor.shape)
        reply(self.exchange, self._shape.body(outputs), nonfinite, run_s)


class WeightsSink(TensorSink):
    """Of weights that alone know their types: asked, and answering, in JSON."""

    def __init__(self, exchange: Exchange, shape: Shape) -> None:
        super().__init__(exchange, ())
        self._shape = shape

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        try:
            try:
                outputs = msgspec.json.decode(body)["outputs"]
                if not isinstance(outputs, dict):
                    raise TypeError
            except (msgspec.MsgspecError, KeyError, TypeError, RecursionError):
                raise ModelRaised("the model answered something else than tensors") from None
            outputs = {name: _as_binary(value) if name.endswith(BINARY) else value for name, value in outputs.items()}
            reply(self.exchange, self._shape.body(outputs), head.nonfinite, head.run_s)
        except FornadaError as error:
            self.exchange.fail(error, from_model=True)


def reply(exchange: Exchange, body: dict[str, Any], nonfinite: bool, run_s: float) -> None:
    """The answer."""
    if nonfinite:
        body["nonfinite"] = True
    exchange.reply(200, JSON_TYPE, (msgspec.json.encode(body),), run_s)


def _text(value: bytes, *, is_binary: bool) -> Any:
    try:
        return _encoded(value) if is_binary else value.decode()
    except UnicodeDecodeError:
        return _encoded(value)


def _as_binary(value: Any) -> Any:
    """Texts as bytes, in lists of any depth."""
    if isinstance(value, list):
        return [_as_binary(each) for each in value]
    return _encoded(value.encode()) if isinstance(value, str) else value


def _encoded(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}
