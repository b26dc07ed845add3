"""Request.image: from whatever form a picture came in to an upright RGB image. Runs in the sandbox, with the model's own Pillow."""

from __future__ import annotations

import io
from typing import Any

from fornada_sdk.api import BadRequest
from fornada_sdk.api_bytes import bytes_in
from fornada_sdk.api_request import Body

DEFAULT_PIXELS = 64_000_000
"""Decoded as RGB these take 192 MB; a file of some kilobytes may claim far more."""


def image_in(body: Body, field: str, *, max_pixels: int) -> Any:
    """The picture in `body` as a PIL image of mode RGB. Raises BadRequest."""
    return decode_image(bytes_in(body, field), max_pixels=max_pixels)


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
