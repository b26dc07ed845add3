"""What model code returned or raised, as ANSWER frames, and as the heads of STREAM and END."""

from __future__ import annotations

import math
import struct
import sys
from typing import Any

from fornada_sdk.api import BadRequest, OutOfDeviceMemory, Response
from fornada_sdk.api_request import JSON_TYPE
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.encoding import head_json, to_json
from fornada_sdk.runner.long_answer import LongAnswer, Outgoing, is_long
from fornada_sdk.runner.received import TENSORS
from fornada_sdk.wire.framing import HEADER, MAX_PAYLOAD, frames
from fornada_sdk.wire.messages import OK_HEAD, Kind, decode, with_head

OCTETS = "application/octet-stream"
MESSAGE_LONGEST = 2000
ANSWER_LONGEST = 192 * 1024 * 1024
"""Bytes of an answer, or of an item. The control plane takes no more than 256 MiB at once."""
NOTED_RUN_S = 0.001
"""Runs shorter than this don't report how long they took: the usual head stays empty."""

COUNTS_MOST = 64
"""What a request's usage may name; the rest is left out."""
COUNT_LARGEST = 1 << 63
"""Beyond it not every JSON reader takes a number."""
WORD_LONGEST = 200
"""Characters of a name or a text in usage."""

_OUT_OF_MEMORY = frozenset(["OutOfMemoryError", "ResourceExhaustedError"])
"""What PyTorch and TensorFlow call it; the SDK knows neither."""

_OK_PREFIX = with_head(OK_HEAD)
_OK = struct.Struct(f"<IBBxxIQ{len(_OK_PREFIX)}s")
_OK_MOST = MAX_PAYLOAD - 64
_ANSWER = int(Kind.ANSWER)


class Piece:
    """One value, encoded: an answer's body, or one item of a stream."""

    __slots__ = ("data", "head")

    def __init__(self, data: bytes, head: dict[str, Any]) -> None:
        """Raises ValueError for more bytes than may be sent at once."""
        self.data = checked(data)
        self.head = head
        """What AnswerHead has to say about it; empty for plain JSON."""


def ok_frames(call: Call, result: Any, run_s: float) -> Outgoing:
    """The ANSWER for a result that is no stream. Raises TypeError or ValueError where it can't be sent."""
    if TENSORS in call.head:
        return _tensors(call, result, run_s)
    if type(result) is dict or type(result) is list:
        data, nonfinite = to_json(result)
        if not nonfinite and call.used is None and len(data) <= _OK_MOST:
            if run_s < NOTED_RUN_S:
                return [_OK.pack(len(_OK_PREFIX) + len(data), _ANSWER, 0, 0, call.id, _OK_PREFIX) + data]
            prefix = with_head(b'{"run_s":%.6f}' % run_s)  # as `noted` has it: in a batch most answers say so
            return [HEADER.pack(len(prefix) + len(data), _ANSWER, 0, 0, call.id) + prefix + data]
        piece = Piece(data, {"nonfinite": True} if nonfinite else {})
    else:
        piece = encoded(result)
    return _frames(call, {**piece.head, **noted(call, run_s)}, piece.data)


def encoded(result: Any) -> Piece:
    """A result as bytes. Raises TypeError or ValueError where it can't be sent."""
    if isinstance(result, (bytes, bytearray, memoryview)):
        return Piece(bytes(result), {"type": OCTETS})
    if isinstance(result, Response):
        return _response(result)
    if isinstance(result, dict) and type(result) is not dict:
        result = _plain(result)
    data, nonfinite = to_json(result)
    return Piece(data, {"nonfinite": True} if nonfinite else {})


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    """Tensors for a caller who sent none: as JSON."""
    from fornada_sdk.api_tensors import Tensors
    from fornada_sdk.runner.tensor_answers import as_json

    return as_json(result) if isinstance(result, Tensors) else result


def _tensors(call: Call, result: Any, run_s: float) -> Outgoing:
    from fornada_sdk.runner.tensor_answers import of_result

    body, head = of_result(result, call.outputs, decode(call.head))
    return _frames(call, {**head, **noted(call, run_s)}, checked(body))


def checked(data: bytes) -> bytes:
    """`data`, unless it is too long to be sent at once. Raises ValueError."""
    if len(data) > ANSWER_LONGEST:
        raise ValueError(f"the answer has {len(data)} bytes, more than the {ANSWER_LONGEST} that may be sent at once; yield it in pieces")
    return data


def _response(response: Response) -> Piece:
    head = response_head(response)
    body = response.body
    if isinstance(body, str) and response.type != JSON_TYPE:
        return Piece(body.encode(), {"type": "text/plain; charset=utf-8", **head})
    piece = encoded(body)
    return Piece(piece.data, {**piece.head, **head})


