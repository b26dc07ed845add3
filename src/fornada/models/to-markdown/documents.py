"""Documents: headings, paragraphs, lists and tables as Markdown has them."""

import base64
import contextlib
import io
import re
import zipfile
from urllib.parse import urljoin

import bounds
from defusedxml import ElementTree

import fornada_sdk

_OFFICE = "urn:oasis:names:tc:opendocument:xmlns:"
_TEXT, _TABLE = f"{{{_OFFICE}text:1.0}}", f"{{{_OFFICE}table:1.0}}"
_UNSEEN = ("script", "style", "noscript", "template", "head", "iframe", "object", "svg")


def pdf(raw, *, name, options, plain, images, **_):
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(raw))
    if reader.is_encrypted and not reader.decrypt(""):
        raise fornada_sdk.BadRequest("The file needs a password")
    if len(reader.pages) > bounds.MOST_PAGES:
        raise fornada_sdk.BadRequest(f"The file has more than {bounds.MOST_PAGES} pages")
    asked = options.get("pdf") or {}
    parts = [] if plain or not name else [f"# {name}"]
    facts = {key.lstrip("/"): str(value) for key, value in (reader.metadata or {}).items() if str(value).strip()}
    if asked.get("metadata", True) and facts:
        parts.append(
            "\n".join(
                [*([] if plain else ["## Metadata", ""]), *(f"{'' if plain else '- '}{key}: {value}" for key, value in facts.items())]
            )
        )
    if not plain:
        parts.append("## Contents")
    room = bounds.Room()
    for number, page in enumerate(reader.pages, 1):
        if not plain:
            parts.append(f"### Page {number}")
        text = page.extract_text().strip()
        room.text(len(text))
        parts.append(text)
        parts.extend(marks_of(page, images))
    return "\n\n".join(part for part in parts if part)


def marks_of(page, images):
    """Places of the page's pictures. One that can't be read is as if it weren't there."""
    found = []
    with contextlib.suppress(Exception):  # its text is there all the same
        found.extend(images.mark(image.data) for image in images.wanted(page.images))
    return found


def docx(raw, *, plain, options, images, **_):
    import mammoth

    bounds.archive(raw).close()
    marks = {}

    def convert(image):
        with image.open() as opened:
            mark = images.mark(opened.read())
        marks[f"mark:{len(marks)}"] = mark
        return {"src": f"mark:{len(marks) - 1}"}

    found = mammoth.convert_to_html(io.BytesIO(raw), convert_image=mammoth.images.img_element(convert))
    return markdown(soup_of(found.value), plain=plain, marks=marks)


def html(raw, *, plain, options, images, **_):
    asked = options.get("html") or {}
    soup = soup_of(raw)
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    shown = soup.find("meta", property="og:image") if (asked.get("images") or {}).get("convertOGImage") else None
    preview = images.mark_beside(held_in(shown.get("content"))) if shown else ""
    selector = asked.get("cssSelector")
    if selector:
        try:
            found = soup.select(selector)
        except Exception:  # noqa: BLE001 - soupsieve's own kinds
            raise fornada_sdk.BadRequest("conversionOptions.html.cssSelector is no selector") from None
        soup = soup_of("".join(str(part) for part in found))
        title = ""
    host = asked.get("hostname")
    if host:
        absolute(soup, host)
    marks = {}
    for number, image in enumerate(soup.find_all("img")):
        held = held_in(image.get("src"))
        if held is not None:
            marks[f"mark:{number}"] = images.mark(held)
            image["src"] = f"mark:{number}"
    text = markdown(soup, plain=plain, marks=marks)
    heading = f"# {title}\n\n" if title and not plain and not re.search(r"^# ", text, re.MULTILINE) else ""
    return f"{heading}{preview}\n\n{text}" if preview else f"{heading}{text}"


def held_in(address):
    """The picture that an address holds itself, empty where it is a broken one; None where it is elsewhere."""
    head, _, data = (address or "").partition(";base64,")
    if not data or not head.startswith("data:image/"):
        return None
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return b""


def absolute(soup, host):
    base = host if "://" in host else f"https://{host}/"
    for attribute in ("href", "src"):
        for element in soup.find_all(attrs={attribute: True}):
            if not element[attribute].startswith(("data:", "#")):
                element[attribute] = urljoin(base, element[attribute])


def soup_of(source):
    from bs4 import BeautifulSoup

    return BeautifulSoup(source, "html.parser")


