"""A segmentation's mask: a PNG that a model made, so it is read with a limit and by the PNG reader alone."""

import base64
import binascii
import io
from typing import TYPE_CHECKING

from fornada.cli.answers.shapes import Segmentation
from fornada.cli.failures import CommandFailed

if TYPE_CHECKING:
    from PIL import Image

MOST_PIXELS = 64_000_000


def mask_of(answer: Segmentation) -> "Image.Image":
    """The mask as a greyscale picture whose values are indices. Raises CommandFailed."""
    from PIL import Image

    try:
        raw = base64.b64decode(answer.mask, validate=True)
        with Image.open(io.BytesIO(raw), formats=("PNG",)) as mask:
            if mask.width * mask.height > MOST_PIXELS:
                raise CommandFailed(f"the mask has {mask.width} x {mask.height} pixels, more than this command decodes ({MOST_PIXELS})")
            if mask.mode not in ("L", "P", "1"):
                raise CommandFailed(f"the mask is a PNG of mode {mask.mode}, not one of 8 bits a pixel (the model's fault)")
            mask.load()
            # A palette's entries are colours for the eye; what counts is their number.
            return mask.convert("L") if mask.mode == "1" else Image.frombytes("L", mask.size, mask.tobytes())
    except CommandFailed:
        raise
    except (binascii.Error, ValueError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise CommandFailed(f"the mask can't be read as a PNG (the model's fault): {error}; --json shows the answer as it came") from None


def shares(answer: Segmentation) -> list[tuple[str, float]]:
    """Label -> share of the pixels, the largest first."""
    counts = mask_of(answer).histogram()
    total = max(sum(counts), 1)
    found = [
        (answer.labels[index] if index < len(answer.labels) else f"class {index}", count / total) for index, count in enumerate(counts)
    ]
    return sorted(found, key=lambda each: -each[1])
