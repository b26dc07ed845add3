"""Documents of every format become Markdown, and what is no document of its format is the caller's fault."""

import base64
import io
import json
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import bound
from tests.harness import documents
from tests.models.conftest import MODELS
from tests.models.environments import environment
from tests.models.runner import Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLE = MODELS / "to-markdown" / "example"
ROWS: list[list[str | float]] = [["what", "many"], ["Sugar|x", 250.0]]
TABLE = "| what | many |\n| --- | --- |\n| Sugar\\|x | 250 |\n"
SHEET = f"## Sheet1\n\n{TABLE}"
FILES = {
    "a.pdf": (
        documents.pdf("One", "Two", title="Tiny"),
        "# a.pdf\n\n## Metadata\n\n- Title: Tiny\n\n## Contents\n\n### Page 1\n\nOne\n\n### Page 2\n\nTwo\n",
    ),
    "a.docx": (documents.docx("Top", "bold words"), "# Top\n\n**bold words**\n"),
    "a.odt": (documents.odt("Top", "words", "one", "two"), "## Top\n\nwords\n\n- one\n- two\n"),
    "a.xlsx": (documents.xlsx(ROWS), SHEET),
    "a.xlsm": (documents.xlsx(ROWS), SHEET),
    "a.xlsb": (documents.xlsb(ROWS), SHEET),
    "a.xls": (documents.xls(ROWS), SHEET.replace("Sheet1", "Sheet 1")),
    "a.et": (documents.xls(ROWS), SHEET.replace("Sheet1", "Sheet 1")),
    "a.ods": (documents.ods([["what", "many"], ["Sugar|x", "250"]]), SHEET),
    "a.csv": (b"what;many\r\nSugar|x;250\r\n", TABLE),
    "a.html": (b"<h1>Top</h1><p>a <a href='/b'>b</a></p>", "# Top\n\na [b](/b)\n"),
    "a.htm": (b"<p>x<script>y</script></p>", "x\n"),
    "a.xml": (b"<a x='1'><b>t</b><!-- no --></a>", "- a (x=1)\n  - b: t\n"),
    "a.svg": (b"<svg xmlns='http://www.w3.org/2000/svg'><title>T</title><text>words</text></svg>", "# T\n\nwords\n"),
}
WIDE = (
    b"<table:table><table:table-row><table:table-cell table:number-columns-repeated='16000'><text:p>x</text:p>"
    b"</table:table-cell></table:table-row></table:table>"
)
BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + b"".join(b'<!ENTITY %b "%b">' % (chr(98 + n).encode(), b"&%b;" % chr(97 + n).encode() * 10) for n in range(9))
    + b"]><x>&j;</x>"
)


@pytest.fixture
def converter(shipped: Callable[[str], Runner]) -> Runner:
    return shipped("to-markdown")


def ask(converter: Runner, raw: bytes, **fields: Any) -> Any:
    return converter.ask({"file": base64.b64encode(raw).decode(), **fields})


def test_the_shipped_example_gives_the_shipped_answer(converter: Runner) -> None:
    answer = converter.send((EXAMPLE / "request.html").read_bytes(), "text/html").json
    assert answer == json.loads((EXAMPLE / "answer.json").read_text())


@pytest.mark.parametrize("name", FILES)
def test_a_document_becomes_markdown(converter: Runner, name: str) -> None:
    raw, wanted = FILES[name]
    assert ask(converter, raw, name=name).json["data"] == wanted


def test_a_table_of_numbers_becomes_markdown(converter: Runner, tmp_path: Path) -> None:
    # The one format that can't be written by hand here, compressed protocol buffers in an archive: the library itself writes one.
    python = environment(MODELS / "to-markdown" / "requirements.lock")
    written = tmp_path / "a.numbers"
    script = (
        "import sys, numbers_parser as n; d = n.Document(); t = d.sheets[0].tables[0]; "
        "t.write(0, 0, 'what'); t.write(1, 0, 'Sugar|x'); t.write(1, 1, 250.0); d.save(sys.argv[1])"
    )
    subprocess.run([str(python), "-I", "-c", script, str(written)], check=True, timeout=bound(60))
    for fields in ({"name": "a.numbers"}, {}):
        answer = ask(converter, written.read_bytes(), **fields).json
        assert answer["kind"] == "numbers" and "| Sugar\\|x | 250 |" in answer["data"]
    assert ask(converter, documents.archive({"Index/Document.iwa": b""})).status == "bad_request"


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.odt", "a.xlsx", "a.xlsb", "a.ods", "a.html", "a.svg"])
def test_without_a_name_a_document_is_known_by_its_content(converter: Runner, name: str) -> None:
    raw, _ = FILES[name]
    raw = b"<!doctype html>" + raw if name == "a.html" else raw
    assert ask(converter, raw).json["kind"] == name[2:]


