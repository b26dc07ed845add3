"""The inference that stands between loading and READY: the model's own `warmup`, or the folder's request example."""

from __future__ import annotations

import os
from typing import Any

from fornada_sdk.api import Model, Response
from fornada_sdk.api_request import Request
from fornada_sdk.runner.answers import encoded
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.engines import Target
from fornada_sdk.runner.streams import is_stream

FOLDER = "example"
STEM = "request"
TYPES = {
    ".json": "application/json",
    ".txt": "text/plain",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".bmp": "image/bmp",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".flac": "audio/flac",
}
"""Media types of examples; any other ending is application/octet-stream."""


def example(assignment: Assignment) -> Request | None:
    """The request example, from where the assignment says or from example/request.* in the folder; None: there is none."""
    path = assignment.example or _found(os.path.join(assignment.folder, FOLDER))
    if not path:
        return None
    with open(path, "rb") as file:
        raw = file.read()
    type = TYPES.get(os.path.splitext(path)[1].lower(), "application/octet-stream")
    return Request(bytes=raw, type=type)


def _found(folder: str) -> str:
    try:
        names = sorted(name for name in os.listdir(folder) if os.path.splitext(name)[0] == STEM)
    except OSError:
        return ""
    return os.path.join(folder, names[0]) if names else ""


def own_warmup(target: Target) -> Any:
    """The model's own warmup, or None where it has not written one."""
    return target.warmup if isinstance(target, Model) and type(target).warmup is not Model.warmup else None


def check_answer(result: Any) -> Any:
    """Encodes a warm-up's answer as a caller's would be; of a stream, its first item. Raises what a caller would be told.

    An async stream is returned: only the loop can ask it for its first item.
    """
    items = result.body if isinstance(result, Response) and is_stream(result) else result
    if hasattr(items, "__anext__"):
        return items
    if is_stream(result):
        for item in items:
            encoded(item)
            break
        getattr(items, "close", _nothing)()
    else:
        encoded(result)
    return None


def _nothing() -> None:
    pass
