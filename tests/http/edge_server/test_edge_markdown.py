"""`ai/tomarkdown` over models that are fakes: who is asked for which file, and how what they say is put together."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from fornada.core.errors import Busy, DeadlinePassed, LoadFailed, ModelNotAllowed, QuotaUsedUp, RunnerDied
from tests.harness.client import Response
from tests.http.edge_server.conftest import Served
from tests.unit.edge.fakes import Submitted, answer, refuse, stay_silent, until

PATH = "/client/v4/accounts/acc/ai/tomarkdown"
BOUNDARY = "bOuNdArY"
DOCUMENT = json.dumps({"kind": "html", "data": "# Good\n", "images": []}).encode()
LABELS = json.dumps([{"label": "tabby", "score": 0.62}, {"label": "tiger cat", "score": 0.2}, {"label": "sofa", "score": 0.05}]).encode()
OBJECTS = json.dumps([{"label": "cat", "score": 0.98, "box": {}}, {"label": "cat", "score": 0.4, "box": {}}]).encode()
SAID = "Picture, probably of: tabby (62%), tiger cat (20%). Found in it: cat (98%)."


@pytest.fixture(autouse=True)
def models(edge: Served) -> None:
    edge.catalog.add("@fornada/to-markdown", task="markdown-conversion")
    edge.catalog.add("@fornada/labels", task="image-classification", aliases=["@cf/microsoft/resnet-50"])
    edge.catalog.add("@fornada/objects", task="object-detection", aliases=["@cf/facebook/detr-resnet-50"])
    answers(edge, {})


def answers(edge: Served, more: Mapping[str, Any]) -> None:
    known = {
        "@fornada/to-markdown": answer(DOCUMENT),
        "@fornada/labels": answer(LABELS),
        "@fornada/objects": answer(OBJECTS),
        **more,
    }

    def behave(submitted: Submitted) -> None:
        known[submitted.request.model](submitted)

    edge.inference.behaviour = behave


def convert(edge: Served, *files: tuple[str, str, bytes], options: Any = None) -> Response:
    parts = [
        f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="files"; filename="{name}"\r\ncontent-type: {kind}\r\n\r\n'.encode()
        + data
        + b"\r\n"
        for name, kind, data in files
    ]
    if options is not None:
        text = options if isinstance(options, str) else json.dumps(options)
        parts.append(f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="conversionOptions"\r\n\r\n{text}\r\n'.encode())
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    return edge.fetch("POST", PATH, body, headers={"content-type": f"multipart/form-data; boundary={BOUNDARY}"})


def test_each_file_has_its_result_in_order(edge: Served):
    body = convert(edge, ("good.html", "text/html", b"<h1>Good</h1>"), ("cat.png", "image/png", b"\x89PNG"), ("x.exe", "", b"MZ")).json()
    assert body["success"] is True
    first, second, third = body["result"]
    assert first | {"id": ""} == {
        "id": "",
        "name": "good.html",
        "mimeType": "text/html",
        "format": "markdown",
        "tokens": 2,
        "data": "# Good\n",
    }
    assert (second["format"], second["data"]) == ("markdown", f"# cat.png\n\n{SAID}\n")
    assert third | {"id": ""} == {"id": "", "name": "x.exe", "mimeType": "", "format": "error", "error": "Unsupported file type"}
    assert len({each["id"] for each in body["result"]}) == 3
    asked = edge.inference.requests[0]
    assert asked.pieces["file"] == b"<h1>Good</h1>" and asked.request.account == "acc"
    told = json.loads(asked.pieces[""])
    assert (told["name"], told["mimeType"]) == ("good.html", "text/html")


def test_pictures_in_a_document_are_described_where_they_were(edge: Served):
    document = {"kind": "docx", "data": "one \ue0000\ue001 two \ue0001\ue001 forged \ue00077\ue001.", "images": ["iVBORw==", "iVBORw=="]}
    answers(edge, {"@fornada/to-markdown": answer(json.dumps(document).encode())})
    (found,) = convert(edge, ("a.docx", "application/octet-stream", b"PK")).json()["result"]
    assert found["data"] == f"one [{SAID}] two [{SAID}] forged ."
    assert found["mimeType"].endswith("wordprocessingml.document")


def test_a_model_with_words_is_asked_instead_of_those_with_labels(edge: Served):
    edge.catalog.add("@mine/eyes", task="image-to-text", aliases=["@cf/llava-hf/llava-1.5-7b-hf"])
    answers(edge, {"@mine/eyes": answer(b'{"description":" A cat on a sofa."}')})
    (found,) = convert(edge, ("cat.jpg", "image/jpeg", b"\xff\xd8"), options={"output": {"format": "text"}}).json()["result"]
    assert (found["format"], found["data"]) == ("text", "A cat on a sofa.\n")


def test_a_description_is_asked_for_in_the_language_that_the_options_name(edge: Served):
    edge.catalog.add("@mine/eyes", task="image-to-text", aliases=["@cf/llava-hf/llava-1.5-7b-hf"])
    document = {"kind": "docx", "data": "\ue0000\ue001", "images": ["iVBORw=="]}
    answers(edge, {"@mine/eyes": answer(b'{"description":"x"}'), "@fornada/to-markdown": answer(json.dumps(document).encode())})
    options = {"image": {"descriptionLanguage": "de"}, "docx": {"images": {"descriptionLanguage": "pt"}}}
    convert(edge, ("a.jpg", "", b"\xff\xd8"), ("a.docx", "", b"PK"), options=options)
    prompts = [json.loads(each.pieces[""]).get("prompt") for each in edge.inference.requests if each.request.model == "@mine/eyes"]
    assert prompts == ["Describe the picture in German.", "Describe the picture in Portuguese."]


def test_text_on_a_picture_is_read(edge: Served):
    lines = [
        {"text": " Invoice  7 ", "score": 0.98},
        {"text": "smudge", "score": 0.5},
        "of another shape",
        {"text": "Total: 12", "score": 0.9},
    ]
    edge.catalog.add("@fornada/ppocr-v6", task="optical-character-recognition")
    document = {"kind": "pdf", "data": "### Page 1\n\n\ue0000\ue001\n\n| a \ue0000\ue001 |\n", "images": ["iVBORw=="]}
    known = {"@fornada/to-markdown": answer(json.dumps(document).encode())}
    answers(edge, {**known, "@fornada/ppocr-v6": answer(json.dumps({"text": "", "lines": lines}).encode())})
    scan, picture = convert(edge, ("a.pdf", "", b"%PDF"), ("scan.png", "", b"\x89PNG")).json()["result"]
    assert scan["data"] == f"### Page 1\n\n[{SAID}]\n\nInvoice 7\nTotal: 12\n\n| a [{SAID}] Invoice 7 Total: 12 |\n"
    assert picture["data"] == f"# scan.png\n\n{SAID}\n\nInvoice 7\nTotal: 12\n"
    answers(edge, {**known, "@fornada/ppocr-v6": answer(json.dumps({"lines": [{"text": "I.", "score": 0.99}]}).encode())})
    (again,) = convert(edge, ("scan.png", "", b"\x89PNG")).json()["result"]
    assert again["data"] == f"# scan.png\n\n{SAID}\n", "a letter or two are no text"


@pytest.mark.parametrize("how", ["not there", "not to be had"])
def test_without_vision_models_nothing_is_said(edge: Served, how: str):
    document = {"kind": "docx", "data": "one \ue0000\ue001.", "images": ["iVBORw=="]}
    failing = {} if how == "not there" else dict.fromkeys(("@fornada/labels", "@fornada/objects"), refuse(LoadFailed("no such file")))
    answers(edge, {"@fornada/to-markdown": answer(json.dumps(document).encode()), **failing})
    for name in ("@fornada/labels", "@fornada/objects") if how == "not there" else ():
        del edge.catalog.models[name]
    first, second = convert(edge, ("a.docx", "", b"PK"), ("cat.png", "", b"\x89PNG")).json()["result"]
    assert first["data"] == "one ."
    assert second["format"] == "error" and "no model" in second["error"]


@pytest.mark.parametrize("fault", [RunnerDied("died"), DeadlinePassed("late")])
def test_a_file_that_takes_its_runner_down_is_told_beside_the_others(edge: Served, fault: Any):
    answers(edge, {"@fornada/to-markdown": refuse(fault)})
    first, second = convert(edge, ("bomb.xml", "", b"<a/>"), ("cat.png", "", b"\x89PNG")).json()["result"]
    assert first["format"] == "error" and first["error"] and second["format"] == "markdown"


@pytest.mark.parametrize(("fault", "status"), [(Busy("full"), 429), (QuotaUsedUp("used up"), 429), (ModelNotAllowed("no"), 403)])
def test_what_would_refuse_every_file_refuses_the_request(edge: Served, fault: Any, status: int):
    answers(edge, {"@fornada/to-markdown": refuse(fault)})
    answered = convert(edge, ("a.html", "", b"x"))
    assert (answered.status, answered.code) == (status, fault.code)


def test_options_are_passed_on_and_checked_by_name(edge: Served):
    options: Any = {
        "output": {"format": "text"},
        "html": {"cssSelector": "main", "images": {"convert": True}},
        "image": {"descriptionLanguage": "en"},
    }
    (found,) = convert(edge, ("a.html", "", b"x"), options=options).json()["result"]
    assert found["format"] == "text"
    passed = json.loads(edge.inference.last.pieces[""])["conversionOptions"]
    assert passed["output"] == {"format": "text"} and passed["html"]["cssSelector"] == "main"
    wanted = {"convert": False, "maxConvertedImages": 3, "descriptionLanguage": "de"}
    convert(edge, ("a.html", "", b"x"), options={"html": {"images": {**wanted, "convertOGImage": True}}, "pdf": {"images": wanted}})
    passed = json.loads(edge.inference.last.pieces[""])["conversionOptions"]
    assert passed["html"]["images"] == {**wanted, "convertOGImage": True} and passed["pdf"]["images"] == wanted
    for wrong, named in (
        ({"output": {"format": "rtf"}}, "/conversionOptions/output/format"),
        ({"pdf": {"metadata": "yes"}}, "/conversionOptions/pdf/metadata"),
        ({"image": {"descriptionLanguage": "xx"}}, "/conversionOptions/image/descriptionLanguage"),
        ({"html": {"images": {"maxConvertedImages": -1}}}, "/conversionOptions/html/images/maxConvertedImages"),
        ({"docx": {"images": {"convert": "no"}}}, "/conversionOptions/docx/images/convert"),
        ([], "/conversionOptions"),
        ("{", "/conversionOptions"),
    ):
        answered = convert(edge, ("a.html", "", b"x"), options=wrong)
        assert answered.status == 400 and named in answered.json()["errors"][0]["message"], wrong
    assert convert(edge, ("a.html", "", b"x"), options="null").status == 200


def test_an_empty_file_is_told_as_such(edge: Served):
    for found in convert(edge, ("a.pdf", "", b""), ("a.png", "", b"")).json()["result"]:
        assert (found["format"], found["error"]) == ("error", "The file is empty")
    assert edge.inference.requests == []


def test_so_many_files_at_once_are_taken(edge: Served):
    files = [{"name": "a.html", "data": "eA=="}] * 101
    answered = edge.fetch("POST", "/binding/any/to-everything/markdown/transformer", json.dumps({"files": files}).encode())
    assert answered.status == 400 and "100" in str(answered.json()) and not edge.inference.requests


def test_a_request_without_files_is_a_bad_request(edge: Served):
    assert convert(edge).status == 400
    assert edge.fetch("POST", PATH, b"{}", headers={"content-type": "application/json"}).status == 400
    assert edge.inference.requests == []


def test_the_formats_are_listed(edge: Served):
    for path in (f"{PATH}/supported", f"{PATH}/supported/"):
        listed = edge.fetch("GET", path).json()["result"]
        assert {"extension": ".html", "mimeType": "text/html"} in listed
        wanted = [
            "pdf",
            "jpeg",
            "jpg",
            "png",
            "webp",
            "svg",
            "gif",
            "bmp",
            "html",
            "htm",
            "xml",
            "xlsx",
            "xlsm",
            "xlsb",
            "xls",
            "et",
            "docx",
            "ods",
            "odt",
            "csv",
            "numbers",
        ]
        assert sorted(each["extension"] for each in listed) == sorted(f".{name}" for name in wanted)


def test_more_than_so_much_is_refused_early(edge: Served):
    with edge.connect() as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {(64 << 20) + 1}\r\n\r\n"
        connection.send(head.encode())
        refused = connection.read_response()
    assert (refused.status, refused.code) == (413, 3006) and "67108864" in refused.json()["errors"][0]["message"]


def test_who_leaves_takes_the_conversion_with_him(edge: Served):
    answers(edge, {"@fornada/to-markdown": stay_silent})
    part = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="files"; filename="a.html"\r\n\r\nx\r\n--{BOUNDARY}--\r\n'
    with edge.connect() as connection:
        connection.send_request("POST", PATH, part.encode(), {"content-type": f"multipart/form-data; boundary={BOUNDARY}"})
        until(lambda: len(edge.inference.requests) == 1)
        assert not edge.inference.last.left
    until(lambda: edge.inference.last.left)
