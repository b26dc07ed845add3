"""Magika knows files by their content."""

import base64
import json
from collections.abc import Callable

import pytest

from tests.models.conftest import MODELS
from tests.models.runner import Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLE = MODELS / "magika" / "example"
FILES = {
    "python": (EXAMPLE / "request.txt").read_bytes() * 3,
    "jpeg": (MODELS / "mobilenet-v2" / "example" / "request.jpg").read_bytes(),
    "wav": (MODELS / "yamnet" / "example" / "request.wav").read_bytes(),
    "json": json.dumps({"name": "nata", "tags": ["sweet", "warm"], "price": {"eur": 1.2}, "list": list(range(40))}, indent=2).encode(),
    "html": b"<!DOCTYPE html>\n<html lang='en'><head><title>Hello</title></head><body><h1>Hello</h1><p>world</p></body></html>\n",
    "toml": (MODELS / "magika" / "model.toml").read_bytes(),
    "empty": b"",
    "txt": b"hello",
    "unknown": b"\xff\xfe\xfd",
}


@pytest.fixture
def magika(shipped: Callable[[str], Runner]) -> Runner:
    return shipped("magika")


def kind(runner: Runner, raw: bytes) -> str:
    return str(runner.send(raw, "application/octet-stream").json[0]["label"])


def test_the_shipped_example_gives_the_shipped_answer(magika: Runner) -> None:
    wanted = json.loads((EXAMPLE / "answer.json").read_text())
    answer = magika.send((EXAMPLE / "request.txt").read_bytes(), "application/octet-stream").json
    assert len(answer) == 5 and answer[0]["label"] == wanted[0]["label"] == "python"
    assert answer[0]["score"] == pytest.approx(wanted[0]["score"], abs=0.01)


@pytest.mark.parametrize("wanted", FILES)
def test_a_file_is_known_by_its_content(magika: Runner, wanted: str) -> None:
    assert kind(magika, FILES[wanted]) == wanted


def test_a_picture_is_a_png(magika: Runner, photographs) -> None:
    assert kind(magika, (photographs / "coffee.png").read_bytes()) == "png"


def test_files_at_the_same_time_get_their_own_answers(magika: Runner) -> None:
    answers = magika.send_all([(raw, "application/octet-stream", []) for raw in FILES.values()])
    assert [answer.json[0]["label"] for answer in answers] == list(FILES)


def test_every_form_of_the_same_file_gives_the_same_answer(magika: Runner) -> None:
    raw = FILES["html"]
    answer = magika.send(raw, "text/html").json
    text = base64.b64encode(raw).decode()
    for form in (list(raw), text, f"data:text/html;base64,{text}"):
        assert magika.ask({"file": form}).json == answer
    assert magika.ask({}).status == "bad_request"


def test_white_space_alone_is_text(magika: Runner) -> None:
    assert kind(magika, b" \n" * 5000) == "txt"
