"""`POST /v2/models/{model}[/versions/{version}]/infer`."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fornada.core.errors import FornadaError, UnknownModel
from fornada.core.names import Reference, parse_reference
from fornada.core.tensors import Tensor
from fornada.edge.calls import JSON_TYPE, Exchange, Target
from fornada.edge.dialects.oip.body import HEADER_LENGTH, Asked, decompressed, read_request
from fornada.edge.dialects.oip.classes import classified
from fornada.edge.invoke import Invoker
from fornada.edge.problems import Style
from fornada.edge.targets import decoded
from fornada.edge.tensor_calls import TensorCalls, TensorModel, TensorSink, seconds
from fornada.edge.tensor_json import check_size, texts, values

_PATH = re.compile(rb"/v2/models/(.+?)(?:/versions/([^/]+))?/infer/*\Z", re.DOTALL)
MICROSECONDS = 1e-6
NOT_FOR_MODELS = ("timeout", "priority", "sequence_id", "sequence_start", "sequence_end")
"""Parameters of Triton's scheduler; the model isn't told."""


class InferDoor:
    """The hot route of the protocol."""

    def __init__(self, invoker: Invoker, calls: TensorCalls) -> None:
        self._invoker = invoker
        self._calls = calls

    def match(self, path: bytes, query: bytes) -> Target | None:
        found = _PATH.match(path)
        if found is None:
            return None
        try:
            name = decoded(found[1]).strip("/")
            reference = reference_of(name, decoded(found[2]) if found[2] else "")
        except FornadaError as error:
            return Target(door=self, style=Style.TEXT, error=error)
        return Target(door=self, style=Style.TEXT, name=name, reference=reference)

    def limit(self, target: Target) -> int:
        try:
            return self._invoker.limit(target)
        except UnknownModel as refusal:
            raise UnknownModel(f"No such model {target.name}", nearest=refusal.nearest) from None

    def handle(self, exchange: Exchange) -> None:
        target = exchange.target
        try:
            assert target.reference is not None
            account = exchange.facts.caller.acting_for(None)
            model = self._calls.find(exchange, target.name, target.reference, account)
            header = exchange.facts.get(HEADER_LENGTH)
            body = exchange.body()
            if (encoding := exchange.facts.get(b"content-encoding")) is not None:
                body = decompressed(body, encoding.decode("latin-1"), model.resolved.spec.serving.max_body)
            asked = read_request(body, None if header is None else header.decode("latin-1"))
            self._calls.submit(
                exchange,
                InferSink(exchange, asked, target.name, model),
                model,
                account,
                asked.tensors,
                parameters={name: value for name, value in asked.parameters.items() if name not in NOT_FOR_MODELS},
                wanted=asked.wanted,
                timeout_s=seconds(asked.parameters.get("timeout"), MICROSECONDS),
            )
        except FornadaError as error:
            exchange.fail(error)


def reference_of(name: str, version: str) -> Reference:
    """A model, and perhaps one version of it. Raises BadRequest."""
    return parse_reference(f"{name}:{version}" if version else name)


class InferSink(TensorSink):
    """The protocol's answer: JSON, with tensors as bytes behind it where they were asked for so."""

    def __init__(self, exchange: Exchange, asked: Asked, name: str, model: TensorModel) -> None:
        super().__init__(exchange, asked.wanted)
        self._asked = asked
        self._name = name
        self._version = model.version

    def tell(self, tensors: Sequence[Tensor], parameters: Mapping[str, Any], run_s: float) -> None:
        asked = self._asked
        if asked.classes:
            tensors = classified(tensors, asked.classes)
        outputs, pieces = [], []
        nonfinite = any(isinstance(value, float) and not math.isfinite(value) for value in parameters.values())
        check_size(tensor for tensor in tensors if not asked.binary.get(tensor.name, asked.all_binary))
        for tensor in tensors:
            shown: dict[str, Any] = {"name": tensor.name, "datatype": tensor.dtype, "shape": tensor.shape}
            if asked.binary.get(tensor.name, asked.all_binary):
                shown["parameters"] = {"binary_data_size": len(tensor.data)}
                pieces.append(tensor.data)
            else:
                flat, infinite = values(tensor)
                nonfinite = nonfinite or infinite
                if tensor.dtype == "BYTES":
                    flat, is_base64 = texts(flat)
                    if is_base64:
                        shown["parameters"] = {"content_type": "base64"}
                shown["data"] = flat
            outputs.append(shown)
        answer: dict[str, Any] = {"model_name": self._name, "model_version": self._version}
        if asked.id:
            answer["id"] = asked.id
        if parameters:
            answer["parameters"] = parameters
        answer["outputs"] = outputs
        if nonfinite:
            answer["nonfinite"] = True
        text = msgspec.json.encode(answer)
        lines = (
            JSON_TYPE
            if not pieces
            else b"content-type: application/octet-stream\r\n" + b"%b: %d\r\n" % (b"inference-header-content-length", len(text))
        )
        self.exchange.reply(200, lines, (text, *pieces), run_s)
