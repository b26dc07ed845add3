"""Contract model: nothing is drawn. One colour comes back, the same for the same prompt and seed, as a PNG of the size asked for."""

import hashlib
import struct
import zlib

import fornada_sdk

SIDE = 512


def handle_request(request, context):
    asked = request.body.json
    width, height = asked.get("width") or SIDE, asked.get("height") or SIDE
    colour = hashlib.sha256(f"{asked['prompt']} {asked.get('seed')}".encode()).digest()[:3]
    return fornada_sdk.Response(png(width, height, colour), type="image/png")


def png(width, height, colour):
    """`colour`: three bytes, red, green, blue."""
    rows = zlib.compress((b"\0" + colour * width) * height)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"tEXt", b"Comment\0contract model")
        + chunk(b"IDAT", rows)
        + chunk(b"IEND", b"")
    )


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
