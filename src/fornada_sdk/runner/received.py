"""A request off the wire. Its head is parsed only if somebody asks: most models look at the body alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fornada_sdk.api_messages import Messages
from fornada_sdk.api_request import JSON_TYPE, Body, Head, Request, body_of
from fornada_sdk.wire.messages import decode

if TYPE_CHECKING:
    from fornada_sdk.api_tensors import Tensors
    from fornada_sdk.runner.call import Call

TENSORS_TYPE = "application/vnd.fornada.tensors"
TENSORS = b'"tensors":{'
"""In the head of a request of tensors, and in no other: headers and the query's parameters are texts, whose quotes are escaped."""


class Received(Request):
    """An INVOKE's head and body as a Request."""

    __slots__ = ("_call", "_given", "_raw", "_tensors")

    def __init__(self, given: bytes, raw: bytes, call: Call | None = None) -> None:
        """`call`: where what its caller says later is to be had."""
        self._given = given
        self._raw = raw
        self._call = call
        self._body = None
        self._head = None
        self._messages = None
        self._tensors: Tensors | None = None

    @property
    def tensors(self) -> Tensors:
        found = self._tensors
        if found is None:
            from fornada_sdk.api_tensors import Tensors, received

            tensors = TENSORS in self._given
            found = self._tensors = received(decode(self._given)["tensors"], self._raw) if tensors else Tensors()
        return found

    @property
    def body(self) -> Body:
        body = self._body
        if body is None:
            given = self._given
            # Defaults are left out of a head, so that the usual request (one piece of JSON) shows without parsing.
            if TENSORS in given:
                body = body_of(self.tensors)
            elif b'"parts"' in given or b'"type"' in given:
                body = _body(decode(given), self._raw)
            else:
                body = Body(self._raw)
            self._body = body
        return body

    @property
    def head(self) -> Head:
        head = self._head
        if head is None:
            given = decode(self._given) if self._given else {}
            head = self._head = Head(given.get("headers") or {}, given.get("query") or {}, bool(given.get("stream")))
        return head

    @property
    def messages(self) -> Messages:
        if self._messages is None:
            call = self._call
            talks = call is not None and b'"messages"' in self._given and decode(self._given).get("messages") is True
            self._messages = call.listen() if call is not None and talks else Messages()
        return self._messages


def _body(given: dict[str, Any], raw: bytes) -> Body:
    type = given.get("type") or JSON_TYPE
    parts = given.get("parts")
    if not parts:
        return Body(raw, type)
    pieces: dict[str, bytes] = {}
    at = 0
    for name, size in parts:
        pieces[name] = raw[at : at + size]
        at += size
    text = pieces.pop("", None)
    return Body(text, type if text is None else JSON_TYPE, pieces)
