"""Contract model: paints one pixel, in base64; takes a form with pictures, in the shape of @cf/black-forest-labs/flux-2-dev."""

import base64
import struct
import zlib


def handle_request(request, context):
    asked = request.body.json
    given = sum(len(value) for name, value in asked.items() if name.startswith("input_image_") and value)
    return {"image": picture(f"{asked['prompt']} {given}")}


def picture(prompt):
    """One pixel whose colour follows from the prompt, as a BMP."""
    colour = zlib.crc32(prompt.encode()).to_bytes(4, "little")[:3]
    head = b"BM" + struct.pack("<IHHI", 58, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, 1, 1, 1, 24, 0, 4, 2835, 2835, 0, 0)
    return base64.b64encode(head + colour + b"\0").decode("ascii")
