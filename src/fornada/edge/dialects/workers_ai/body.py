"""The body of `ai/run` in all its forms, as what the runner gets (WORKERS_AI.md, 4).

    first byte { or [            JSON, whatever the header says
    multipart/form-data          fields are inputs, files their bytes
    nothing                      no inputs
    anything else                raw bytes: the model's one picture or recording, other inputs from the query

All forms of one input become the same request: bytes out of JSON, base64 and files are pieces of their own (InvokeHead.parts).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import BadRequest
from fornada.edge.binary import bytes_of, text_bytes
from fornada.edge.json_bodies import Fields, encode, fields_of, is_true, value_of
from fornada.edge.json_mode import JsonMode, json_mode
from fornada.edge.multipart import Field, read_multipart
from fornada.edge.platform_options import NO_OPTIONS, Options, read_options
from fornada.edge.tasks import CUSTOM
from fornada.edge.text_messages import made_plain
from fornada.edge.validation import Contract

JSON = "application/json"
_BLANKS = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_STARTS_OF_VALUES = b'"-0123456789tfn'
_STARTS_OF_JSON = b"{[" + _STARTS_OF_VALUES
_SIGNS_OF_MEDIA = (b"\x89PNG", b"\xff\xd8", b"GIF8", b"RIFF", b"BM", b"OggS", b"fLaC", b"ID3", b"II*\x00", b"MM\x00*", b"\x1aE\xdf\xa3")
_UNTYPED = frozenset(["", "application/x-www-form-urlencoded"])
"""What clients send that were told no type; curl's default says nothing of the body either."""
# Other names of the one picture or recording of a task.
_SPELLINGS = {"image_b64": "image", "audio_b64": "audio"}


class Input(NamedTuple):
    """A request's inputs, ready for the runner."""

    body: tuple[bytes, ...]
    parts: tuple[tuple[str, int], ...] = ()
    """As InvokeHead.parts; empty: the body is one piece of `type`."""
    type: str = JSON
    stream: bool = False
    reject_if_busy: bool = False
    json_mode: JsonMode | None = None
    """Generated text must be JSON, and is answered as a value."""
    prompted: bool = False
    """Text was asked to go on from a prompt and not in a conversation."""
    tuned: bool = False
    """The JSON names a fine-tune (`lora`)."""

    def with_json(self, text: bytes) -> "Input":
        """The same with another JSON."""
        parts = (("", len(text)), *self.parts[1:]) if self.parts else ()
        return self._replace(body=(text, *self.body[1:]), parts=parts)


def read_body(pieces: Sequence[bytes], content_type: str, media_type: str, query: Mapping[str, str], contract: Contract) -> Input:
    """The inputs of a request whose body are these pieces, one at least. Raises BadRequest."""
    if len(pieces) > 1 and _is_opaque(pieces[0], media_type, contract):
        return _from_pieces(pieces, media_type, query, contract)
    body = joined(pieces)
    start = body[:1]
    if start not in (b"{", b"["):
        stripped = body[:1024].lstrip(_BLANKS)
        if stripped.startswith(_BOM):
            body = body[body.index(_BOM) + len(_BOM) :]
            stripped = body[:1024].lstrip(_BLANKS)
        start = stripped[:1]
    if start == b"{" or start == b"[":
        return read_json(body, contract)
    if not start and not body.strip(_BLANKS):
        return read_json(b"{}", contract) if contract.open else _with_query({}, {}, query, contract)
    if media_type == "multipart/form-data":
        return _from_fields(read_multipart(body, content_type), query, contract)
    return _from_bytes(body, media_type, query, contract)


