"""An inference request of the protocol: JSON, and the binary tensors behind it.

Inference-Header-Content-Length says where the JSON ends; what follows are the tensors that name their `binary_data_size`, in order.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import BadRequest, TooLarge
from fornada.core.resources import format_size
from fornada.core.tensors import MOST_TENSORS, Tensor
from fornada.edge.json_bodies import broken, check_once, fields_of
from fornada.edge.tensor_json import check_text, read_values

HEADER_LENGTH = b"inference-header-content-length"
Parameters = dict[str, Any]


class _Input(msgspec.Struct, frozen=True):
    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")
    """`null`: it lies behind the JSON."""


class _Output(msgspec.Struct, frozen=True):
    name: str
    parameters: Parameters | None = None


class _Body(msgspec.Struct, frozen=True):
    inputs: list[_Input]
    id: str | None = None
    parameters: Parameters | None = None
    outputs: list[_Output] | None = None


class Asked(NamedTuple):
    """A request, understood."""

    id: str
    tensors: Sequence[Tensor]
    wanted: Sequence[str]
    """Names of the outputs; none: all."""
    binary: Mapping[str, bool]
    """Whether an output comes as bytes, where it says so itself."""
    all_binary: bool
    """Whether those do that don't say."""
    parameters: Parameters
    classes: Mapping[str, int] = {}
    """Outputs of which only so many of the largest values are wanted."""


ENCODINGS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
"""Content-Encoding -> zlib's window."""
_DECODER = msgspec.json.Decoder(_Body)
_SHARED = ("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")


def read_request(body: bytes, header_length: str | None) -> Asked:
    """Raises BadRequest that names the field or the tensor."""
    size = len(body) if header_length is None else _size_of_json(header_length, len(body))
    check_text(size)
    text = body if size == len(body) else body[:size]
    fields = fields_of(text)
    try:
        found = _DECODER.decode(text)
    except msgspec.ValidationError as error:
        raise BadRequest(named(str(error))) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise broken(error) from None
    check_once(text, [*fields, *_keys(found)])
    parameters = checked(found.parameters, "parameters")
    if len(found.inputs) > MOST_TENSORS:
        raise BadRequest(f"'inputs' holds {len(found.inputs)} tensors, more than {MOST_TENSORS}")
    tensors = _tensors(found.inputs, memoryview(body)[size:])
    outputs = found.outputs or []
    return Asked(
        id=found.id or "",
        tensors=tensors,
        wanted=[each.name for each in outputs],
        binary={each.name: chosen for each in outputs if (chosen := _binary(each)) is not None},
        all_binary=parameters.pop("binary_data_output", False) is True,
        parameters=parameters,
        classes={each.name: count for each in outputs if (count := classes_of(each.parameters or {}, each.name))},
    )


def _keys(body: _Body) -> Iterator[str]:
    """Those below the top level, as far as they mean something."""
    yield from body.parameters or ()
    for each in (*body.inputs, *(body.outputs or ())):
        yield "name"
        if each.parameters is not None:
            yield "parameters"
            yield from each.parameters
    for tensor in body.inputs:
        yield from ("shape", "datatype")
        if bytes(memoryview(tensor.data)[:5]) != b"null":
            yield "data"


def decompressed(body: bytes, encoding: str, most: int) -> bytes:
    """A body as it was before its Content-Encoding. Raises BadRequest where it is none, TooLarge for more than `most` bytes."""
    coding = encoding.strip().lower()
    if coding in ("", "identity"):
        return body
    window = ENCODINGS.get(coding)
    if window is None:
        raise BadRequest(f"Content-Encoding: '{coding[:40]}' isn't understood; there are {', '.join(ENCODINGS)}")
    reader = zlib.decompressobj(window)
    try:
        found = reader.decompress(body, most + 1)
    except zlib.error:
        raise BadRequest(f"the body isn't what its Content-Encoding says, {coding}") from None
    if len(found) > most:
        raise TooLarge(f"Request is too large: this model takes at most {most} bytes ({format_size(most)}), decompressed")
    if not reader.eof or reader.unused_data:
        raise BadRequest(f"the body isn't what its Content-Encoding says, {coding}: it ends too early or too late")
    return found


def classes_of(parameters: Parameters, name: str) -> int:
    """How many classes an output is asked for; 0: none. Raises BadRequest."""
    count = parameters.get("classification", 0)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise BadRequest(f"output '{name[:80]}': 'classification' must be a whole number from 0 on")
    return count


def named(complaint: str) -> str:
    """msgspec's complaint with the field first."""
    text, mark, place = complaint.partition(" - at `$.")
    if mark:
        return f"'{place.rstrip('`')}': {text}"
    return complaint.replace("Object missing required field", "missing the field").replace("`", "'")


def checked(parameters: Parameters | None, where: str) -> Parameters:
    """Parameters that are texts, numbers and truth values. Raises BadRequest for others, and for shared memory, which there is none of."""
    found = dict(parameters or {})
    for name, value in found.items():
        if name in _SHARED:
            raise BadRequest(f"{where}: '{name}': there is no shared memory here: send the tensor's bytes")
        if not isinstance(value, str | int | float | bool):
            raise BadRequest(f"{where}: '{name[:80]}' must be a text, a number, true or false")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise BadRequest(f"{where}: '{name[:80]}' is no number of 64 bits")
    return found


def _tensors(inputs: Sequence[_Input], rest: memoryview) -> list[Tensor]:
    tensors = []
    at = 0
    for each in inputs:
        where = f"input '{each.name[:80]}'"
        parameters = checked(each.parameters, where)
        size = parameters.get("binary_data_size")
        if size is None:
            if bytes(each.data) == b"null":
                raise BadRequest(f"{where}: it has neither 'data' nor 'binary_data_size'")
            is_base64 = parameters.get("content_type") == "base64"
            tensors.append(
                Tensor(
                    each.name, each.datatype, each.shape, read_values(each.name, each.datatype, each.shape, each.data, is_base64=is_base64)
                )
            )
            continue
        if bytes(each.data) != b"null":
            raise BadRequest(f"{where}: it has 'data' and 'binary_data_size'; one of them is right")
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(rest) - at:
            raise BadRequest(f"{where}: 'binary_data_size' says {str(size)[:40]} bytes, and {len(rest) - at} are left behind the JSON")
        tensors.append(Tensor(each.name, each.datatype, each.shape, rest[at : at + size]))
        at += size
    if at != len(rest):
        raise BadRequest(f"{len(rest) - at} bytes follow the last binary tensor")
    return tensors


def _binary(output: _Output) -> bool | None:
    parameters = checked(output.parameters, f"output '{output.name[:80]}'")
    value = parameters.get("binary_data")
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"output '{output.name[:80]}': 'binary_data' must be true or false")
    return value


def _size_of_json(text: str, most: int) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= 18):
        raise BadRequest("the header Inference-Header-Content-Length must be a whole number")
    if int(stripped) > most:
        raise BadRequest(f"the header Inference-Header-Content-Length says {int(stripped)}, and the body has {most} bytes")
    return int(stripped)
