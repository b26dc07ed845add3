"""Request.image: from whatever form a picture came in to an upright RGB image. Runs in the sandbox, with the model's own Pillow."""

from __future__ import annotations

import io
from typing import Any

from fornada_sdk.api import BadRequest
from fornada_sdk.api_bytes import bytes_in
from fornada_sdk.api_request import Body

DEFAULT_PIXELS = 64_000_000
"""Decoded as RGB these take 192 MB; a file of some kilobytes may claim far more."""


ORIENTATION = 0x0112
UPRIGHT = 1
"""EXIF's tag."""
TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""What brings a picture of that orientation upright, by Pillow's names; 1 is upright."""


def image_in(body: Body, field: str, *, max_pixels: int) -> Any:
    """The picture in `body` as a PIL image of mode RGB. Raises BadRequest."""
    return decode_image(bytes_in(body, field), max_pixels=max_pixels)


def decode_image(raw: bytes, *, max_pixels: int = DEFAULT_PIXELS) -> Any:
    """An encoded picture as an upright RGB PIL image; of an animation, the first frame. Raises BadRequest."""
    try:
        from PIL import Image
    except ImportError:
        raise RuntimeError("request.image() needs Pillow: add pillow to the model's dependencies") from None
    if not raw:
        raise BadRequest("the picture is empty")
    try:
        width = height = 0
        with Image.open(io.BytesIO(raw)) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise BadRequest(f"the picture has {width} x {height} pixels, more than the {max_pixels} allowed")
            image.load()
            turn = TURNS.get(image.getexif().get(ORIENTATION, UPRIGHT))
            decoded = _rgb(image)
        del image  # the file's own pixels, unless they are the decoded ones: there are never more than two copies
        return decoded if turn is None else decoded.transpose(getattr(Image.Transpose, turn))
    except BadRequest:
        raise
    except Image.DecompressionBombError as error:
        raise BadRequest(f"the picture is refused: {error}") from None
    except MemoryError:
        raise BadRequest(f"the picture has {width} x {height} pixels, more than this model has memory for") from None
    except Exception as error:  # noqa: BLE001 - Pillow's readers raise whatever the broken byte led to: OSError, SyntaxError, struct.error, ...
        raise BadRequest(f"the picture can't be read: it is broken, or in no format that is known here ({type(error).__name__})") from None


def _rgb(image: Any) -> Any:
    if image.mode.startswith("I;16"):
        # Pillow clips 16-bit grey at 255 instead of scaling it.
        image = image.point(lambda value: value / 256).convert("L")
    return image if image.mode == "RGB" else image.convert("RGB")