def joined(pieces: Sequence[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _is_opaque(first: bytes, media_type: str, contract: Contract) -> bool:
    """Nobody looks into a body that begins so: a long one needn't be copied into one piece. Where that isn't plain, it is no."""
    if media_type == JSON or media_type.endswith("+json") or media_type == "multipart/form-data":
        return False
    start = first.lstrip(_BLANKS)[:1]
    if not start or start in _STARTS_OF_JSON or start == _BOM[:1]:
        return False
    return bool(contract.raw) or contract.open or contract.task is CUSTOM


def _from_pieces(pieces: Sequence[bytes], media_type: str, query: Mapping[str, str], contract: Contract) -> Input:
    """As `_from_bytes`, for what is opaque."""
    given = _from_bytes(b"", media_type or "application/octet-stream", query, contract)
    body = (*given.body[:-1], *pieces)
    parts = (*given.parts[:-1], (contract.raw, sum(map(len, pieces)))) if given.parts else ()
    return given._replace(body=body, parts=parts)


def read_json(body: bytes, contract: Contract) -> Input:
    """Inputs out of a JSON body."""
    if not contract.objects_only and body.lstrip()[:1] != b"{":
        value = value_of(body)
        contract.check(value)
        return Input((body,))
    fields = fields_of(body)
    options = NO_OPTIONS
    changed = False
    if "options" in fields:
        options = read_options(fields["options"])
        if "options" not in contract.properties:
            del fields["options"]
            changed = True
    return from_fields(fields, contract, options=options, body=None if changed else body)


def from_fields(fields: Fields, contract: Contract, *, options: Options, body: bytes | None) -> Input:
    """Inputs out of the fields of a JSON object; `body` is their text where it is still whole."""
    streams = "stream" in fields and is_true(fields["stream"])
    if contract.plain:
        given = encode(fields) if body is None else body
        return _generating(Input((given,), (), JSON, streams, options.reject_if_busy), fields, contract)
    files: dict[str, bytes] = {}
    if contract.binary:
        body = _take_bytes(fields, files, contract, body)
    if contract.drop_nulls:
        for name in [name for name, raw in fields.items() if name not in contract.required and bytes(raw) == b"null"]:
            del fields[name]
            body = None
    if contract.generates and contract.drop_nulls and "prompt" in fields and "messages" in fields:
        raise BadRequest("'prompt' and 'messages' are mutually exclusive")
    if not contract.open:
        values = {name: value_of(raw) for name, raw in fields.items()}
        contract.check({**values, **dict.fromkeys(files, "")})
        if contract.generates and contract.drop_nulls and made_plain(values.get("messages")):
            fields["messages"] = msgspec.Raw(msgspec.json.encode(values["messages"]))
            body = None
    return _generating(_pieces(encode(fields) if body is None else body, files, streams, options), fields, contract)


def _generating(found: Input, fields: Fields, contract: Contract) -> Input:
    """With what the answer's form depends on, where it is a text."""
    if not contract.generates:
        return found
    formats: dict[str, Any] = {name: value_of(fields[name]) for name in ("response_format", "guided_json") if name in fields}
    prompted = "prompt" in fields and "messages" not in fields
    tuned = contract.drop_nulls and "lora" in fields and bytes(fields["lora"]) != b"null"
    if not (formats or prompted or tuned):
        return found
    return found._replace(json_mode=json_mode(formats), prompted=prompted, tuned=tuned)


def _take_bytes(fields: Fields, files: dict[str, bytes], contract: Contract, body: bytes | None) -> bytes | None:
    """Moves binary fields out of `fields`. Returns the text of `fields` where it is still whole."""
    for given in list(fields):
        name = _SPELLINGS.get(given, given)
        if name not in contract.binary:
            continue
        raw = fields[given]
        if bytes(raw) == b"null" and given not in contract.required:
            continue
        if name in files:
            raise BadRequest(f"'/{given}' comes in two spellings")
        files[name] = bytes_of(given, raw)
        del fields[given]
        body = None
    return body


def _from_bytes(body: bytes, media_type: str, query: Mapping[str, str], contract: Contract) -> Input:
    if contract.raw:
        # A JSON body whose beginning is broken isn't a picture: nothing is to be loaded for it.
        if media_type == JSON and not body.startswith(_SIGNS_OF_MEDIA) and body[:64].isascii():
            fields_of(body)
        return _with_query({}, {contract.raw: body}, query, contract)
    # What a model of its own kind takes beside JSON is its own business: its schema is about the JSON.
    if media_type == JSON or media_type.endswith("+json") or not (contract.open or contract.task is CUSTOM):
        fields_of(body)
        raise BadRequest("Type mismatch of '/', the body must be a JSON object")
    if media_type in _UNTYPED and _is_json(body):
        raise BadRequest("Type mismatch of '/', the body must be a JSON object")
    streams = query.get("stream") == "true"
    return Input((body,), (), media_type if media_type not in _UNTYPED else "application/octet-stream", streams)


def _is_json(body: bytes) -> bool:
    """Whether a body without a type is a number, a text or a word of JSON: somebody's mistake, and no raw input."""
    if body.lstrip(_BLANKS)[:1] not in _STARTS_OF_VALUES:
        return False
    try:
        value_of(body)
    except BadRequest:
        return False
    return True


def _from_fields(given: Mapping[str, Field], query: Mapping[str, str], contract: Contract) -> Input:
    values: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    for sent, field in given.items():
        name = _SPELLINGS.get(sent, sent) if contract.binary else sent
        text = field.text()
        if field.is_file or text is None:
            files[name] = field.data
        elif name in contract.binary:
            stripped = text.strip()
            files[name] = bytes_of(sent, stripped.encode()) if stripped[:1] in ("[", '"') else text_bytes(sent, stripped)
        else:
            values[name] = text
    return _with_query(values, files, query, contract)


def _with_query(values: dict[str, Any], files: dict[str, bytes], query: Mapping[str, str], contract: Contract) -> Input:
    """Inputs that came as text, each as the type that the schema wants; the query's are those that the schema names."""
    found = {name: value for name, value in query.items() if name in contract.properties and name not in contract.binary}
    found.update(values)
    typed = {name: _typed(value, contract.properties.get(name)) for name, value in found.items() if name not in files}
    streams = typed.get("stream") in (True, "true")
    contract.check({**typed, **dict.fromkeys(files, "")})
    text = encode(typed)
    given = _pieces(text, files, streams, NO_OPTIONS)
    return _generating(given, fields_of(text), contract) if contract.generates else given


def _typed(text: str, schema: Any) -> Any:
    """A text as the type of its schema: `true`, `5`, `["a"]`. What can't be stays a text, which the schema then refuses."""
    if not isinstance(schema, dict):
        return text
    kinds = schema.get("type", [])
    if isinstance(kinds, str):
        kinds = [kinds]
    kinds = [*kinds, *(branch.get("type") for key in ("anyOf", "oneOf") for branch in schema.get(key, []) if isinstance(branch, dict))]
    if not kinds or "string" in kinds:
        return text
    try:
        return value_of(text.encode())
    except BadRequest:
        return text


def _pieces(json_part: bytes, files: Mapping[str, bytes], streams: bool, options: Options) -> Input:
    if not files:
        return Input((json_part,), (), JSON, streams, options.reject_if_busy)
    parts = (("", len(json_part)), *((name, len(data)) for name, data in files.items()))
    return Input((json_part, *files.values()), parts, JSON, streams, options.reject_if_busy)
