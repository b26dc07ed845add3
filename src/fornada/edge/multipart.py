"""multipart/form-data: the fields of a form, out of a body that is in memory already."""

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from fornada.core.errors import BadRequest

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MOST_FIELDS = 100
# What the parser says of a broken form would go to the node's stderr, with the caller's bytes in it, a line for each: the caller is told.
logging.getLogger("python_multipart").addHandler(logging.NullHandler())
logging.getLogger("python_multipart").propagate = False


class Field(NamedTuple):
    """One field of a form."""

    data: bytes
    is_file: bool
    """It has a filename."""
    filename: str = ""
    type: str = ""
    """Its media type, where it names one."""

    def text(self) -> str | None:
        """The field as text, None where it is no UTF-8."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            return None


def read_multipart(body: bytes, content_type: str, *, lists: Collection[str] = ()) -> dict[str, Field]:
    """Fields by name, in order. Those named in `lists` may come several times: their values have commas between them. Raises BadRequest."""
    fields: dict[str, Field] = {}
    for name, field in read_parts(body, content_type):
        if name in fields:
            if name not in lists:
                raise BadRequest(f"the field '{name[:100]}' comes twice")
            field = field._replace(data=fields[name].data + b"," + field.data)
        fields[name] = field
    return fields


def read_parts(body: bytes, content_type: str) -> list[tuple[str, Field]]:
    """All fields with their names, in order. Raises BadRequest."""
    return [(name, field._replace(data=b"".join(pieces))) for name, pieces, field in _read(body, content_type)]


def read_views(body: bytes, content_type: str) -> dict[str, memoryview]:
    """Fields by name, as views of the body: a large file isn't copied. Raises BadRequest."""
    views: dict[str, memoryview] = {}
    for name, pieces, _ in _read(body, content_type):
        if name in views:
            raise BadRequest(f"the field '{name[:100]}' comes twice")
        views[name] = pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
    return views


def _read(body: bytes, content_type: str) -> "list[tuple[str, list[memoryview], Field]]":
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise BadRequest("the content type multipart/form-data names no boundary")
    reader = _Reader()
    try:
        parser = MultipartParser(boundary, reader.callbacks())
        parser.write(body)
        parser.finalize()
    except FormParserError:
        raise BadRequest("the multipart body is broken") from None
    if not reader.complete:
        raise BadRequest("the multipart body isn't complete")
    return reader.found


class _Reader:
    """Collects what the parser finds."""

    def __init__(self) -> None:
        self.found: list[tuple[str, list[memoryview], Field]] = []
        """Name, content in pieces, and the field without its content."""
        self.complete = False
        self._parts = 0
        self._name = b""
        self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._data: list[memoryview] = []

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_part_data": self._part,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MOST_FIELDS:
            raise BadRequest(f"the form has more than {MOST_FIELDS} fields")
        self._headers, self._data, self._name, self._value = {}, [], b"", b""

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _part(self, data: bytes, start: int, end: int) -> None:
        self._data.append(memoryview(data)[start:end])

    def _end(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        try:
            name = options.get(b"name", b"").decode()
        except UnicodeDecodeError:
            raise BadRequest("a field's name is no UTF-8") from None
        if not name:
            raise BadRequest("a part of the form has no name")
        filename = options.get(b"filename", b"").decode(errors="replace")
        kind = self._headers.get(b"content-type", b"").decode("latin-1").strip()
        is_file = b"filename" in options or b"filename*" in options
        self.found.append((name, self._data, Field(b"", is_file, filename, kind)))

    def _finish(self) -> None:
        self.complete = True
