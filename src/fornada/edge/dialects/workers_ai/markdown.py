"""`ai/tomarkdown`: files in, Markdown out (WORKERS_AI.md, 10).

    document ─► @fornada/to-markdown, behind the sandbox's walls ─► text, and pictures in it ─┐
    picture  ──────────────────────────────────────────────────────────────────────────────── ┴► the catalogue's vision models ─► words

The control plane opens no file: each is a request like any other, with the caller's key, limits and usage. A file that can't be
converted is told beside the others, at 200; what would hold for every file (no room, no allowance) refuses the whole request.
"""

import asyncio
import base64
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from fornada.core.errors import (
    BadRequest,
    DeadlinePassed,
    FornadaError,
    LoadFailed,
    ModelNotAllowed,
    ModelRaised,
    NeverFits,
    OutOfDeviceMemory,
    RunnerDied,
    TooLarge,
    UnknownModel,
)
from fornada.core.keys import Role
from fornada.core.names import AccountId
from fornada.edge.auth import account_of
from fornada.edge.calls import Call, Door, Operation, Reply, Route, json_reply
from fornada.edge.envelope import envelope, enveloped
from fornada.edge.headers import Facts
from fornada.edge.inner import InnerExchange
from fornada.edge.invoke import RUN_ERRORS
from fornada.edge.multipart import read_parts
from fornada.edge.observer import Observer
from fornada.edge.problems import Style, is_success

CONVERTER = "@fornada/to-markdown"
CAPTIONS = ("@cf/llava-hf/llava-1.5-7b-hf", "@cf/unum/uform-gen2-qwen-500m")
"""Asked for words about a picture where somebody has deployed one of them; the shipped catalogue has none that can."""
LABELS, OBJECTS = "@cf/microsoft/resnet-50", "@cf/facebook/detr-resnet-50"
READER = "@fornada/ppocr-v6"
LEAST_READ = 0.8
LEAST_TEXT = 4
"""Of a line's score, and of all lines' letters and digits: a photograph without any text may yield a letter or two."""
MOST_FILES = 100
BODY_BYTES = 64 * 1024 * 1024
CHARACTERS_PER_TOKEN = 4
LEAST_SCORE = 0.1
"""A label that is less probable isn't said."""
PICTURES = {
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".bmp": "image/bmp",
}
DOCUMENTS = {
    ".pdf": "application/pdf",
    ".svg": "image/svg+xml",
    ".html": "text/html",
    ".htm": "text/html",
    ".xml": "application/xml",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".xlsm": "application/vnd.ms-excel.sheet.macroenabled.12",
    ".xlsb": "application/vnd.ms-excel.sheet.binary.macroenabled.12",
    ".xls": "application/vnd.ms-excel",
    ".et": "application/vnd.ms-excel",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".csv": "text/csv",
    ".numbers": "application/vnd.apple.numbers",
}
SUPPORTED = [{"extension": extension, "mimeType": kind} for extension, kind in {**DOCUMENTS, **PICTURES}.items()]
UNTOLD = ("", "application/octet-stream")
"""Media types that say nothing: curl sends the second for most documents."""
_OF_THE_FILE = (BadRequest, TooLarge, ModelRaised, RunnerDied, DeadlinePassed, OutOfDeviceMemory)
_NOT_THERE = (UnknownModel, ModelNotAllowed, NeverFits, LoadFailed)
"""A vision model that isn't for this caller, or can't be had, says nothing, as one that isn't there."""
_MARK = re.compile("\ue000([0-9]{1,3})\ue001")
"""As @fornada/to-markdown leaves them."""
_BASE = "/client/v4/accounts/{account}/ai/tomarkdown"
_RESULT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string"},
        "mimeType": {"type": "string"},
        "format": {"enum": ["markdown", "text", "error"]},
        "tokens": {"type": "integer", "description": f"An estimate: one for {CHARACTERS_PER_TOKEN} characters"},
        "data": {"type": "string"},
        "error": {"type": "string"},
    },
    "required": ["id", "name", "mimeType", "format"],
}
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "conversionOptions": {"type": "string", "description": "JSON: output, pdf, html, docx, image"},
    },
    "required": ["files"],
}


