"""Model results as JSON bytes. What JSON lacks: NaN and infinities become null (and are reported), numpy's types become lists and numbers."""

from __future__ import annotations

import json
import math
from typing import Any, Callable


def _other(value: Any) -> Any:
    """For the encoder: a type that JSON doesn't know."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError("the answer holds bytes inside JSON: return them alone, or as base64 text")
    if hasattr(value, "__await__"):
        raise TypeError("the answer is a coroutine that nobody has awaited: write the function with async def")
    numpy = getattr(value, "numpy", None)
    if callable(numpy) and not hasattr(value, "tolist"):
        value = numpy()  # TensorFlow's tensors
    tolist = getattr(value, "tolist", None)
    if callable(tolist):
        return tolist()
    raise TypeError(f"the answer holds a value of type '{type(value).__name__}', which is no JSON")


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False, default=_other)


def _fast() -> Callable[[Any], str]:
    """JSONEncoder.encode makes a new C encoder for every call; one that is made once halves the time of a small answer."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _ENCODER.encode
    try:
        chunks = make(None, _other, json.encoder.encode_basestring, None, ":", ",", False, False, False)
        if "".join(chunks({"a": [1, "ä"]}, 0)) != '{"a":[1,"ä"]}':
            return _ENCODER.encode
    except Exception:  # noqa: BLE001 - it is an implementation's detail; without it we are slower, that is all
        return _ENCODER.encode
    return lambda value: "".join(chunks(value, 0))


_encode = _fast()


def to_json(value: Any) -> tuple[bytes, bool]:
    """(JSON in UTF-8, whether non-finite numbers became null). Raises TypeError, naming the type that is no JSON, or ValueError."""
    try:
        return _encode(value).encode(), False
    except RecursionError:
        raise ValueError("the answer is nested too deeply, or holds itself") from None
    except UnicodeEncodeError:
        return _mended(_encode(value)), False
    except ValueError:
        finite = _finite(value)  # a number that isn't; rare, so that only now it is looked for
        return _mended(_encode(finite)), True


def head_json(head: dict[str, Any]) -> bytes:
    """A head of the wire, mended as an answer is: it may quote what model code raised, named or counted."""
    return to_json(head)[0]


def _finite(value: Any) -> Any:
    """`value` with None for every number that isn't finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if value is None or isinstance(value, (str, int)):
        return value
    return _finite(_other(value))


def _mended(text: str) -> bytes:
    """UTF-8, with U+FFFD for halves of surrogate pairs, which no JSON reader has to accept."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
