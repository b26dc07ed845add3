"""What kind of sound or picture some bytes are, by how they begin. Pure.

Models answer with bytes as they are, or with base64 in JSON that doesn't say of what.
"""

import base64
import binascii
from typing import NamedTuple

import msgspec

from fornada.core.errors import ModelRaised
from fornada.core.requests import AnswerHead


class Kind(NamedTuple):
    """`name` as OpenAI's formats call it; empty: nothing that begins in a known way."""

    name: str
    type: str


NO_KIND = Kind("", "application/octet-stream")
KINDS = {
    kind.name: kind
    for kind in (
        Kind("mp3", "audio/mpeg"),
        Kind("wav", "audio/wav"),
        Kind("flac", "audio/flac"),
        Kind("opus", "audio/ogg"),
        Kind("aac", "audio/aac"),
        Kind("pcm", "audio/pcm"),
        Kind("png", "image/png"),
        Kind("jpeg", "image/jpeg"),
        Kind("webp", "image/webp"),
    )
}
_BEGINNINGS = ((b"ID3", "mp3"), (b"fLaC", "flac"), (b"OggS", "opus"), (b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"))


def kind_of(data: bytes | memoryview) -> Kind:
    """By the first bytes alone."""
    head = bytes(data[:12])
    for beginning, name in _BEGINNINGS:
        if head.startswith(beginning):
            return KINDS[name]
    if head[:4] == b"RIFF":
        return KINDS.get({b"WAVE": "wav", b"WEBP": "webp"}.get(head[8:12], ""), NO_KIND)
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:  # a frame of MPEG audio: AAC's has layer 0
        return KINDS["mp3" if head[1] & 0x06 else "aac"]
    return NO_KIND


class _Sound(msgspec.Struct, frozen=True):
    audio: str


class _Picture(msgspec.Struct, frozen=True):
    image: str


def sound_in(head: AnswerHead, body: bytes | memoryview) -> bytes:
    """The sound of a text-to-speech model's answer. Raises ModelRaised."""
    if head.type != "application/json":
        return _raw(head, body, "audio/")
    try:
        return _bytes(msgspec.json.decode(body, type=_Sound).audio)
    except (msgspec.MsgspecError, RecursionError):
        raise ModelRaised("the model's answer is no sound: it must be audio as it is, or base64 in `audio`") from None


def picture_in(head: AnswerHead, body: bytes | memoryview) -> bytes:
    """The picture of a text-to-image model's answer. Raises ModelRaised."""
    if head.type != "application/json":
        return _raw(head, body, "image/")
    try:
        return _bytes(msgspec.json.decode(body, type=_Picture).image)
    except (msgspec.MsgspecError, RecursionError):
        raise ModelRaised("the model's answer is no picture: it must be an image as it is, or base64 in `image`") from None


def _raw(head: AnswerHead, body: bytes | memoryview, wanted: str) -> bytes:
    if not head.type.startswith((wanted, "application/octet-stream")):
        raise ModelRaised(f"the model answered with {head.type[:100]}, and {wanted}… was asked for")
    return bytes(body)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError):
        raise ModelRaised("the model's answer holds no base64") from None
