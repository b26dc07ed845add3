"""What TensorFlow Serving says about models: their status, and their signatures."""

from typing import Any

from fornada.core.errors import BadRequest, Busy, DeadlinePassed, LoadFailed, NeverFits, UnknownModel
from fornada.core.keys import Role
from fornada.core.names import Reference, parse_reference
from fornada.core.ports import CatalogPort, OperationsPort, Resolved
from fornada.core.specs import TensorSpec
from fornada.edge.calls import Call, Operation, Reply, Route, json_reply
from fornada.edge.dialects.tfserving.body import SIGNATURE
from fornada.edge.invoke import RUN_ERRORS, RUN_HEADERS
from fornada.edge.problems import Style
from fornada.edge.tensor_signatures import Signatures
from fornada.edge.version_numbers import Numbered, number_of, status_by

_MODEL = "/v1/models/{name:path}"
_PLACES = {"OfNumber": f"{_MODEL}/versions/{{number}}", "OfLabel": f"{_MODEL}/labels/{{label}}"}
DTYPES = {
    "FP16": "DT_HALF",
    "FP32": "DT_FLOAT",
    "FP64": "DT_DOUBLE",
    "BF16": "DT_BFLOAT16",
    "BYTES": "DT_STRING",
}
"""The protocol's data type -> TensorFlow's; all others are DT_ and the same name."""
_ANY: dict[str, Any] = {}
_ROWS = {"type": "array", "minItems": 1}
_PREDICT: dict[str, Any] = {
    "type": "object",
    "properties": {"signature_name": {"enum": ["", SIGNATURE]}, "instances": _ROWS, "inputs": _ANY},
    "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}],
}
_FEATURES: dict[str, Any] = {"type": "object", "description": 'Features by name; bytes as {"b64": base64}'}
_EXAMPLES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "signature_name": {"enum": ["", SIGNATURE]},
        "context": _FEATURES,
        "examples": {"type": "array", "items": _FEATURES, "minItems": 1},
    },
    "required": ["examples"],
}
_PREDICTED: dict[str, Any] = {
    "type": "object",
    "properties": {"predictions": {"type": "array"}, "outputs": _ANY, "nonfinite": {"const": True}},
}
_RESULTS: dict[str, Any] = {
    "type": "object",
    "properties": {"results": {"type": "array"}, "nonfinite": {"const": True}},
    "required": ["results"],
}
_STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {"model_version_status": {"type": "array"}},
    "required": ["model_version_status"],
}
_METADATA: dict[str, Any] = {
    "type": "object",
    "properties": {"model_spec": {"type": "object"}, "metadata": {"type": "object"}},
    "required": ["model_spec", "metadata"],
}
_MODEL_ERRORS = (BadRequest, UnknownModel)


def routes(*, catalog: CatalogPort, operations: OperationsPort, signatures: Signatures, numbered: Numbered) -> list[Route]:
    """All routes of the dialect but `GET /v1/models/{name}`, which is one with OpenAI's; the hot ones as descriptions."""
    handlers = _Handlers(catalog, operations, signatures, numbered)
    found: list[Route] = []
    for suffix, path in {**_PLACES, "": _MODEL}.items():
        for verb, takes, answer in (("predict", _PREDICT, _PREDICTED), ("classify", _EXAMPLES, _RESULTS), ("regress", _EXAMPLES, _RESULTS)):
            run = Operation(
                f"{verb}Tensors{suffix}",
                f"TensorFlow Serving's {verb}",
                answer,
                needs=Role.USER,
                parameters=RUN_HEADERS,
                takes={"application/json": takes},
                errors=RUN_ERRORS,
            )
            found.append(Route(f"{path}:{verb}", Style.TEXT, {"POST": run}))
        about = Operation(
            f"servingMetadata{suffix}",
            "A model's signature",
            _METADATA,
            handlers.metadata,
            Role.USER,
            errors=(*_MODEL_ERRORS, LoadFailed, Busy, NeverFits, DeadlinePassed),
        )
        found.append(Route(f"{path}/metadata", Style.TEXT, {"GET": about}))
    for suffix, path in _PLACES.items():
        status = Operation(
            f"servingStatus{suffix}", "Whether a version can be asked", _STATUS, handlers.status, Role.USER, errors=_MODEL_ERRORS
        )
        found.append(Route(path, Style.TEXT, {"GET": status}))
    return found


class _Handlers:
    """Of Calls."""

    def __init__(self, catalog: CatalogPort, operations: OperationsPort, signatures: Signatures, numbered: Numbered) -> None:
        self._catalog = catalog
        self._status = status_by(operations)
        self._signatures = signatures
        self._numbered = numbered

    async def status(self, call: Call) -> Reply:
        resolved = self._resolve(call)
        (said,) = self._status(resolved.entry)
        return json_reply({"model_version_status": [{**said, "version": self._number(resolved)}]})

    async def metadata(self, call: Call) -> Reply:
        resolved = self._resolve(call)
        known = await self._signatures.of(resolved, call.facts.timeout_s)
        signature = {
            "inputs": {each.name: _shown(each) for each in known.inputs},
            "outputs": {each.name: _shown(each) for each in known.outputs},
            "method_name": "tensorflow/serving/predict",
        }
        spec = {"name": call.parameters["name"], "signature_name": "", "version": self._number(resolved)}
        return json_reply({"model_spec": spec, "metadata": {"signature_def": {"signature_def": {SIGNATURE: signature}}}})

    def _resolve(self, call: Call) -> Resolved:
        name = call.parameters["name"].strip("/")
        try:
            if label := call.parameters.get("label"):
                return self._catalog.resolve(parse_reference(f"{name}:{label}"), call.sees)
            resolved = self._catalog.resolve(parse_reference(name), call.sees)
            if number := call.parameters.get("number"):
                digest = self._numbered.digest(resolved.entry, number)
                return self._catalog.resolve(Reference(resolved.entry.name, version=digest), call.sees)
        except UnknownModel as refusal:
            raise UnknownModel(f"Could not find any versions of model {name}", nearest=refusal.nearest) from None
        return resolved

    def _number(self, resolved: Resolved) -> str:
        digest = resolved.version or resolved.entry.answering.digest
        return next((number_of(each) for each in self._numbered.versions(resolved.entry) if each.digest == digest), "1")


def _shown(spec: TensorSpec) -> dict[str, Any]:
    dims = [{"size": str(size), "name": ""} for size in spec.shape]
    return {
        "dtype": DTYPES.get(spec.dtype, f"DT_{spec.dtype}"),
        "tensor_shape": {"dim": dims, "unknown_rank": False},
        "name": f"{SIGNATURE}_{spec.name}:0",
    }