class File(NamedTuple):
    """One that is to be converted."""

    name: str
    mime_type: str
    data: bytes


LANGUAGES = {"en": "English", "it": "Italian", "de": "German", "es": "Spanish", "fr": "French", "pt": "Portuguese"}
Language = Literal["en", "it", "de", "es", "fr", "pt"]


class _Output(msgspec.Struct):
    format: Literal["markdown", "text"] | None = None


class _Image(msgspec.Struct, rename="camel"):
    description_language: Language | None = None


class _Images(_Image, rename="camel"):
    convert: bool | None = None
    max_converted_images: Annotated[int, msgspec.Meta(ge=0)] | None = None


class _PageImages(_Images, rename={"convert_og_image": "convertOGImage"}):
    convert_og_image: bool | None = None


class _Pdf(msgspec.Struct):
    metadata: bool | None = None
    images: _Images | None = None


class _Docx(msgspec.Struct):
    images: _Images | None = None


class _Html(msgspec.Struct, rename="camel"):
    hostname: str | None = None
    css_selector: str | None = None
    images: _PageImages | None = None


class Options(msgspec.Struct):
    """conversionOptions (WORKERS_AI.md, 10). Fields that it doesn't know are let through."""

    output: _Output | None = None
    image: _Image | None = None
    pdf: _Pdf | None = None
    html: _Html | None = None
    docx: _Docx | None = None

    @property
    def format(self) -> str:
        return (self.output and self.output.format) or "markdown"

    def language(self, kind: object) -> str:
        """In which the pictures of a document of this kind are to be described; empty: in whichever. `image`: of one that is a file."""
        asked = {"image": self.image, **{name: each.images for name, each in self._documents() if each}}.get(str(kind))
        return LANGUAGES[asked.description_language] if asked and asked.description_language else ""

    def _documents(self) -> "tuple[tuple[str, _Pdf | _Docx | _Html | None], ...]":
        return ("pdf", self.pdf), ("docx", self.docx), ("html", self.html)


def markdown_routes(converter: "Converter") -> list[Route]:
    """The routes of conversion."""

    async def transform(call: Call) -> Reply:
        account = account_of(call.account)
        if call.facts.media_type != "multipart/form-data":
            raise BadRequest("send the files as multipart/form-data, each in a field 'files'")
        parts = read_parts(call.body, call.facts.content_type)
        files = [File(part.filename, part.type, part.data) for _, part in parts if part.is_file]
        if not files:
            raise BadRequest("required properties at '/' are 'files'")
        given = next((part.data for name, part in parts if name == "conversionOptions" and not part.is_file), b"{}")
        return json_reply(enveloped(await converter.convert(files, options_of(given), facts=call.facts, account=account)))

    async def supported(call: Call) -> Reply:
        account_of(call.account)
        return json_reply(enveloped(SUPPORTED))

    listed = {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"extension": {"type": "string"}, "mimeType": {"type": "string"}},
            "required": ["extension", "mimeType"],
        },
    }
    return [
        Route(
            _BASE,
            Style.ENVELOPE,
            {
                "POST": Operation(
                    "toMarkdown",
                    "Turn files into Markdown",
                    envelope({"type": "array", "items": _RESULT}),
                    transform,
                    Role.USER,
                    takes={"multipart/form-data": _FORM},
                    errors=RUN_ERRORS,
                    body_limit=BODY_BYTES,
                )
            },
        ),
        Route(
            f"{_BASE}/supported",
            Style.ENVELOPE,
            {"GET": Operation("listMarkdownFormats", "Which files can be turned into Markdown", envelope(listed), supported, Role.USER)},
        ),
    ]


