"""What a model returned for a request of tensors, as tensors on the wire."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fornada_sdk.api_tensors import Tensor, Tensors, jsonable
from fornada_sdk.runner.encoding import head_json
from fornada_sdk.runner.received import TENSORS_TYPE
from fornada_sdk.wire.messages import with_head

WORD_LONGEST = 1000


def of_result(result: Any, declared: Sequence[Any], head: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """(body, what its head says) of what model code returned. `declared`: the model's outputs; `head`: the request's.

    Raises TypeError or ValueError where it is no mapping of names to tensors.
    """
    if not isinstance(result, dict):
        raise TypeError(f"a request of tensors is to be answered by named tensors, and the model returned {type(result).__name__}")
    parameters: dict[str, Any] = dict(result.parameters) if isinstance(result, Tensors) else {}
    dtypes = {each.name: each.dtype for each in declared}
    given: Mapping[str, Any] = result
    if type(result) is dict and set(result) == {"outputs"} and isinstance(result["outputs"], dict) and "outputs" not in dtypes:
        given = result["outputs"]  # as the engines without code answer JSON
    wanted = (head.get("tensors") or {}).get("wanted") or ()
    places, pieces = [], []
    for name, value in given.items():
        if name not in dtypes and _is_parameter(value):
            parameters[name] = value
            continue
        if value is None or (wanted and name not in wanted):
            continue
        if dtypes and name not in dtypes and not isinstance(value, Tensor) and not hasattr(value, "dtype"):
            raise TypeError(f"the answer holds '{name}', which is none of the outputs that model.toml declares")
        try:
            tensor = Tensor(value, dtypes.get(name, ""))
        except (ValueError, TypeError) as error:
            raise ValueError(f"output '{name}': {error}") from None
        places.append([name, tensor.dtype, list(tensor.shape), len(tensor.data)])
        pieces.append(tensor.data)
    shown = {str(name): value for name, value in parameters.items() if _is_parameter(value)}
    said: dict[str, Any] = {"tensors": places, "parameters": {name: value for name, value in shown.items() if not _is_nonfinite(value)}}
    if len(said["parameters"]) != len(shown):  # JSON has no word for them, and some callers get them exactly
        said["nonfinite"] = {name: str(value) for name, value in shown.items() if _is_nonfinite(value)}
    return b"".join(pieces), {"type": TENSORS_TYPE, "tensors": said}


def as_item(result: Any, declared: Sequence[Any], head: Mapping[str, Any]) -> bytes:
    """One item of a stream of tensors: its own head, then the values."""
    body, said = of_result(result, declared, head)
    return with_head(head_json(said["tensors"])) + body


def as_json(tensors: Tensors) -> dict[str, Any]:
    """What a caller who sent JSON gets for Tensors."""
    outputs = {name: _listed(value) for name, value in tensors.items()}
    return {"outputs": outputs, **({"parameters": tensors.parameters} if tensors.parameters else {})}


def _listed(value: Any) -> Any:
    listed = value.tolist() if hasattr(value, "tolist") else value
    # Numbers need no second look, which would cost more than all the rest.
    numbers = getattr(value, "dtype", "BYTES") not in ("BYTES", "object")
    return listed if numbers else jsonable(listed)


def _is_parameter(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= WORD_LONGEST
    return isinstance(value, (bool, int)) or type(value) is float


def _is_nonfinite(value: Any) -> bool:
    return type(value) is float and not math.isfinite(value)
