"""The body of `fornada run`: from --input, --file, -i key=value or stdin."""

import base64
import json
import mimetypes
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from fornada.cli.failures import one_line


class Body(NamedTuple):
    """What is sent. `value` is set where it is a JSON object, which --stream needs to add to it."""

    content: bytes
    type: str
    value: dict[str, Any] | None

    def picture(self) -> bytes:
        """The picture that is asked about, b"" where there is none: the body itself, or its field `image`."""
        if self.value is None:
            return self.content
        image = self.value.get("image")
        try:
            if isinstance(image, str):
                return base64.b64decode(image.rpartition("base64,")[2])
            return bytes(image) if isinstance(image, list) else b""
        except (TypeError, ValueError):
            return b""


def read(*, text: str | None, path: str | None, pairs: Sequence[str], stdin: bool) -> Body:
    """At most one of the four is given; none at all is an empty object. Raises UsageError."""
    ways = {"--input": text is not None, "--file": path is not None, "-i": bool(pairs), "-": stdin}
    if sum(ways.values()) > 1:
        raise click.UsageError(f"{' and '.join(way for way, given in ways.items() if given)} exclude one another: give the input once")
    if text is not None:
        return from_json(_stdin() if text == "-" else text.encode(), "standard input" if text == "-" else "--input")
    if path is not None:
        return from_bytes(read_bytes(path), path)
    if stdin:
        return from_bytes(_stdin(), "-")
    return from_value(dict(pair(text) for text in pairs))


def from_json(content: bytes, where: str) -> Body:
    try:
        value = json.loads(content)
    except ValueError as error:
        raise click.UsageError(f"{where} is no JSON: {one_line(str(error))}") from None
    if isinstance(value, dict):
        return from_value(value)
    return Body(content, "application/json", None)


def from_value(value: dict[str, Any]) -> Body:
    return Body(json.dumps(value, ensure_ascii=False).encode(), "application/json", value)


def from_bytes(content: bytes, path: str) -> Body:
    """A JSON object stays one; anything else is the model's one binary input."""
    if content[:64].lstrip()[:1] == b"{":
        try:
            value = json.loads(content)
        except ValueError:
            pass
        else:
            if isinstance(value, dict):
                return from_value(value)
    return Body(content, mimetypes.guess_type(path)[0] or "application/octet-stream", None)


def pair(text: str) -> tuple[str, Any]:
    """`key=value`: JSON where it parses, else text; `@path` is the file's text, or its base64 where it is no text; `@-` is stdin."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"-i {text}: write key=value")
    if value.startswith("@"):
        content = _stdin() if value == "@-" else read_file(value[1:])
        try:
            return key, content.decode("utf-8")
        except UnicodeDecodeError:
            return key, base64.b64encode(content).decode("ascii")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def read_bytes(path: str) -> bytes:
    """A file; '-' is stdin. Raises UsageError."""
    return _stdin() if path == "-" else read_file(path)


def read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror or error}") from None


def _stdin() -> bytes:
    content: bytes = sys.stdin.buffer.read()
    return content