@pytest.mark.parametrize("name", FILES)
def test_what_is_broken_is_refused_in_a_line(converter: Runner, name: str) -> None:
    raw, _ = FILES[name]
    if name not in ("a.csv", "a.html", "a.htm"):  # whose every byte is something
        answer = ask(converter, raw[: len(raw) // 2], name=name)
        assert answer.status == "bad_request" or name == "a.xls", answer
    assert ask(converter, b"", name=name).status == "bad_request"
    assert ask(converter, raw[::-1], name=name).status in ("bad_request", "ok")


def test_a_bomb_of_entities_doesn_t_go_off(converter: Runner) -> None:
    assert ask(converter, BOMB, name="a.xml").status == "bad_request"
    assert ask(converter, BOMB, name="a.svg").status == "bad_request"
    assert ask(converter, FILES["a.csv"][0], name="a.csv").json["data"] == TABLE


def test_options_are_followed(converter: Runner) -> None:
    html = b"<title>T</title><main><p>in <a href='/b'>b</a></p></main><footer>out</footer>"
    options = {"html": {"cssSelector": "main", "hostname": "example.com"}}
    assert ask(converter, html, name="a.html", conversionOptions=options).json["data"] == "in [b](https://example.com/b)\n"
    assert ask(converter, html, name="a.html", conversionOptions={"html": {"cssSelector": "p["}}).status == "bad_request"
    plain = {"output": {"format": "text"}}
    assert ask(converter, FILES["a.csv"][0], name="a.csv", conversionOptions=plain).json["data"] == "what\tmany\nSugar|x\t250\n"
    assert "#" not in ask(converter, FILES["a.docx"][0], name="a.docx", conversionOptions=plain).json["data"]
    pdf = ask(converter, FILES["a.pdf"][0], name="a.pdf", conversionOptions={"pdf": {"metadata": False}}).json["data"]
    assert "Tiny" not in pdf and "One" in pdf


def test_pictures_in_a_document_are_handed_on(converter: Runner) -> None:
    picture = base64.b64encode(documents.PNG_1X1).decode()
    html = (
        "".join(f"<p>{n}<img alt='dot' src='data:image/png;base64,{picture}'></p>" for n in range(12))
        + "<img src='https://example.com/x.png'>"
    )
    answer = ask(converter, html.encode(), name="a.html").json
    assert answer["images"] == [picture] * 10
    assert "9dot \ue0009\ue001" in answer["data"] and "11dot\n" in answer["data"] and "\ue00010" not in answer["data"]


def test_pictures_are_handed_on_as_the_options_say(converter: Runner) -> None:
    picture = base64.b64encode(documents.PNG_1X1).decode()
    shown = f"data:image/png;base64,{picture}"
    html = f"<head><meta property='og:image' content='{shown}'></head>" + f"<p>a<img alt='dot' src='{shown}'></p>" * 3

    def asked(**images: Any) -> Any:
        return ask(converter, html.encode(), name="a.html", conversionOptions={"html": {"images": images}}).json

    none = asked(convert=False)
    assert none["images"] == [] and none["data"] == "adot\n\nadot\n\nadot\n"
    assert len(asked()["images"]) == 3 and len(asked(maxConvertedImages=2)["images"]) == 2
    both = asked(maxConvertedImages=2, convertOGImage=True)
    assert len(both["images"]) == 3 and both["data"].startswith("\ue0000\ue001\n\nadot \ue0001\ue001")
    assert asked(convert=None, maxConvertedImages=None, convertOGImage=None)["images"] == [picture] * 3


def test_a_table_of_too_many_cells_is_refused_however_it_is_made(converter: Runner) -> None:
    one_long_row = b"," * 200_000 + b"x\n" + b"y\n" * 200_000
    for name, raw in (
        ("a.csv", b"1,1\n" * 300_000),
        ("a.csv", one_long_row),
        ("a.csv", b"x," * 600_000),
        ("a.xlsx", changed(documents.xlsx([["a"]]), b"<sheetData>", b'<sheetData><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')),
        ("a.ods", changed(documents.ods([["a"]]), b"<table:table-row>", b'<table:table-row table:number-rows-repeated="900000">')),
        ("a.ods", changed(documents.ods([["a"]]), b"</table:table>", b"</table:table>" + WIDE * 50)),
    ):
        answer = ask(converter, raw, name=name)
        assert answer.status == "bad_request" and "cells" in str(answer), (name, answer)
    assert ask(converter, FILES["a.csv"][0], name="a.csv").json["data"] == TABLE


def test_what_a_sheet_says_of_its_size_isn_t_believed(converter: Runner) -> None:
    book = changed(documents.xlsx(ROWS), b"<sheetData>", b'<dimension ref="A1:XFD1048576"/><sheetData>')
    assert ask(converter, book, name="a.xlsx").json["data"] == SHEET
    again = changed(documents.ods([["a"]]), b"<table:table-row>", b'<table:table-row table:number-rows-repeated="1500">')
    assert ask(converter, again, name="a.ods").json["data"].count("| a |") == 1500


def test_an_archive_that_unpacks_to_too_much_is_refused_unopened(converter: Runner) -> None:
    before = converter.cpu_s()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("Index/Document.iwa", bytes(129 << 20))
    for name in ("a.docx", "a.odt", "a.xlsx", "a.xlsb", "a.ods", "a.numbers"):
        answer = ask(converter, made.getvalue(), name=name)
        assert answer.status == "bad_request" and "unpacks" in str(answer), answer
    many = documents.archive({str(number): b"" for number in range(10_001)})
    assert "10000 parts" in str(ask(converter, many, name="a.docx"))
    assert converter.cpu_s() - before < bound(20)


def test_parts_in_parts_end_somewhere(converter: Runner) -> None:
    deep = b"<text:list><text:list-item>" * 4000 + b"<text:p>x</text:p>" + b"</text:list-item></text:list>" * 4000
    listed = changed(FILES["a.odt"][0], b"</office:text>", deep + b"</office:text>")
    assert ask(converter, listed, name="a.odt").json["data"].endswith("\n" + "  " * 20 + "- x\n")
    for tag in (b"div", b"b", b"ul><li", b"table><tr><td"):
        answer = ask(converter, b"<%b>" % tag * 5000 + b"x", name="a.html")
        assert answer.status == "bad_request" and "too deep" in str(answer)


def test_more_memory_than_a_conversion_may_have_costs_its_own_result_alone(converter: Runner) -> None:
    pid = converter.pid
    answer = ask(converter, b"<a " * 5_000_000, name="a.html")
    assert answer.status == "bad_request" and "memory" in str(answer)
    assert converter.pid == pid and ask(converter, FILES["a.csv"][0], name="a.csv").json["data"] == TABLE


def test_a_large_file_leaves_room_for_the_next(converter: Runner) -> None:
    many = changed(documents.docx("Top", "x"), b"<w:body>", b"<w:body>" + b"<w:p><w:r><w:t>x</w:t></w:r></w:p>" * 300_000)
    answer = ask(converter, many, name="a.docx")
    assert answer.status == "bad_request" and "memory" in str(answer)
    pages = b"<p>word <b>word</b></p>" * 40_000
    assert ask(converter, pages, name="a.html").json["data"].startswith("word **word**")
    assert converter.memory()["Rss"] < 400


def test_bytes_that_are_no_text_are_no_table(converter: Runner) -> None:
    assert ask(converter, FILES["a.xlsx"][0], name="a.csv").status == "bad_request"
    assert ask(converter, "a,ä\n".encode("utf-16"), name="a.csv").json["data"].startswith("| a | ä |")


def test_a_name_of_several_lines_makes_one_heading(converter: Runner) -> None:
    assert ask(converter, FILES["a.pdf"][0], name="a\n\n# b.pdf").json["data"].startswith("# a # b.pdf\n\n## Metadata")


def changed(raw: bytes, old: bytes, new: bytes) -> bytes:
    """The archive with `new` for the first `old` in each of its parts."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(old, new, 1))
    return made.getvalue()
