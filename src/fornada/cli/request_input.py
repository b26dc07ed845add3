"""The body of `fornada run`: from --input, --file, -i key=value or stdin."""

import base64
import json
import math
import mimetypes
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from fornada.cli.failures import one_line


class NoJson(ValueError):
    """The message is half a line."""


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
        value = parsed(content)
    except NoJson as error:
        raise click.UsageError(f"{where} is no JSON: {error}") from None
    if isinstance(value, dict):
        return from_value(value)
    return Body(content, "application/json", None)


def from_value(value: dict[str, Any]) -> Body:
    """Raises UsageError for text that UTF-8 has no bytes for: half a pair of surrogates, or an argument in another encoding."""
    try:
        return Body(json.dumps(value, ensure_ascii=False).encode(), "application/json", value)
    except UnicodeEncodeError as error:
        raise click.UsageError(f"the input holds text that is no UTF-8 ({error.object[error.start]!a}); write it in UTF-8") from None


def parsed(content: bytes | str) -> Any:
    """JSON as values. Bytes may be UTF-16 and begin with a mark, as some editors write them. Raises NoJson."""
    try:
        return json.loads(content, parse_constant=_no_number, parse_float=_number)
    except RecursionError:
        raise NoJson("nested too deeply") from None
    except ValueError as error:
        raise NoJson(one_line(str(error))) from None


def text_of(content: bytes, where: str) -> str:
    """The same encodings. Raises UsageError."""
    try:
        return content.decode(json.detect_encoding(content))
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{where} is no UTF-8 (byte {error.start}); write it in UTF-8") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _number(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number


def from_bytes(content: bytes, path: str) -> Body:
    """A JSON object stays one; anything else is the model's one binary input."""
    if content[:64].lstrip()[:1] == b"{":
        try:
            value = parsed(content)
        except NoJson:
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
        return key, parsed(value)
    except NoJson:
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