def options_of(given: bytes) -> Options:
    """conversionOptions out of their JSON. Raises BadRequest."""
    try:
        return msgspec.json.decode(given.strip() or b"{}", type=Options | None) or Options()
    except msgspec.ValidationError as error:
        _, _, place = str(error).partition("at `$")
        named = "/conversionOptions" + place.rstrip("`").replace(".", "/")
        raise BadRequest(f"Type mismatch of '{named}'") from None
    except (msgspec.DecodeError, RecursionError):
        raise BadRequest("'/conversionOptions' is no JSON") from None


class Converter:
    """Has files converted by models, through the door of `ai/run`."""

    def __init__(self, run: Door, *, observer: Observer, new_id: Callable[[], str]) -> None:
        self._run = run
        self._observer = observer
        self._new_id = new_id

    async def convert(self, files: Sequence[File], options: Options, *, facts: Facts, account: AccountId) -> list[dict[str, Any]]:
        """One result for each file, in order. Raises what would refuse each of them."""
        if len(files) > MOST_FILES:
            raise BadRequest(f"more than {MOST_FILES} files")
        return [await self._one(file, options, _Asker(self, facts, account)) for file in files]

    async def _one(self, file: File, options: Options, asker: "_Asker") -> dict[str, Any]:
        extension = f".{file.name.rpartition('.')[2].lower()}" if "." in file.name else ""
        kind = file.mime_type.partition(";")[0].strip().lower()
        told = {**DOCUMENTS, **PICTURES}.get(extension, kind)
        shown = {"id": self._new_id(), "name": file.name, "mimeType": told if kind in UNTOLD else file.mime_type}
        try:
            if not file.data:
                raise BadRequest("The file is empty")
            if told in PICTURES.values():
                text = await _picture(file, options, asker)
            elif told in DOCUMENTS.values():
                text = await _document(file, options, asker)
            else:
                raise BadRequest("Unsupported file type")
        except _OF_THE_FILE as error:
            return {**shown, "format": "error", "error": error.message}
        tokens = -(-len(text) // CHARACTERS_PER_TOKEN)
        return {**shown, "format": options.format, "tokens": tokens, "data": text}

    def ask(self, model: str, inputs: bytes, facts: Facts, account: AccountId) -> "_Answer":
        """The model's answer to come, asked as `ai/run` would be."""
        path = f"/client/v4/accounts/{quote(account, safe='')}/ai/run/{quote(model, safe='@/')}"
        target = self._run.match(path.encode(), b"")
        assert target is not None, "the door knows its own route"
        answer = _Answer()
        id = self._new_id()
        answer.exchange = InnerExchange(facts=facts, target=target, request_id=id, trace_id=id, body=inputs, heard=answer)
        answer.exchange.ask(self._observer)
        return answer


class _Asker(NamedTuple):
    """A caller, whose models and allowance are used."""

    converter: Converter
    facts: Facts
    account: AccountId

    async def result(self, model: str, **inputs: Any) -> Any:
        """What the model answers. Raises FornadaError."""
        return await self.converter.ask(model, msgspec.json.encode(inputs), self.facts, self.account).result()


async def _document(file: File, options: Options, asker: _Asker) -> str:
    found = await asker.result(
        CONVERTER,
        file=base64.b64encode(file.data).decode("ascii"),
        name=file.name,
        mimeType=file.mime_type,
        conversionOptions=msgspec.to_builtins(options),
    )
    if not isinstance(found, dict) or not isinstance(found.get("data"), str):
        raise ModelRaised(f"{CONVERTER} answered something else than a document")
    language = options.language(found.get("kind"))
    seen = [await _seen(image, asker, language) for image in found.get("images") or ()]

    def told(mark: re.Match[str]) -> str:
        number = int(mark[1])
        words, lines = seen[number] if number < len(seen) else ("", [])
        shown = [f"[{words}]"] if words else []
        if not lines or not _has_its_line(mark):
            return " ".join([*shown, *lines])
        return "\n\n".join([*shown, "\n".join(lines)])

    return _MARK.sub(told, found["data"])


def _has_its_line(mark: re.Match[str]) -> bool:
    """Nothing stands before or behind it: a picture in a cell of a table has to stay in one line."""
    before, after = mark.string[: mark.start()], mark.string[mark.end() :]
    return (not before or before.endswith("\n")) and (not after or after.startswith("\n"))


async def _picture(file: File, options: Options, asker: _Asker) -> str:
    words, lines = await _seen(base64.b64encode(file.data).decode("ascii"), asker, options.language("image"), strict=True)
    if not words and not lines:
        raise BadRequest("this node has no model that says anything about a picture")
    name = " ".join(file.name.split())
    heading = [] if options.format == "text" or not name else [f"# {name}"]
    return "\n\n".join([*heading, *([words] if words else []), *(["\n".join(lines)] if lines else [])]) + "\n"


async def _seen(image: str, asker: _Asker, language: str, *, strict: bool = False) -> tuple[str, list[str]]:
    """What the catalogue's models say of a picture in base64, and the lines that they read on it; nothing where there are none.
    `strict`: one that can't be read is an error."""
    return await _words(image, asker, language, strict=strict), await _lines(image, asker)


async def _lines(image: str, asker: _Asker) -> list[str]:
    try:
        found = await asker.result(READER, image=image)
    except (*_NOT_THERE, *_OF_THE_FILE):
        return []
    given = found.get("lines") if isinstance(found, dict) else None
    lines = [
        " ".join(each["text"].split())
        for each in (given if isinstance(given, list) else ())
        if isinstance(each, dict)
        and isinstance(each.get("text"), str)
        and isinstance(each.get("score"), float | int)
        and each["score"] >= LEAST_READ
    ]
    return lines if sum(map(str.isalnum, "".join(lines))) >= LEAST_TEXT else []


async def _words(image: str, asker: _Asker, language: str, *, strict: bool) -> str:
    for model in CAPTIONS:
        try:
            prompt = f"Describe the picture in {language}." if language else "Describe the picture."
            found = await asker.result(model, image=image, prompt=prompt)
        except _NOT_THERE:
            continue
        if isinstance(found, dict) and isinstance(found.get("description"), str):
            return str(found["description"]).strip()
    said = []
    for model, words in ((LABELS, "Picture, probably of"), (OBJECTS, "Found in it")):
        try:
            names = _names(await asker.result(model, image=image))
        except _NOT_THERE:
            continue
        except _OF_THE_FILE:
            if strict:
                raise
            continue
        if names:
            said.append(f"{words}: {', '.join(names)}.")
    return " ".join(said)


def _names(found: Any) -> list[str]:
    """The likeliest labels, each once, with their scores."""
    best: dict[str, float] = {}
    for each in found if isinstance(found, list) else ():
        label, score = each.get("label"), each.get("score")
        if isinstance(label, str) and isinstance(score, float | int) and score >= LEAST_SCORE:
            best[label] = max(score, best.get(label, 0.0))
    return [f"{label} ({score:.0%})" for label, score in sorted(best.items(), key=lambda item: -item[1])[:5]]


class _Answer:
    """Hears one answer (edge.inner.Heard)."""

    exchange: InnerExchange

    def __init__(self) -> None:
        self._told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def result(self) -> Any:
        try:
            return await self._told
        finally:
            self.exchange.leave()

    def whole(self, status: int, lines: bytes, body: bytes, run_s: float) -> None:
        answered = msgspec.json.decode(body) if is_success(status) else {}
        self._tell(answered.get("result") if isinstance(answered, dict) else None)

    def refused(self, error: FornadaError, *, from_model: bool) -> None:
        if not self._told.done():
            self._told.set_exception(error)

    def begins(self, lines: bytes) -> None: ...

    def piece(self, data: bytes, count: int) -> None:
        self.exchange.taken(count)

    def ends(self, run_s: float) -> None:
        self._tell(None)

    def breaks(self, data: bytes, error: FornadaError) -> None:
        self.refused(error, from_model=True)

    def _tell(self, value: Any) -> None:
        if not self._told.done():
            self._told.set_result(value)
