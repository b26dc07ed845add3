"""Documents of every format become Markdown, and what is no document of its format is the caller's fault."""

import base64
import json
import subprocess
import zlib
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


def test_a_table_that_unpacks_to_too_much_is_refused(converter: Runner) -> None:
    rows = "".join(f"{n},{n}\n" for n in range(300_000))
    assert len(zlib.compress(rows.encode())) < len(rows)
    answer = ask(converter, rows.encode(), name="a.csv")
    assert answer.status == "bad_request" and "cells" in str(answer)
