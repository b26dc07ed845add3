"""The values of tensors as bytes, and as numbers: little-endian, row by row; an element of BYTES is its length in four bytes, then it.

Both ends of the wire have need of it, and neither may count on numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Union

FORMS = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}
"""Data type of the Open Inference Protocol -> module struct's letter. BF16 and BYTES have none."""
ITEM_BYTES = {**{dtype: struct.calcsize(f"<{form}") for dtype, form in FORMS.items()}, "BF16": 2}
"""Bytes of an element; BYTES has elements of any length."""
LENGTH = struct.Struct("<I")
_BFLOAT_INFINITY = 0x7F80

Data = Union[bytes, bytearray, memoryview]


def elements(data: Data) -> Iterator[memoryview]:
    """The elements of BYTES. Raises ValueError where a length leads beyond the end."""
    view = memoryview(data)
    at, end = 0, len(view)
    while at < end:
        if end - at < LENGTH.size:
            raise ValueError("its last element has no length: each takes 4 bytes of length and then its bytes")
        (size,) = LENGTH.unpack_from(view, at)
        at += LENGTH.size
        if size > end - at:
            raise ValueError(f"an element says that it has {size} bytes, and {end - at} are left")
        yield view[at : at + size]
        at += size


def packed(flat: Sequence[Any], dtype: str) -> bytes:
    """Values as bytes. Raises ValueError for one that the data type can't hold."""
    if dtype == "BYTES":
        return _joined(flat)
    if dtype == "BF16":
        return b"".join([_bfloat(value) for value in flat])
    form = FORMS.get(dtype)
    if form is None:
        raise ValueError(f"there is no data type '{dtype[:40]}'")
    try:
        return struct.pack(f"<{len(flat)}{form}", *flat)
    except (struct.error, OverflowError, TypeError) as error:
        raise ValueError(f"a value is no {dtype}: {error}") from None


def unpacked(dtype: str, count: int, data: Data) -> list[Any]:
    """`count` values out of bytes that hold as many; of BYTES each as bytes."""
    if dtype == "BYTES":
        return [bytes(element) for element in elements(data)]
    if dtype == "BF16":
        halves = struct.unpack(f"<{count}H", data)
        return list(struct.unpack(f"<{count}f", struct.pack(f"<{count}I", *[half << 16 for half in halves])))
    return list(struct.unpack(f"<{count}{FORMS[dtype]}", data))


def flattened(values: Any) -> tuple[list[Any], list[int]]:
    """(values row by row, shape) of nested lists. Raises ValueError where lists of one level differ in length."""
    shape: list[int] = []
    flat = [values]
    while flat and isinstance(flat[0], (list, tuple)):
        size = len(flat[0])
        if any(not isinstance(row, (list, tuple)) or len(row) != size for row in flat):
            raise ValueError("the lists are of different lengths")
        shape.append(size)
        flat = [value for row in flat for value in row]
    if any(isinstance(value, (list, tuple)) for value in flat):
        raise ValueError("the lists are of different lengths")
    return flat, shape


def nested(flat: list[Any], shape: Sequence[int]) -> Any:
    """Nested lists of values row by row; the value alone where the shape is []."""
    if not shape:
        return flat[0]
    if 0 in shape:
        return _hollow(shape)
    for size in reversed(shape[1:]):
        flat = [flat[at : at + size] for at in range(0, len(flat), size)]
    return flat


def _hollow(shape: Sequence[int]) -> list[Any]:
    """Nested lists without a value, as far down as there are lists."""
    return [_hollow(shape[1:]) for _ in range(shape[0])] if len(shape) > 1 else []


def _joined(flat: Sequence[Any]) -> bytes:
    pieces: list[Any] = []
    for value in flat:
        if isinstance(value, str):
            value = value.encode()
        elif not isinstance(value, (bytes, bytearray, memoryview)):
            raise ValueError(f"BYTES holds text or bytes, no {type(value).__name__}")
        pieces += (LENGTH.pack(len(value)), value)
    return b"".join(pieces)


def _bfloat(value: Any) -> bytes:
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except (struct.error, OverflowError, TypeError) as error:
        raise ValueError(f"a value is no BF16: {error}") from None
    if value != value:
        return struct.pack("<H", bits >> 16 | 64)
    half = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # to the nearest, to even where it stands between
    if half & 0x7FFF == _BFLOAT_INFINITY and bits & 0x7FFFFFFF != _BFLOAT_INFINITY << 16:
        raise ValueError("a value is no BF16: it is too large")  # rounded up; FP16 and FP32 refuse it in the same way
    return struct.pack("<H", half)
