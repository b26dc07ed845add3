"""Pictures as the tests of vision models send them."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"


def sample(name: str) -> bytes:
    """A file of the folder that lies beside the repository; the test is skipped where it doesn't."""
    path = SAMPLES / name
    if not path.is_file():
        pytest.skip(f"no {name}: the folder shared/samples isn't beside the repository")
    return path.read_bytes()


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    """The picture as a file."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def turned(image: Image.Image) -> bytes:
    """The picture as a camera stores it that was held sideways: its EXIF data says how to turn it back."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(image.transpose(Image.Transpose.ROTATE_90), exif=exif)


def mask_of(answer: dict[str, Any]) -> np.ndarray:
    """The class indices of a segmentation's answer, as rows."""
    with Image.open(io.BytesIO(base64.b64decode(answer["mask"]))) as image:
        assert image.format == "PNG" and image.mode == "L" and image.size == (answer["width"], answer["height"])
        return np.asarray(image)
