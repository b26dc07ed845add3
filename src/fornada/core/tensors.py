"""Tensors on their way through the node: a name, a data type of the Open Inference Protocol, a shape, and the values as bytes.

Values are what Triton calls raw contents (fornada_sdk.wire.tensors). A request and an answer hold them one behind the other, and the
head says which is which (`TensorsHead`). Nothing on the way makes numbers of them unless somebody asked for JSON, and nothing here
needs numpy.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.specs import TensorSpec, TensorsSpec
from fornada_sdk.wire.tensors import ITEM_BYTES, LENGTH, elements

TENSORS_TYPE = "application/vnd.fornada.tensors"
"""Media type of a body of tensors on the wire; never seen outside."""
DTYPES = frozenset([*ITEM_BYTES, "BYTES"])
MOST_TENSORS = 256
MOST_DIMENSIONS = 32
"""As many as numpy has always had."""
WALKED_MOST = 65536
"""Elements of BYTES that are counted before a request goes on, some milliseconds. Of more the runner finds out, which walks them anyway."""
_LARGEST = 1 << 63


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Which tensor the next `size` bytes are."""

    name: str
    dtype: str
    shape: list[int]
    size: int


class TensorsHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a head says about a body of tensors, there and back."""

    tensors: list[Place]
    parameters: dict[str, Any] = {}
    """Texts, numbers and truth values beside the tensors."""
    wanted: list[str] = []
    """Of a request: the outputs that the caller wants; empty: all."""
    nonfinite: dict[str, Literal["nan", "inf", "-inf"]] = {}
    """Of an answer: the parameters that are no finite numbers, which JSON hasn't."""

    @property
    def all_parameters(self) -> dict[str, Any]:
        return {**self.parameters, **{name: float(value) for name, value in self.nonfinite.items()}} if self.nonfinite else self.parameters


class Tensor(NamedTuple):
    """One tensor."""

    name: str
    dtype: str
    shape: Sequence[int]
    data: bytes | memoryview


def check_shape(shape: Sequence[int]) -> None:
    """Raises ValueError for a shape that no tensor can have."""
    if len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"its shape has {len(shape)} dimensions, more than {MOST_DIMENSIONS}")
    if any(not 0 <= size < _LARGEST for size in shape):
        raise ValueError("each dimension of its shape must be a whole number from 0 to 2^63 - 1")


def check_data(dtype: str, shape: Sequence[int], data: bytes | memoryview) -> None:
    """Raises ValueError where `data` are not the values of such a tensor."""
    item = ITEM_BYTES.get(dtype)
    if item is None and dtype != "BYTES":
        raise ValueError(f"there is no datatype '{dtype[:40]}'; there are {', '.join(sorted(DTYPES))}")
    check_shape(shape)
    count = math.prod(shape)
    if item is None:
        if len(data) < count * LENGTH.size:
            raise ValueError(f"it holds {len(data)} bytes, and {count} elements take {LENGTH.size} for the length of each")
        if count > WALKED_MOST:
            return
        found = sum(1 for _ in zip(range(count + 1), elements(data), strict=False))
        if found != count:
            raise ValueError(f"it holds {'more' if found > count else found} elements, and shape {shown(shape)} takes {count}")
        return
    if len(data) != count * item:
        raise ValueError(f"it holds {len(data)} bytes, and {dtype} {shown(shape)} takes {count * item}")
    if dtype == "BOOL" and bytes(data).translate(None, b"\0\1"):
        raise ValueError("a byte of BOOL is neither 0 nor 1")


def split(head: TensorsHead, body: bytes | memoryview) -> list[Tensor]:
    """The tensors of a body. Raises ValueError where it isn't what the head says: a runner may lie."""
    if len(head.tensors) > MOST_TENSORS:
        raise ValueError(f"{len(head.tensors)} tensors are more than {MOST_TENSORS}")
    view = memoryview(body)
    found = []
    at = 0
    for place in head.tensors:
        if place.size < 0 or place.size > len(view) - at:
            raise ValueError(f"'{place.name[:80]}' has fewer bytes than its head says")
        data = view[at : at + place.size]
        at += place.size
        try:
            check_data(place.dtype, place.shape, data)
        except ValueError as error:
            raise ValueError(f"'{place.name[:80]}': {error}") from None
        found.append(Tensor(place.name, place.dtype, place.shape, data))
    if at != len(view):
        raise ValueError("bytes follow the last tensor")
    if len({tensor.name for tensor in found}) != len(found):
        raise ValueError("two tensors have one name")
    return found


def head_of(tensors: Sequence[Tensor], parameters: Mapping[str, Any], wanted: Sequence[str] = ()) -> TensorsHead:
    """What is said about these tensors."""
    places = [Place(tensor.name, tensor.dtype, list(tensor.shape), len(tensor.data)) for tensor in tensors]
    return TensorsHead(places, dict(parameters), list(wanted))


def check_inputs(tensors: Sequence[Tensor], declared: TensorsSpec | None) -> None:
    """Whether a request's tensors are whole, and what the model declares; None: it is known only once it has been loaded.

    Raises BadRequest that names the tensor.
    """
    seen = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise BadRequest(f"input '{tensor.name[:80]}' comes twice")
        seen.add(tensor.name)
        try:
            check_data(tensor.dtype, tensor.shape, tensor.data)
        except ValueError as error:
            raise BadRequest(f"input '{tensor.name[:80]}': {error}") from None
    if declared is None:
        return
    by_name = {spec.name: spec for spec in declared.inputs}
    for tensor in tensors:
        spec = by_name.get(tensor.name)
        if spec is None:
            raise BadRequest(f"input '{tensor.name[:80]}': the model has no such input; it takes {described(declared.inputs)}")
        check_type(tensor.name, tensor.dtype, tensor.shape, spec)
    for spec in declared.inputs:
        if not spec.optional and spec.name not in seen:
            raise BadRequest(f"input '{spec.name}' is missing; the model takes {described(declared.inputs)}")


def check_type(name: str, dtype: str, shape: Sequence[int], spec: TensorSpec) -> None:
    """Raises BadRequest where an input is of another type or shape than declared."""
    if dtype != spec.dtype:
        raise BadRequest(f"input '{name}': got {dtype[:40]}, expects {spec.dtype}")
    if len(shape) != len(spec.shape) or any(want not in (-1, got) for got, want in zip(shape, spec.shape, strict=False)):
        raise BadRequest(f"input '{name}': got shape {shown(shape)}, expects {shown(spec.shape)}")


def check_wanted(names: Sequence[str], declared: TensorsSpec | None) -> None:
    """Raises BadRequest for an output that the model hasn't, or that is asked for twice."""
    if len(set(names)) != len(names):
        raise BadRequest("an output is asked for twice")
    if declared is None or not declared.outputs:
        return
    known = {spec.name for spec in declared.outputs}
    for name in names:
        if name not in known:
            raise BadRequest(f"output '{name[:80]}': the model has no such output; it gives {described(declared.outputs)}")


def described(specs: Sequence[TensorSpec]) -> str:
    """Declared tensors in words."""
    return ", ".join(f"'{spec.name}' {spec.dtype} {shown(spec.shape)}" for spec in specs) or "none"


def shown(shape: Sequence[int]) -> str:
    """A shape in words, however long."""
    text = ", ".join(str(size) for size in shape[: MOST_DIMENSIONS + 1])
    return f"[{text[:200]}]"
