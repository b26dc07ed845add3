"""JSON from callers: read once, strictly, and never further than needed.

The top level of an object is split into its raw values (`fields`); only what is validated or changed is decoded. Everything
that RFC 8259 forbids is refused: NaN, control characters, bytes that are no UTF-8, trailing text.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from fornada.core.errors import BadRequest

Fields = dict[str, msgspec.Raw]

_FIELDS: Final = msgspec.json.Decoder(Fields)
_VALUE: Final = msgspec.json.Decoder()
_SKIPPED: Final = msgspec.json.Decoder(msgspec.Raw)
_TRUE = (b"true", b'"true"')
_MANY_KEYS = 32
"""Objects with more keys are searched for doubled ones only among those that matter here: each search reads the whole body."""
_FEW_KEYS, _LONG_BODY = 8, 512
_ESCAPED_KEY: Final = re.compile(rb'\\.[^"\\]*"[ \t\r\n]*:', re.DOTALL)
"""The end of a key that isn't spelled as it reads: looking for its name doesn't find it."""
_PLAIN: Final = re.compile(r"[\w .:@+-]*", re.ASCII)
"""Names whose letters can be spelled in one other way alone."""
_OURS = ("stream", "options", "model", "input")


def fields_of(body: bytes) -> Fields:
    """The top level of a JSON object. Raises BadRequest for anything else, also for a key that comes twice."""
    # Skipping a string doesn't look at its bytes; a body in another encoding would get through to the model.
    if not body.isascii():
        _refuse_other_encodings(body)
    try:
        fields = _FIELDS.decode(body)
    except msgspec.ValidationError:
        raise BadRequest("Type mismatch of '/', the body must be a JSON object") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise broken(error) from None
    if _has_more_colons(body, len(fields)):  # as many colons as keys: then none came twice
        _look_for_doubled_keys(body, fields)
    return fields


def check_once(body: bytes, keys: Iterable[str]) -> None:
    """`keys` are those of all objects in `body` that were read. Raises BadRequest where an object, at whatever depth, has one twice."""
    seen = Counter(keys)
    if body.count(b":") == seen.total():
        return
    if len(seen) > _MANY_KEYS or _comes_oftener(body, seen):
        _read_again(body, object_pairs_hook=_table)


def value_of(raw: bytes | msgspec.Raw) -> Any:
    """A JSON value as Python objects. Raises BadRequest."""
    try:
        return _VALUE.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise broken(error) from None


def is_json(data: bytes | memoryview) -> bool:
    """Whether `data` is one JSON value in UTF-8. Builds nothing: what a runner says is checked in a pass over its bytes."""
    try:
        _SKIPPED.decode(data)
        if not isinstance(data, memoryview) and data.isascii():
            return True
        str(data, "utf-8")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    return True


def is_true(raw: msgspec.Raw) -> bool:
    """Whether a field says true; some clients say it in quotes."""
    return bytes(raw) in _TRUE


def encode(value: Fields | Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(value)


def broken(error: Exception) -> BadRequest:
    """A parser's complaint as a refusal. Its text says where, never what stands there."""
    if isinstance(error, RecursionError):
        return BadRequest("the body's JSON is nested too deeply")
    return BadRequest(f"the body is no JSON: {str(error).removeprefix('JSON is malformed: ')}")


def _has_more_colons(body: bytes, count: int) -> bool:
    if count > _FEW_KEYS or len(body) < _LONG_BODY:
        return body.count(b":") != count
    # Looking for the next one is several times as fast as counting through a long list of numbers.
    at = -1
    for _ in range(count):
        at = body.find(b":", at + 1)
    return body.find(b":", at + 1) >= 0


def _refuse_other_encodings(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is no JSON: no UTF-8 (byte {error.start})") from None


def _look_for_doubled_keys(body: bytes, fields: Fields) -> None:
    names = fields if len(fields) <= _MANY_KEYS else [name for name in _OURS if name in fields]
    if _comes_oftener(body, dict.fromkeys(names, 1)):
        _table(_read_again(body, object_pairs_hook=_Pairs))


def _comes_oftener(body: bytes, seen: Mapping[str, int]) -> bool:
    """Whether one of the names may come oftener than was seen."""
    if any(body.count(_spelled(name)) > count for name, count in seen.items()):
        return True
    mark = b"\\u00" if all(map(_PLAIN.fullmatch, seen)) else b"\\"
    return mark in body and _ESCAPED_KEY.search(body) is not None


def _spelled(name: str) -> bytes:
    return b'"%b"' % name.encode("utf-8", "surrogatepass")


def _read_again(body: bytes, *, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    # The readers of this world disagree on which of two counts: what was checked here must be what the model sees.
    try:
        return json.loads(body, object_pairs_hook=object_pairs_hook)
    except (ValueError, RecursionError) as error:
        raise broken(error) from None


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise BadRequest(f"the key '{twice[:100]}' comes twice")
    return table


class _Pairs(list[tuple[str, Any]]):
    """An object as its pairs."""