def markdown(soup, *, plain, marks=()):
    """Of a page's visible part. `marks`: what stands for the picture of that address."""
    from markdownify import ATX, MarkdownConverter

    for element in soup.find_all(_UNSEEN):
        element.decompose()
    for image in soup.find_all("img"):
        source = image.get("src") or ""
        if source in marks:
            image.replace_with(f"{image.get('alt') or ''} {marks[source]}".strip())
    if plain:
        return re.sub(r"\n\s*\n+", "\n\n", soup.get_text("\n"))
    return re.sub(r"\n{3,}", "\n\n", MarkdownConverter(heading_style=ATX, bullets="-").convert_soup(soup))


def xml(raw, *, plain, **_):
    root = ElementTree.fromstring(raw)
    if plain:
        return "\n".join(text.strip() for text in root.itertext() if text.strip())
    lines = []
    pending = [(0, root)]
    while pending:
        depth, element = pending.pop()
        text = " ".join((element.text or "").split())
        facts = ", ".join(f"{bare(key)}={value}" for key, value in element.attrib.items())
        lines.append(f"{'  ' * min(depth, 20)}- {bare(element.tag)}{f' ({facts})' if facts else ''}{f': {text}' if text else ''}")
        pending.extend((depth + 1, child) for child in reversed(element) if isinstance(child.tag, str))
    return "\n".join(lines)


def svg(raw, *, plain, name, **_):
    root = ElementTree.fromstring(raw)
    words = {"title": [], "desc": [], "text": []}
    room = bounds.Room()
    for element in root.iter():
        kind = bare(element.tag) if isinstance(element.tag, str) else ""
        if kind in words and (text := " ".join("".join(element.itertext()).split())):
            room.text(len(text))
            words[kind].append(text)
    title = " ".join(words["title"]) or name
    return (
        "\n\n".join([*([title if plain else f"# {title}"] if title else []), *words["desc"], *words["text"]]) or "A drawing without words."
    )


def odt(raw, *, plain, **_):
    with bounds.archive(raw) as archive:
        root = ElementTree.fromstring(archive.read("content.xml"))
    body = next(root.iter(f"{{{_OFFICE}office:1.0}}text"), None)
    return "\n\n".join(odt_blocks(body, plain)) if body is not None else ""


def odt_blocks(body, plain, depth=0):
    import sheets

    for element in body:
        text = odt_text(element)
        if element.tag == f"{_TEXT}h" and text:
            level = int(element.get(f"{_TEXT}outline-level", "1"))
            yield text if plain else f"{'#' * min(max(level, 1), 6)} {text}"
        elif element.tag == f"{_TEXT}p" and text:
            yield text
        elif element.tag == f"{_TEXT}list":
            yield "\n".join(odt_items(element, plain))
        elif element.tag == f"{_TABLE}table":
            yield sheets.shown([("", sheets.ods_rows(element))], plain)
        elif element.tag == f"{_TEXT}section" and depth < 20:
            yield from odt_blocks(element, plain, depth + 1)


def odt_items(listed, plain, depth=0):
    for item in listed:
        for element in item:
            if element.tag == f"{_TEXT}list" and depth < 20:
                yield from odt_items(element, plain, depth + 1)
            elif text := odt_text(element):
                yield f"{'  ' * depth}{'' if plain else '- '}{text}"


def odt_text(element):
    parts = []
    for part in element.iter():
        if part.tag == f"{_TEXT}s":
            parts.append(" " * min(int(part.get(f"{_TEXT}c", "1")), 100))
        elif part.tag in (f"{_TEXT}tab", f"{_TEXT}line-break"):
            parts.append(" ")
        parts.append(part.text or "")
        if part is not element:
            parts.append(part.tail or "")
    return " ".join("".join(parts).split())


def bare(tag):
    return tag.rpartition("}")[2]


def kind_of_archive(raw):
    """Which of the formats that are zip archives this is."""
    try:
        with bounds.archive(raw) as archive:
            names = set(archive.namelist())
            declared = archive.read("mimetype")[:100] if "mimetype" in names else b""
    except (zipfile.BadZipFile, KeyError):
        return None
    if declared.endswith(b"opendocument.text"):
        return "odt"
    if declared.endswith(b"opendocument.spreadsheet"):
        return "ods"
    for kind, member in (
        ("docx", "word/document.xml"),
        ("xlsb", "xl/workbook.bin"),
        ("xlsx", "xl/workbook.xml"),
        ("numbers", "Index/Document.iwa"),
    ):
        if member in names:
            return kind
    return None
