"""Request.image: from whatever form a picture came in to an upright RGB image. Runs in the sandbox, with the model's own Pillow."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any

from fornada_sdk.api import BadRequest
from fornada_sdk.api_request import Body, is_json

DEFAULT_PIXELS = 64_000_000
"""Decoded as RGB these take 192 MB; a file of some kilobytes may claim far more."""


def image_in(body: Body, field: str, *, max_pixels: int) -> Any:
    """The picture in `body` as a PIL image of mode RGB. Raises BadRequest."""
    return decode_image(picture_bytes(body, field), max_pixels=max_pixels)


def picture_bytes(body: Body, field: str) -> bytes:
    """The encoded picture in `body`. Raises BadRequest."""
    fields = body.fields
    if fields is not None:
        if field in fields:
            return fields[field]
        (alone,) = fields.values() if len(fields) == 1 else (None,)
        if alone is not None and body.bytes is alone:
            return alone
    elif not is_json(body.type):
        return body.bytes
    value = body.json
    if not isinstance(value, dict):
        raise BadRequest(f"the body must be a picture, or an object with '{field}'")
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


def decode_image(raw: bytes, *, max_pixels: int = DEFAULT_PIXELS) -> Any:
    """An encoded picture as an upright RGB PIL image; of an animation, the first frame. Raises BadRequest."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise RuntimeError("request.image() needs Pillow: add pillow to the model's dependencies") from None
    if not raw:
        raise BadRequest("the picture is empty")
    try:
        with Image.open(io.BytesIO(raw)) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise BadRequest(f"the picture has {width} x {height} pixels, more than the {max_pixels} allowed")
            image.load()
            return _rgb(ImageOps.exif_transpose(image))
    except BadRequest:
        raise
    except Image.DecompressionBombError as error:
        raise BadRequest(f"the picture is refused: {error}") from None
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - Pillow's readers raise whatever the broken byte led to: OSError, SyntaxError, struct.error, ...
        raise BadRequest(f"the picture can't be read: {type(error).__name__}") from None


def _rgb(image: Any) -> Any:
    if image.mode.startswith("I;16"):
        # Pillow clips 16-bit grey at 255 instead of scaling it.
        image = image.point(lambda value: value / 256).convert("L")
    return image if image.mode == "RGB" else image.convert("RGB")
