"""Tensors in JSON: nested or flat lists in, lists out. Whole numbers are taken exactly or not at all, others as the nearest that the type has."""

import base64
import binascii
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from fornada.core.errors import BadRequest, ModelRaised, TooLarge
from fornada.core.resources import format_size
from fornada.core.tensors import MOST_DIMENSIONS, Tensor, check_shape, shown
from fornada_sdk.wire.tensors import ITEM_BYTES, packed, unpacked

ELEMENTS_MOST = 2 * 1024 * 1024
"""Of an answer in JSON: making numbers of them and text of those takes the node's one thread half a second."""
TEXT_MOST = 32 * 1024 * 1024
"""Bytes of a request's JSON, whatever the model takes: reading more would hold up everybody else. Bytes behind it cost nothing."""
_BLANKS: Final = b" \t\r\n"
_FLOATS = frozenset({"FP16", "FP32", "FP64", "BF16"})


def check_text(size: int) -> None:
    """Raises TooLarge for more JSON than is read."""
    if size > TEXT_MOST:
        raise TooLarge(
            f"Request is too large: tensors as JSON may have {TEXT_MOST} bytes ({format_size(TEXT_MOST)}); send them as binary data"
        )


def read_values(name: str, dtype: str, shape: Sequence[int], raw: bytes | msgspec.Raw, *, is_base64: bool = False) -> bytes:
    """The values of an input as bytes. `raw` is one list of all of them, row by row, or lists in lists of exactly that shape; strings of
    BYTES are UTF-8, or base64. Raises BadRequest that names the input."""
    try:
        check_shape(shape)
        flat = _listed(dtype, shape, bytes(raw))
        if len(flat) != math.prod(shape):
            raise ValueError(f"it holds {len(flat)} elements, and shape {shown(shape)} takes {math.prod(shape)}")
        return packed([_unbased(value) for value in flat] if is_base64 and dtype == "BYTES" else flat, dtype)
    except ValueError as error:
        raise BadRequest(f"input '{name[:80]}': {error}") from None


def _listed(dtype: str, shape: Sequence[int], raw: bytes) -> list[Any]:
    depth = _depth(raw)
    if 0 in shape and depth and not raw.translate(None, b"[]," + _BLANKS):
        return []
    if depth not in (1, len(shape)):
        where = f"or in lists of {len(shape)} levels, as its shape {shown(shape)} says" if len(shape) > 1 else "of one level"
        raise ValueError(f"its data must stand in a list {where}" + (f"; there are {depth} levels" if depth else ""))
    try:
        rows = _decoder(_kind(dtype), depth).decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        text, mark, place = str(error).partition(" - at `$")
        raise ValueError(f"data{place.rstrip('`')}: {text}" if mark else f"its data can't be read: {text[:200]}") from None
    return _flat(rows, shape) if depth > 1 else rows


def _flat(rows: list[Any], shape: Sequence[int]) -> list[Any]:
    level = [rows]
    for size in shape:
        if any(len(row) != size for row in level):
            raise ValueError(f"its data isn't of shape {shown(shape)}: a list has another length")
        level = [value for row in level for value in row]
    return level


def _depth(raw: bytes) -> int:
    """How many lists begin before the first value."""
    depth = 0
    for character in raw[: 64 * MOST_DIMENSIONS]:
        if character == 0x5B:
            depth += 1
        elif character not in _BLANKS:
            break
    return min(depth, MOST_DIMENSIONS + 1)


def _kind(dtype: str) -> type:
    if dtype in _FLOATS:
        return float
    if dtype == "BYTES":
        return str
    if dtype not in ITEM_BYTES:
        raise ValueError(f"there is no datatype '{dtype[:40]}'; there are {', '.join(sorted([*ITEM_BYTES, 'BYTES']))}")
    return bool if dtype == "BOOL" else int


@functools.lru_cache(256)
def _decoder(kind: type, depth: int) -> msgspec.json.Decoder[Any]:
    wanted: Any = kind
    for _ in range(depth):
        wanted = list[wanted]
    return msgspec.json.Decoder(wanted)


def _unbased(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("an element is no base64") from None


def check_size(tensors: Iterable[Tensor]) -> None:
    """Raises BadRequest for an answer that is too long to be written as JSON."""
    count = sum(math.prod(tensor.shape) for tensor in tensors)
    if count > ELEMENTS_MOST:
        raise BadRequest(f"the answer has {count} elements, more than the {ELEMENTS_MOST} that are written as JSON: ask for binary tensors")


def values(tensor: Tensor) -> tuple[list[Any], bool]:
    """(the values row by row, whether some of them are no finite numbers: those become null once they are JSON). Bytes stay bytes.
    Raises ModelRaised for elements that aren't what the shape says."""
    count = math.prod(tensor.shape)
    try:
        flat = unpacked(tensor.dtype, count, tensor.data)
        if len(flat) != count:
            raise ValueError(f"it holds {len(flat)} elements, and shape {shown(tensor.shape)} takes {count}")
    except ValueError as error:
        raise ModelRaised(f"the model's tensors are broken: '{tensor.name[:80]}': {error}") from None
    # The sum tells of most tensors in one pass that all is well.
    finite = tensor.dtype not in _FLOATS or math.isfinite(sum(flat)) or all(map(math.isfinite, flat))
    return flat, not finite


def texts(flat: Sequence[bytes]) -> tuple[list[str], bool]:
    """(elements of BYTES as text, whether it is base64: one of them is no UTF-8)."""
    try:
        return [value.decode() for value in flat], False
    except UnicodeDecodeError:
        return [base64.b64encode(value).decode() for value in flat], True
