"""Files in, Markdown out. Nothing here trusts a file: it runs behind the sandbox's walls, and what takes too much ends its runner."""

import base64
import contextlib
import signal

import bounds
import documents
import sheets

import fornada_sdk

MOST_IMAGES = 10
LONGEST_IMAGE = 4_000_000
LOOK_S = 0.5
MARK = "\ue000{}\ue001"
"""Where the description of an embedded picture belongs, by its number. Whoever calls puts it there."""

BY_KIND = {
    "pdf": documents.pdf,
    "docx": documents.docx,
    "odt": documents.odt,
    "html": documents.html,
    "xml": documents.xml,
    "svg": documents.svg,
    "xlsx": sheets.xlsx,
    "xlsb": sheets.xlsb,
    "xls": sheets.xls,
    "ods": sheets.ods,
    "csv": sheets.csv,
    "numbers": sheets.numbers,
}
SUFFIXES = {"htm": "html", "xlsm": "xlsx", "et": "xls"}
TYPES = {
    "application/pdf": "pdf",
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/xml": "xml",
    "text/xml": "xml",
    "image/svg+xml": "svg",
    "text/csv": "csv",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.ms-excel.sheet.macroenabled.12": "xlsx",
    "application/vnd.ms-excel.sheet.binary.macroenabled.12": "xlsb",
    "application/vnd.ms-excel": "xls",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.apple.numbers": "numbers",
}


class Model(fornada_sdk.Model):
    def run(self, request, context):
        try:
            return self.converted(request, context)
        except fornada_sdk.BadRequest as error:
            # A new one is raised behind this: what a library raised before it holds all that it had made.
            refusal = str(error)
        finally:
            bounds.tidy()
        raise fornada_sdk.BadRequest(refusal)

    def converted(self, request, context):
        raw = request.file("file")
        asked = request.body.json if request.body.fields is not None or "json" in request.body.type else {}
        name = " ".join((asked.get("name") or "").split())  # it becomes a heading, which is one line
        options = asked.get("conversionOptions") or {}
        kind = kind_of(name, asked.get("mimeType") or "", raw)
        if kind not in BY_KIND:
            raise fornada_sdk.BadRequest("Unsupported file type")
        if not raw:
            raise fornada_sdk.BadRequest("The file is empty")
        images = Images(options.get(kind))
        plain = (options.get("output") or {}).get("format") == "text"
        try:
            with ending_with(context), bounds.memory():
                text = BY_KIND[kind](raw, name=name, options=options, plain=plain, images=images, scratch=context.scratch)
        except CallerGone:
            raise fornada_sdk.BadRequest("The file takes too long") from None
        except fornada_sdk.BadRequest:
            raise
        except MemoryError:
            raise fornada_sdk.BadRequest("The file needs more memory than a conversion may have") from None
        except RecursionError:
            raise fornada_sdk.BadRequest("The file's parts lie too deep in one another") from None
        except Exception as error:  # noqa: BLE001 - a dozen libraries raise what they like at a broken file
            context.log.warning("conversion failed", kind=kind, error=type(error).__name__)
            raise fornada_sdk.BadRequest(f"The file can't be read as {kind}") from None
        bounds.Room().text(len(text))
        return {"kind": kind, "data": text.strip() + "\n", "images": images.taken}


class CallerGone(BaseException):
    """Nobody waits any more. No Exception: libraries go on after those."""


@contextlib.contextmanager
def ending_with(context):
    """Ends what runs within it soon after its caller has gone, or its time is over: a library asks nobody while it works, and a small
    file can keep it busy for hours, in which everybody else's wait."""
    working = True

    def look(*_):
        if working and context.cancelled:
            raise CallerGone

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)
    try:
        yield
    finally:
        working = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Images:
    """Embedded pictures that a document has shown, in order."""

    def __init__(self, options):
        """`options`: of the file's kind, whose `images` says whether they are wanted, and how many."""
        asked = (options or {}).get("images") or {}
        most = asked.get("maxConvertedImages")
        self._most = MOST_IMAGES if most is None else min(max(most, 0), MOST_IMAGES)
        if asked.get("convert") is False:
            self._most = 0
        self._counted = 0
        self.taken = []

    def wanted(self, found):
        """Those of `found` that there is a place for: a library takes each one apart to give it."""
        found = iter(found)
        while self._counted < self._most:
            try:
                yield next(found)
            except StopIteration:
                return

    def mark(self, raw):
        """What stands in the text for this picture; nothing where there are enough."""
        found = self.mark_beside(raw) if self._counted < self._most else ""
        self._counted += bool(found)
        return found

    def mark_beside(self, raw):
        """The same for one that doesn't count among those."""
        if not raw or len(raw) > LONGEST_IMAGE:
            return ""
        self.taken.append(base64.b64encode(raw).decode("ascii"))
        return MARK.format(len(self.taken) - 1)


def kind_of(name, mime_type, raw):
    """By the name's end, else the media type, else how it begins."""
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    suffix = SUFFIXES.get(suffix, suffix)
    if suffix in BY_KIND:
        return suffix
    known = TYPES.get(mime_type.partition(";")[0].strip().lower())
    if known or name or mime_type:
        return known
    start = raw[:1024].lstrip().lower()
    if start.startswith(b"%pdf"):
        return "pdf"
    if start.startswith((b"<!doctype html", b"<html")):
        return "html"
    if b"<svg" in start:
        return "svg"
    if start.startswith(b"<"):
        return "xml"
    if start.startswith(b"\xd0\xcf\x11\xe0"):
        return "xls"
    return documents.kind_of_archive(raw) if start.startswith(b"pk\x03\x04") else "csv"