def response_head(response: Response) -> dict[str, Any]:
    """What a Response asks for beside its body. Raises ValueError for a header that can't be one."""
    head: dict[str, Any] = {}
    if response.type:
        _refuse_control(response.type, "the media type")
        head["type"] = response.type
    if response.status != 200:
        head["http_status"] = response.status
    headers = {}
    for name, value in response.headers.items():
        low = name.lower()
        if low in ("content-type", "content-length") or not low.startswith(("content-", "x-")):
            raise ValueError(f"a model may not set the header '{name}': only content-* (not type and length) and x-*")
        if not low.replace("-", "").isalnum():
            raise ValueError(f"'{name}' is no name of a header")
        _refuse_control(str(value), f"the header '{name}'")
        headers[low] = str(value)
    if headers:
        head["headers"] = headers
    return head


def _refuse_control(text: str, what: str) -> None:
    if any(character < " " or character == "\x7f" or character > "\xff" for character in text):
        raise ValueError(f"{what} has characters that a header can't hold")


def noted(call: Call, run_s: float) -> dict[str, Any]:
    """What a head says about any request that has run."""
    head: dict[str, Any] = {}
    if run_s >= NOTED_RUN_S:
        head["run_s"] = round(run_s, 6)
    if call.used:
        # Whatever else model code wrote there could make the head unreadable, or too large for a frame.
        counts = list(call.used.items())[:COUNTS_MOST]
        head["usage"] = {name: value for name, value in counts if type(name) is str and len(name) <= WORD_LONGEST and _is_count(value)}
    return head


def _is_count(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < COUNT_LARGEST
    if type(value) is str:
        return len(value) <= WORD_LONGEST
    return type(value) is float and math.isfinite(value)


def error_head(error: BaseException) -> dict[str, Any]:
    """What a head says about an exception from model code. Everything but a BadRequest also leaves its traceback on stderr."""
    if isinstance(error, BadRequest):
        return {"status": "bad_request", "message": _text(error) or "the model refused the input"}
    print_traceback(error)
    if is_out_of_device_memory(error):
        return {"status": "out_of_memory", "message": describe(error)}
    return {"status": "raised", "message": describe(error)}


def is_out_of_device_memory(error: BaseException) -> bool:
    """Ours, or what a library says in its own way."""
    return isinstance(error, OutOfDeviceMemory) or type(error).__name__ in _OUT_OF_MEMORY


def describe(error: BaseException) -> str:
    """TypeName: message, on one line."""
    if isinstance(error, SystemExit):
        return f"SystemExit: model code called exit({'' if error.code is None else error.code})"
    text = _text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def print_traceback(error: BaseException) -> None:
    """To the captured stderr, without the frame of ours that called model code."""
    import traceback  # 2 ms, once something has failed

    inner = error.__traceback__.tb_next if error.__traceback__ is not None else None
    try:
        traceback.print_exception(type(error), error, inner or error.__traceback__, file=sys.stderr)
    except Exception as failure:  # noqa: BLE001 - an exception of model code may have a broken __str__ or __cause__
        sys.stderr.write(f"{type(error).__name__}, whose traceback can't be printed: {type(failure).__name__}\n")


def _text(error: BaseException) -> str:
    try:
        return " ".join(str(error).split())[:MESSAGE_LONGEST]
    except Exception:  # noqa: BLE001 - as above
        return ""


def error_frames(call: Call, error: BaseException, run_s: float) -> Outgoing:
    """The ANSWER for an exception from model code."""
    return _frames(call, {**error_head(error), **noted(call, run_s)}, b"")


def cancelled_frames(call: Call, message: str) -> Outgoing:
    """The last word about a call whose caller has gone: END where a stream was begun, else ANSWER."""
    head: dict[str, Any] = {"status": "cancelled"}
    if message:
        head["message"] = message
    return end_frames(call, head) if call.streamed else _frames(call, head, b"")


def stream_frames(call: Call, head: dict[str, Any]) -> list[bytes]:
    return list(frames(Kind.STREAM, Kind.PART, call.id, with_head(head_json(head) if head else OK_HEAD), ()))


def end_frames(call: Call, head: dict[str, Any]) -> list[bytes]:
    return list(frames(Kind.END, Kind.PART, call.id, b"", [head_json(head)]))


def _frames(call: Call, head: dict[str, Any], data: bytes) -> Outgoing:
    prefix = with_head(head_json(head) if head else OK_HEAD)
    if is_long(prefix, data):
        return [LongAnswer(call.id, prefix, data)]
    return list(frames(Kind.ANSWER, Kind.PART, call.id, prefix, [data]))
