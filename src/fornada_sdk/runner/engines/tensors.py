"""Named tensors around an engine: what they look like outside, what requests bring of them, and several requests in one call.

An engine's input and output is a dictionary of numpy arrays by name. Axis 0 counts rows where requests are to be joined.
Data types are those of the Open Inference Protocol. numpy is the model's own: it is imported when it is first needed.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from fornada_sdk.api import BadRequest
from fornada_sdk.api_tensors import Tensor as Sent
from fornada_sdk.runner.engines import Tensor

Arrays = dict[str, Any]  # numpy.ndarray by name; no name of numpy may stand here, since the model may have none

DTYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "object": "BYTES",
}
"""numpy's name -> the protocol's. Strings and bytes are arrays of objects."""
_PACKED = {"float32": "f", "float64": "d"}
"""numpy's name -> that of module struct."""


class TensorInfo(NamedTuple):
    """One input or output of a model."""

    name: str
    dtype: str
    """numpy's name of the element type; what DTYPES doesn't hold (bfloat16) is never shown outside."""
    shape: tuple[int, ...] | None
    """-1 is free; None: any rank."""


def metadata(infos: Sequence[TensorInfo]) -> list[Tensor]:
    """The tensors as READY reports them, in order; one of any rank shows as [-1]."""
    known = (info for info in infos if info.dtype in DTYPES)
    return [Tensor(info.name, DTYPES[info.dtype], [-1] if info.shape is None else list(info.shape)) for info in known]


def zeros(infos: Sequence[TensorInfo]) -> Arrays:
    """The smallest input that fits: what a model is warmed up with if it has no example."""
    import numpy as np

    empty = {info.name: b"" if info.dtype == "object" else 0 for info in infos}
    return {i.name: np.full([max(n, 1) if n else 0 for n in i.shape or ()], empty[i.name], i.dtype) for i in infos}


def from_json(value: Any, infos: Sequence[TensorInfo]) -> Arrays:
    """The arrays of `{"inputs": {name: nested lists}}`; a model with one input also takes `{"inputs": nested lists}`.

    Raises BadRequest for anything that the model's inputs don't fit.
    """
    given = value.get("inputs") if isinstance(value, dict) else None
    if given is None:
        raise BadRequest('the body must be {"inputs": {name: values}}; this model takes ' + _described(infos))
    if not isinstance(given, dict):
        if len(infos) != 1:
            raise BadRequest(f"this model has {len(infos)} inputs: {_described(infos)}; name each")
        given = {infos[0].name: given}
    unknown = sorted(set(given) - {info.name for info in infos})
    if unknown:
        raise BadRequest(f"no input is called {unknown[0]}; this model takes {_described(infos)}")
    missing = [info.name for info in infos if info.name not in given]
    if missing:
        raise BadRequest(f"input {missing[0]} is missing; this model takes {_described(infos)}")
    return {info.name: _array(given[info.name], info) for info in infos}


def from_tensors(tensors: Mapping[str, Sent], infos: Sequence[TensorInfo]) -> Arrays:
    """The arrays of a request's tensors. Raises BadRequest, naming the tensor, where they aren't what the model takes."""
    by_name = {info.name: info for info in infos}
    for name, tensor in tensors.items():
        info = by_name.get(name)
        if info is None:
            raise BadRequest(f"input '{name}': the model has no such input; it takes {_described(infos)}")
        dtype = DTYPES.get(info.dtype, info.dtype)
        if tensor.dtype != dtype:
            raise BadRequest(f"input '{name}': got {tensor.dtype}, expects {dtype}")
        if info.shape is not None and not _fits(tensor.shape, info.shape):
            raise BadRequest(f"input '{name}': got shape {list(tensor.shape)}, expects {list(info.shape)}")
    for info in infos:
        if info.name not in tensors:
            raise BadRequest(f"input '{info.name}' is missing; the model takes {_described(infos)}")
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def run_together(run: Callable[[Arrays], Arrays], items: Sequence[Arrays]) -> list[Arrays]:
    """`run` for several requests, with as few calls as their shapes allow; the results in the order of `items`.

    Requests are joined along axis 0 where everything else about their tensors is equal. A model whose outputs don't count
    rows as its inputs do can't be split again; its requests run one by one.
    """
    results: list[Arrays] = [{} for _ in items]
    for group in _groups(items):
        together = _joined(run, [items[index] for index in group]) if len(group) > 1 else None
        for place, index in enumerate(group):
            results[index] = together[place] if together is not None else run(items[index])
    return results


