"""Messages whose tensors are bytes, without a copy more than grpcio makes itself.

A message of protobuf is its fields one behind the other, so that what is long needn't go through a parser or a serializer: the values of
`raw_input_contents` stay where they came, and those of `raw_output_contents` follow a message that was written without them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from fornada.core.errors import BadRequest
from fornada.edge.dialects.oip.rpc import inference_pb2 as pb
from fornada.edge.headers import SMALL_BODY

RAW_INPUTS, RAW_OUTPUTS, INFER_RESPONSE = 7, 6, 2
"""Numbers of fields: of ModelInferRequest, ModelInferResponse and ModelStreamInferResponse."""
FIELDS_MOST = 2048
"""Of a message that is walked here: more than its tensors make, and a parser in C has them sooner."""
_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}
_VARINT_BYTES, _TAG_BYTES = 10, 5


class Received(NamedTuple):
    """A ModelInferRequest, without its raw contents, and those."""

    message: pb.ModelInferRequest
    raws: Sequence[bytes | memoryview]
    size: int


def parsed(message: type[Any], data: bytes) -> Any:
    """Raises BadRequest for what is no such message."""
    try:
        return message.FromString(data)
    except DecodeError:
        raise BadRequest(f"the message is no {message.__name__}") from None


def received(data: bytes) -> Received:
    """Raises BadRequest for what is no such message."""
    rest, raws = parted(data) if len(data) > SMALL_BODY else (data, [])
    message = parsed(pb.ModelInferRequest, rest)
    if not raws:
        raws = list(message.raw_input_contents)
    return Received(message, raws, len(data))


def written(message: Any, raws: Sequence[bytes | memoryview] = ()) -> bytes:
    """A ModelInferResponse with these raw contents, as it goes out."""
    pieces = [message.SerializeToString()]
    for raw in raws:
        pieces += [_head(RAW_OUTPUTS, len(raw)), raw]
    return b"".join(pieces)


def in_stream(response: bytes) -> bytes:
    """A ModelStreamInferResponse of one that is written."""
    return _head(INFER_RESPONSE, len(response)) + response


def parted(data: bytes) -> tuple[bytes, list[memoryview]]:
    """(the message without raw contents, those). Where anything is unusual, all of it and none: the parser has its own word for that."""
    view, rest, raws = memoryview(data), list[memoryview](), list[memoryview]()
    begin = at = 0
    for _ in range(FIELDS_MOST):
        if at == len(data):
            return b"".join([*rest, view[begin:]]), raws
        field = at
        tag, at = _varint(data, at)
        if at - field > _TAG_BYTES:
            break
        kind = tag & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == _LENGTH_DELIMITED:
            size, at = _varint(data, at)
            if tag >> 3 == RAW_INPUTS and 0 <= size <= len(data) - at:
                rest.append(view[begin:field])
                raws.append(view[at : at + size])
                begin = at + size
            at += size
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            break
        if not field < at <= len(data):
            break
    return data, []


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(the number at `at`, what is behind it); behind the end where there is none."""
    value = 0
    for shift, byte in enumerate(data[at : at + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    return 0, len(data) + 1


def _head(number: int, size: int) -> bytes:
    """The tag of a field of bytes and its length."""
    found = bytearray([number << 3 | _LENGTH_DELIMITED])
    while size >= 0x80:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    found.append(size)
    return bytes(found)
