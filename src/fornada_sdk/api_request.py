"""A request, as model code sees it. Nothing is parsed before it is asked for."""

from __future__ import annotations

import functools
import json as jsonlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fornada_sdk.api import BadRequest
from fornada_sdk.api_messages import Message, Messages

if TYPE_CHECKING:
    from fornada_sdk.api_tensors import Tensors

JSON_TYPE = "application/json"
_UNSET: Any = object()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = jsonlib.JSONDecoder(parse_constant=_no_constant)
_scan = _DECODER.scan_once  # type: ignore[attr-defined]  # documented nowhere, and there since 2.7


FAST_FROM = 512
"""Bytes from which on another decoder than the standard library's is worth a call."""


@functools.cache
def _fast() -> tuple[Callable[[bytes], Any], type[Exception]] | None:
    """msgspec's decoder and its error, where the model's environment holds it: some eight times as fast on lists of numbers."""
    try:
        import msgspec
    except ImportError:
        return None
    return msgspec.json.Decoder().decode, msgspec.MsgspecError


def _decode(raw: bytes) -> Any:
    """The JSON value in `raw`. Raises ValueError, RecursionError."""
    fast = _fast() if len(raw) >= FAST_FROM else None
    if fast is not None:
        decode, refusal = fast
        try:
            return decode(raw)
        except refusal:
            pass  # what one of the two takes and the other doesn't is decided below, the same in every environment
    text = raw.decode()
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    if end == len(text):
        return value
    return _DECODER.decode(text.lstrip("\ufeff"))  # white space around the value; or what is wrong, in words