def _groups(items: Sequence[Arrays]) -> list[list[int]]:
    groups: dict[Any, list[int]] = {}
    for index, item in enumerate(items):
        alone = not item or any(array.ndim == 0 for array in item.values()) or len({len(array) for array in item.values()}) != 1
        key = index if alone else tuple(sorted((name, array.dtype.str, array.shape[1:]) for name, array in item.items()))
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _joined(run: Callable[[Arrays], Arrays], items: Sequence[Arrays]) -> list[Arrays] | None:
    """None where the outputs can't be split."""
    import numpy as np

    rows = [len(next(iter(item.values()))) for item in items]
    outputs = run({name: np.concatenate([item[name] for item in items]) for name in items[0]})
    if any(array.ndim == 0 or len(array) != sum(rows) for array in outputs.values()):
        return None
    ends = [sum(rows[: place + 1]) for place in range(len(rows))]
    return [{name: array[end - size : end] for name, array in outputs.items()} for size, end in zip(rows, ends)]


def _array(value: Any, info: TensorInfo) -> Any:
    import numpy as np

    try:
        if info.dtype == "object":
            array = np.array(_bytes(value), dtype=object)
            if any(isinstance(each, list) for each in array.flat):
                raise ValueError("the lists are of different lengths")
        else:
            packed = _packed(value, info.dtype)
            array = _numbers(value, info.dtype) if packed is None else packed
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRequest(f"input {info.name} must be {_shown(info)}: {error}") from None
    if info.shape is not None and not _fits(array.shape, info.shape):
        raise BadRequest(f"input {info.name} must be {_shown(info)}; it came as {list(array.shape)}")
    return array


def _packed(value: Any, dtype: str) -> Any:
    """The array of a list that begins with a float, or of equally long ones, in half of numpy's time. None: numpy is to see to it."""
    import numpy as np

    rows = value if type(value) is list and value and type(value[0]) is list else [value]
    first = rows[0]
    if dtype not in _PACKED or type(first) is not list or not first or type(first[0]) is not float:
        return None
    if any(type(row) is not list or len(row) != len(first) for row in rows):
        return None
    form = f"{len(first)}{_PACKED[dtype]}"
    try:
        data = bytearray().join([struct.pack(form, *row) for row in rows])
    except (struct.error, OverflowError):
        return None
    array = np.frombuffer(data, dtype)
    return array.reshape(len(rows), len(first)) if rows is value else array


def _numbers(value: Any, dtype: str) -> Any:
    import numpy as np

    array = np.asarray(value)
    wanted = np.dtype(dtype)
    if array.size:
        if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and wanted.kind in "biu"):
            raise ValueError("the values are of another type")
        if wanted.kind in "iu" and (array.min() < np.iinfo(wanted).min or array.max() > np.iinfo(wanted).max):
            raise ValueError("a value is out of range")
    return array.astype(wanted)


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(want in (-1, size) for size, want in zip(shape, wanted))


def _bytes(value: Any) -> Any:
    """Nested lists of strings, or of {"b64": base64}, as nested lists of bytes."""
    if isinstance(value, list):
        return [_bytes(each) for each in value]
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"b64"} and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"no base64: {error}") from None
    raise ValueError('write strings, or {"b64": base64}')


def _shown(info: TensorInfo) -> str:
    return f"{DTYPES.get(info.dtype, info.dtype)} {'of any shape' if info.shape is None else list(info.shape)}"


def _described(infos: Sequence[TensorInfo]) -> str:
    return ", ".join(f"{info.name} {_shown(info)}" for info in infos) or "no input"
