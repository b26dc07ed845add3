"""A request's body: rows ("instances"), columns ("inputs"), or examples, as values by input."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.specs import TensorSpec, TensorsSpec
from fornada.core.tensors import Tensor, described
from fornada.edge.json_bodies import check_once, fields_of, value_of
from fornada_sdk.wire.tensors import flattened, packed

SIGNATURE = "serving_default"
_FLOATS = frozenset({"FP16", "FP32", "FP64", "BF16"})


class Asked(NamedTuple):
    """A request, understood as far as it can be without the model."""

    values: Any
    """{name: nested lists}, or nested lists where a model has one input."""
    rows: int | None
    """How many there are, where the answer is to be in rows."""


def read_predict(body: bytes) -> Asked:
    """Raises BadRequest that names the field."""
    fields = fields_of(body)
    _check_signature(fields)
    if ("instances" in fields) == ("inputs" in fields):
        raise BadRequest("the body must hold either 'instances' (rows) or 'inputs' (columns)")
    if "inputs" in fields:
        columns = value_of(fields["inputs"])
        check_once(body, _keys(fields, [columns]))
        return Asked(columns, None)
    instances = value_of(fields["instances"])
    if not isinstance(instances, list) or not instances:
        raise BadRequest("'instances' must be a list of at least one row")
    check_once(body, _keys(fields, instances))
    return Asked(_columns(instances, "instances"), len(instances))


def read_examples(body: bytes) -> Asked:
    """Raises BadRequest that names the field."""
    fields = fields_of(body)
    _check_signature(fields)
    examples = value_of(fields["examples"]) if "examples" in fields else None
    context = value_of(fields["context"]) if "context" in fields else {}
    if not isinstance(examples, list) or not examples or not all(isinstance(each, dict) for each in examples):
        raise BadRequest("'examples' must be a list of at least one object: features by name")
    if not isinstance(context, dict):
        raise BadRequest("'context' must be an object: features by name")
    check_once(body, _keys(fields, [context, *examples]))
    return Asked(_columns([{**context, **each} for each in examples], "examples"), len(examples))


def _keys(fields: Mapping[str, msgspec.Raw], rows: Sequence[Any]) -> list[str]:
    return [*fields, *(name for row in rows if _is_named(row) for name in row)]


def _check_signature(fields: Mapping[str, msgspec.Raw]) -> None:
    name = value_of(fields["signature_name"]) if "signature_name" in fields else ""
    if name not in ("", SIGNATURE):
        raise BadRequest(f'Serving signature key "{str(name)[:100]}" not found: signature_name can only be {SIGNATURE}')


def _columns(rows: Sequence[Any], field: str) -> Any:
    """Rows as columns: named ones where rows are objects."""
    if not any(_is_named(row) for row in rows):
        return list(rows)
    names = list(rows[0]) if _is_named(rows[0]) else []
    for number, row in enumerate(rows):
        if not _is_named(row) or row.keys() != set(names):
            raise BadRequest(f"'{field}[{number}]' must be an object with the names of the first one: {', '.join(names)[:200]}")
    return {name: [row[name] for row in rows] for name in names}


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and not _is_bytes(value)


def _is_bytes(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"}


def named(values: Any, declared: TensorsSpec) -> dict[str, Any]:
    """Values by input. Raises BadRequest where they are bare and the model has several."""
    if _is_named(values):
        return dict(values)
    if len(declared.inputs) != 1:
        raise BadRequest(f"the model has {len(declared.inputs)} inputs, {described(declared.inputs)}: name each")
    return {declared.inputs[0].name: values}


def tensors_of(values: Any, declared: TensorsSpec) -> list[Tensor]:
    """Tensors of the types that the model declares. Raises BadRequest that names the input."""
    specs = {spec.name: spec for spec in declared.inputs}
    found = []
    for name, value in named(values, declared).items():
        spec = specs.get(name)
        if spec is None:
            raise BadRequest(f"input '{name[:80]}': the model has no such input; it takes {described(declared.inputs)}")
        found.append(_tensor(spec, value))
    return found


def _tensor(spec: TensorSpec, value: Any) -> Tensor:
    try:
        flat, shape = flattened(value)
        return Tensor(spec.name, spec.dtype, shape, packed([_checked(each, spec.dtype) for each in flat], spec.dtype))
    except ValueError as error:
        raise BadRequest(f"input '{spec.name}': {error}") from None


def _checked(value: Any, dtype: str) -> Any:
    if dtype == "BYTES":
        if isinstance(value, str):
            return value
        if _is_bytes(value) and isinstance(value["b64"], str):
            try:
                return base64.b64decode(value["b64"], validate=True)
            except (binascii.Error, ValueError):
                raise ValueError("a value is no base64") from None
    elif dtype == "BOOL":
        if isinstance(value, bool):
            return value
    elif not isinstance(value, bool) and isinstance(value, (int, float) if dtype in _FLOATS else int):
        return value
    shown = msgspec.json.encode(value).decode()[:40]
    raise ValueError(f"JSON Value: {shown} is not of expected type: {dtype}")