class Headers(Mapping[str, str]):
    """Request headers, found whatever the case of their names."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def __getitem__(self, name: str) -> str:
        return self._given[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


class Head:
    """What came with the body."""

    __slots__ = ("headers", "query", "stream")

    def __init__(self, headers: Mapping[str, str], query: Mapping[str, str], stream: bool) -> None:
        self.headers = Headers(headers)
        self.query = dict(query)
        self.stream = stream


class Body:
    """A request's body: `.json`, `.bytes`, `.text`; `type` is its media type.

    `fields` holds the binary pieces that came beside the JSON; in `.json` they are bytes under their names.
    """

    __slots__ = ("_json", "_raw", "fields", "type")

    def __init__(self, raw: bytes | None, type: str = JSON_TYPE, fields: Mapping[str, bytes] | None = None) -> None:
        """`raw` is the body, or its JSON where there are fields (None: fields alone)."""
        self._raw = raw
        self.type = type
        self.fields = fields
        self._json: Any = _UNSET

    @property
    def bytes(self) -> bytes:
        """The body as it came; where it came in pieces, the JSON, or else the first piece."""
        raw = self._raw
        if raw is not None:
            return raw
        return next(iter((self.fields or {}).values()), b"")

    @property
    def json(self) -> Any:
        """The decoded JSON. Raises BadRequest if the body is none."""
        value = self._json
        if value is _UNSET:
            value = self._json = self._decoded()
        return value

    @property
    def text(self) -> str:
        """The body as UTF-8. Raises BadRequest if it is none."""
        try:
            return self.bytes.decode()
        except UnicodeDecodeError:
            raise BadRequest("the body is not UTF-8 text") from None

    def _decoded(self) -> Any:
        if self._raw is None:
            return dict(self.fields or {})
        if not is_json(self.type):
            raise BadRequest(f"the body must be JSON, and its type is {self.type or 'not given'}")
        try:
            value = _decode(self._raw)
        except RecursionError:
            raise BadRequest("the JSON is nested too deeply") from None
        except ValueError as error:
            raise BadRequest(f"the body is no JSON: {error}") from None
        if self.fields:
            if not isinstance(value, dict):
                raise BadRequest("binary fields came beside JSON that is no object")
            value.update(self.fields)
        return value


def is_json(type: str) -> bool:
    """Whether a media type means JSON."""
    if type == JSON_TYPE:
        return True
    essence = type.partition(";")[0].strip().lower()
    return essence == JSON_TYPE or essence.endswith("+json")


class Request:
    """One request. Made by hand for tests: `Request(json={"text": "hello"})`, `Request(bytes=picture, type="image/png")`,
    `Request(tensors={"x": Tensor([1.0], "FP32")})`."""

    __slots__ = ("_body", "_given_tensors", "_head", "_messages")

    def __init__(
        self,
        *,
        json: Any = _UNSET,
        bytes: bytes | None = None,
        text: str | None = None,
        tensors: Mapping[str, Any] | None = None,
        type: str = "",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        stream: bool = False,
        messages: Iterable[Message] = (),
    ) -> None:
        if sum([json is not _UNSET, bytes is not None, text is not None, tensors is not None]) > 1:
            raise ValueError("give one of json, bytes, text and tensors")
        if text is not None:
            body = Body(text.encode(), type or "text/plain")
        elif bytes is not None:
            body = Body(bytes, type or "application/octet-stream")
        elif tensors is not None:
            body = body_of(_tensors(tensors))
        else:
            body = _made({} if json is _UNSET else json, type)
        self._body: Body | None = body
        self._given_tensors = tensors
        self._head: Head | None = Head(headers or {}, query or {}, stream)
        self._messages: Messages | None = Messages(messages)

    @property
    def body(self) -> Body:
        return self._body or Body(b"")

    @property
    def head(self) -> Head:
        return self._head or Head({}, {}, False)

    @property
    def headers(self) -> Headers:
        return self.head.headers

    @property
    def query(self) -> Mapping[str, str]:
        return self.head.query

    @property
    def stream(self) -> bool:
        """The caller asked for a stream. A model may yield in any case: without `stream` the items are collected for the caller."""
        return self.head.stream

    @property
    def tensors(self) -> Tensors:
        """`request.tensors["x"]` is a Tensor: what came by the Open Inference Protocol (HTTP or gRPC) or TensorFlow Serving's REST.
        Empty for any other request. A model that doesn't look here finds the same as lists in `body.json`."""
        return _tensors(self._given_tensors or {})

    @property
    def messages(self) -> Messages:
        """What the caller says later, over a WebSocket: to be iterated, with `for` or `async for`. See docs/how-to/realtime-models.md."""
        return self._messages or Messages()

    def image(self, field: str = "image", *, max_pixels: int = 0) -> Any:
        """The picture in the body as a PIL image: RGB, upright. Needs pillow among the model's dependencies.

        The body is the picture itself, or JSON that holds it under `field` as bytes, an array of 0..255, base64 or a data URI.
        Raises BadRequest where there is none, it can't be read, or it has more than `max_pixels` (64 million unless given).
        """
        from fornada_sdk.api_image import DEFAULT_PIXELS, image_in

        return image_in(self.body, field, max_pixels=max_pixels or DEFAULT_PIXELS)

    def file(self, field: str) -> bytes:
        """The bytes of a file in the body: a recording, say, or anything else that isn't JSON.

        The body is the file itself, or JSON that holds it under `field` as bytes, an array of 0..255, base64 or a data URI.
        Raises BadRequest where there is none.
        """
        from fornada_sdk.api_bytes import bytes_in

        return bytes_in(self.body, field)


def _tensors(given: Mapping[str, Any]) -> Tensors:
    from fornada_sdk.api_tensors import Tensor, Tensors

    if isinstance(given, Tensors):
        return given
    return Tensors({name: value if isinstance(value, Tensor) else Tensor(value) for name, value in given.items()})


def body_of(tensors: Tensors) -> Body:
    """Tensors as the JSON object {name: nested lists}; elements of BYTES as text, or as bytes where they are no UTF-8."""
    return _made({name: _with_text(tensor.tolist()) for name, tensor in tensors.items()}, "")


def _with_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_text(each) for each in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def _made(value: Any, type: str) -> Body:
    """A body whose decoded form is `value` itself, which may hold bytes that JSON can't."""

    def as_text(other: Any) -> str:
        if isinstance(other, (bytes, bytearray, memoryview)):
            return ""
        raise TypeError(f"{other.__class__.__name__} is no JSON")

    body = Body(jsonlib.dumps(value, default=as_text).encode(), type or JSON_TYPE)
    body._json = value
    return body
