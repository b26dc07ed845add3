"""Pictures and sound in JSON: numbers from 0 to 255, base64 or a data URI, as the bytes they mean."""

import base64
import binascii
from typing import Annotated

import msgspec

from fornada.core.errors import BadRequest

_NUMBERS = msgspec.json.Decoder(list[int])
_BYTES = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, le=255)]])
_TEXT = msgspec.json.Decoder(str)
_BLANKS = " \t\r\n"


def bytes_of(field: str, raw: bytes | msgspec.Raw) -> bytes:
    """The bytes of a JSON value. Raises BadRequest with the field's name."""
    view = bytes(raw).lstrip()
    if view[:1] == b"[":
        return _numbers(field, view)
    if view[:1] == b'"':
        try:
            text = _TEXT.decode(view)
        except msgspec.MsgspecError:
            raise BadRequest(f"'/{field}' is no JSON string") from None
        return text_bytes(field, text)
    raise BadRequest(f"Type mismatch of '/{field}': it must be an array of numbers from 0 to 255, base64 or a data URI")


def text_bytes(field: str, text: str) -> bytes:
    """The bytes of base64 or a data URI. Raises BadRequest."""
    encoded = text
    if text[:5].lower() == "data:":
        head, comma, encoded = text.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise BadRequest(f"'/{field}' is a data URI that isn't base64")
    elif "://" in text[:16]:
        raise BadRequest(f"'/{field}' is an address: send the bytes, addresses aren't fetched")
    if any(blank in encoded for blank in _BLANKS):
        encoded = "".join(encoded.split())
    if "-" in encoded or "_" in encoded:
        encoded = encoded.translate({ord("-"): "+", ord("_"): "/"})
    try:
        data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"'/{field}' is no base64") from None
    if not data:
        raise BadRequest(f"'/{field}' is empty")
    return data


def _numbers(field: str, view: bytes) -> bytes:
    try:
        data = bytes(_NUMBERS.decode(view))
    except (msgspec.MsgspecError, ValueError, OverflowError):
        raise BadRequest(f"'/{field}{_where(view)}' must be a whole number from 0 to 255") from None
    if not data:
        raise BadRequest(f"'/{field}' is empty")
    return data


def _where(view: bytes) -> str:
    """`/3` for the first element that is no byte."""
    try:
        _BYTES.decode(view)
    except msgspec.ValidationError as error:
        _, mark, path = str(error).rpartition("at `$[")
        if mark:
            return "/" + path.partition("]")[0]
    except msgspec.DecodeError:
        pass
    return ""
