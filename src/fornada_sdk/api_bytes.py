"""Request.file: the bytes of a picture, a recording or any other file, in whatever form they came."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from fornada_sdk.api import BadRequest
from fornada_sdk.api_request import Body, is_json


def bytes_in(body: Body, field: str) -> bytes:
    """The file in `body`: the body itself, or what its JSON holds under `field`. Raises BadRequest."""
    fields = body.fields
    if fields is not None:
        if field in fields:
            return bytes(fields[field])
        (alone,) = fields.values() if len(fields) == 1 else (None,)
        if alone is not None and body.bytes is alone:
            return alone
    elif not is_json(body.type):
        return body.bytes
    value = body.json
    if not isinstance(value, dict):
        raise BadRequest(f"the body must be the {field} itself, or an object with '{field}'")
    for name in (field, f"{field}_b64", f"{field}_url"):
        if value.get(name) is not None:
            return field_bytes(value[name], name)
    raise BadRequest(f"the input has no '{field}'")


def field_bytes(value: Any, name: str) -> bytes:
    """Bytes out of bytes, an array of 0..255, base64, a data URI or {"url": data URI}. Raises BadRequest, naming the field."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, list):
        try:
            return bytes(value)
        except (TypeError, ValueError):
            raise BadRequest(f"'{name}' must hold whole numbers from 0 to 255") from None
    if isinstance(value, dict) and isinstance(value.get("url"), str):
        value = value["url"]
        if not value.startswith("data:"):
            raise BadRequest(f"'{name}' must be a data URI: models fetch nothing")
    if isinstance(value, str):
        return _base64(value, name)
    raise BadRequest(f"'{name}' must be an array of bytes, base64 text or a data URI, and is {type(value).__name__}")


def _base64(value: str, name: str) -> bytes:
    if value.startswith("data:"):
        head, comma, value = value.partition(",")
        if not comma or not head.endswith(";base64"):
            raise BadRequest(f"'{name}' is a data URI without base64")
    elif value.startswith(("http://", "https://")):
        raise BadRequest(f"'{name}' must be a data URI or base64: models fetch nothing")
    text = "".join(value.split()).replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"'{name}' is no base64") from None
