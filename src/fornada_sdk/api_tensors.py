"""Tensors, as model code sees and answers them.

    def handle_request(request, context):
        x = request.tensors["x"]                      # from /v2, gRPC or TensorFlow Serving's REST: whichever the caller speaks
        return Tensors({"y": x.numpy() * 0.5 + 2})    # or without numpy: Tensor([...], "FP32")

A tensor's values are little-endian bytes until somebody asks for numbers. Data types are those of the Open Inference Protocol.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fornada_sdk.api import BadRequest
from fornada_sdk.wire.tensors import ITEM_BYTES, elements, flattened, nested, packed, unpacked

NUMPY = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "int8",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
"""Data type -> numpy's dtype."""
_OF_KIND = {"b1": "BOOL", "u1": "UINT8", "u2": "UINT16", "u4": "UINT32", "u8": "UINT64", "i1": "INT8", "i2": "INT16", "i4": "INT32"}
_OF_KIND.update({"i8": "INT64", "f2": "FP16", "f4": "FP32", "f8": "FP64", "O": "BYTES", "S": "BYTES", "U": "BYTES"})


class Tensor:
    """Values of one data type in a shape: `.dtype`, `.shape`, `.data` (the bytes), `.numpy()`, `.tolist()`.

    `Tensor([[1.0, 2.0]], "FP32")` makes one of nested lists or a number, `Tensor(array)` of a numpy array.
    """

    __slots__ = ("data", "dtype", "shape")

    def __init__(self, values: Any, dtype: str = "", shape: Sequence[int] | None = None) -> None:
        """Without `dtype` an array keeps its own, and lists become BOOL, INT64, FP64 or BYTES. Raises ValueError, TypeError."""
        self.dtype: str
        self.shape: tuple[int, ...]
        self.data: bytes | memoryview
        if isinstance(values, Tensor):
            values = values if not dtype or dtype == values.dtype else values.tolist()
        if isinstance(values, Tensor):
            self.dtype, self.shape, self.data = values.dtype, values.shape, values.data
        elif hasattr(values, "dtype") and hasattr(values, "tobytes"):
            self.dtype, self.shape, self.data = _of_array(values, dtype)
        else:
            flat, found = flattened(values.tolist() if hasattr(values, "tolist") else values)
            self.dtype = dtype or _dtype_of(flat)
            self.shape, self.data = tuple(found), packed(flat, self.dtype)
        if shape is not None:
            if math.prod(shape) != math.prod(self.shape):
                raise ValueError(f"shape {list(shape)} holds another number of elements than {list(self.shape)}")
            self.shape = tuple(shape)

    @classmethod
    def raw(cls, dtype: str, shape: Sequence[int], data: bytes | memoryview) -> Tensor:
        """Of bytes as they stand on the wire. Raises ValueError where they don't fit."""
        made = cls.__new__(cls)
        made.dtype, made.shape, made.data = dtype, tuple(shape), data
        count = math.prod(made.shape)
        if dtype == "BYTES":
            if sum(1 for _ in elements(data)) != count:
                raise ValueError(f"it doesn't hold the {count} elements of shape {list(shape)}")
        elif len(data) != count * ITEM_BYTES.get(dtype, 0):
            raise ValueError(f"{len(data)} bytes are no {dtype} of shape {list(shape)}")
        return made

    def flat(self) -> list[Any]:
        """The values row by row; of BYTES each as bytes."""
        return unpacked(self.dtype, math.prod(self.shape), self.data)

    def tolist(self) -> Any:
        """The values as nested lists; a value alone where the shape is []."""
        return nested(self.flat(), self.shape)

    def numpy(self) -> Any:
        """A numpy array, which needs numpy among the model's dependencies: of fixed types a read-only view of the bytes, of BYTES an
        array of objects, of BF16 (which numpy lacks) float32, which holds each of its values."""
        import numpy as np

        if self.dtype == "BYTES":
            array = np.empty(math.prod(self.shape), object)
            array[:] = self.flat()
            return array.reshape(self.shape)
        if self.dtype == "BF16":
            halves = np.frombuffer(self.data, "<u2").astype("<u4")
            return (halves << np.uint32(16)).view("<f4").reshape(self.shape)
        return np.frombuffer(self.data, NUMPY[self.dtype]).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of shape [] has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Tensor({self.dtype} {list(self.shape)})"


class Tensors(dict[str, Any]):
    """Named tensors: a request's `request.tensors`, and what a model may return. Values of a returned one may be Tensors, numpy arrays,
    or lists, which take the data type that model.toml declares for the output."""

    def __init__(
        self, tensors: Mapping[str, Any] | None = None, *, parameters: Mapping[str, Any] | None = None, wanted: Iterable[str] = ()
    ) -> None:
        super().__init__(tensors or {})
        self.parameters: dict[str, Any] = dict(parameters or {})
        """Texts, numbers and truth values beside the tensors: the request's own, or what stands in the answer's `parameters`."""
        self.wanted = tuple(wanted)
        """Of a request: outputs that the caller wants; none: all. The others are left out for it in any case."""


def _of_array(array: Any, dtype: str) -> tuple[str, tuple[int, ...], bytes]:
    own = _own_dtype(array)
    if own == "BYTES" or dtype == "BYTES":
        return "BYTES", tuple(array.shape), packed(array.ravel().tolist(), "BYTES")
    wanted = dtype or own
    if wanted == "BF16":
        if array.dtype.name == "bfloat16":
            return wanted, tuple(array.shape), array.tobytes()
        return wanted, tuple(array.shape), packed(array.ravel().tolist(), wanted)
    if wanted not in NUMPY:
        raise ValueError(f"there is no data type '{wanted}'")
    return wanted, tuple(array.shape), array.astype(NUMPY[wanted], copy=False).tobytes()


def _own_dtype(array: Any) -> str:
    kind = array.dtype.kind
    if array.dtype.name == "bfloat16":
        return "BF16"
    name = _OF_KIND.get(kind) or _OF_KIND.get(f"{kind}{array.dtype.itemsize}")
    if name is None:
        raise ValueError(f"arrays of {array.dtype} can't be sent")
    return name


def _dtype_of(flat: Sequence[Any]) -> str:
    kinds = {type(value) for value in flat}
    if kinds <= {bool}:
        return "BOOL" if kinds else "FP64"
    if kinds <= {int}:
        return "INT64"
    if kinds <= {int, float}:
        return "FP64"
    return "BYTES"


def jsonable(value: Any) -> Any:
    """A tensor's lists as JSON has them: bytes as text, those that are no UTF-8 as {"b64": base64}."""
    if isinstance(value, list):
        return [jsonable(each) for each in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            import base64

            return {"b64": base64.b64encode(value).decode()}
    return value


def received(given: Mapping[str, Any], raw: bytes) -> Tensors:
    """The tensors of a request off the wire. Raises BadRequest that names one that isn't whole."""
    found: dict[str, Tensor] = {}
    view = memoryview(raw)
    at = 0
    for name, dtype, shape, size in given.get("tensors") or ():
        try:
            found[name] = Tensor.raw(dtype, shape, view[at : at + size])
        except ValueError as error:
            raise BadRequest(f"input '{name}': {error}") from None
        at += size
    return Tensors(found, parameters=given.get("parameters"), wanted=given.get("wanted") or ())
