"""Text on pictures is found and read."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from tests.models.conftest import MODELS
from tests.models.pictures import encoded, turned
from tests.models.runner import Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLE = MODELS / "ppocr-v6" / "example"
NATA = "Pastel de nata: 1.20 EUR (2 for 2.00)"


@pytest.fixture
def reader(shipped: Callable[[str], Runner]) -> Runner:
    return shipped("ppocr-v6")


def drawn(*lines: str, size: tuple[int, int] = (640, 120)) -> Image.Image:
    image = Image.new("RGB", size, "white")
    for row, line in enumerate(lines):
        ImageDraw.Draw(image).text((20, 40 + 60 * row), line, font=ImageFont.load_default(32), fill="black")
    return image


def test_the_shipped_example_gives_the_shipped_answer(reader: Runner) -> None:
    answer = reader.send((EXAMPLE / "request.png").read_bytes(), "image/png").json
    wanted = json.loads((EXAMPLE / "answer.json").read_text())
    assert answer["text"] == wanted["text"] == NATA
    (line,), (told,) = answer["lines"], wanted["lines"]
    assert line["text"] == NATA and line["score"] == pytest.approx(told["score"], abs=0.02)
    assert all(abs(a - b) <= 6 for one, other in zip(line["box"], told["box"], strict=True) for a, b in zip(one, other, strict=True))


def test_lines_come_from_top_to_bottom_with_their_corners(reader: Runner) -> None:
    answer = reader.send(encoded(drawn("First line", "Second line", size=(400, 200))), "image/png").json
    assert answer["text"] == "First line\nSecond line"
    for row, line in enumerate(answer["lines"]):
        assert line["score"] > 0.9 and len(line["box"]) == 4
        left, top = line["box"][0]
        right, bottom = line["box"][2]
        assert 5 <= left <= 25 and left < right <= 260 and 30 + 60 * row <= top < bottom <= 90 + 60 * row


def test_a_page_is_read(reader: Runner, photographs: Path) -> None:
    text = reader.send((photographs / "page.png").read_bytes(), "image/png").json["text"]
    for line in ("Region-based segmentation", "Let us first determine markers of the coins and the", "histogram of grey values"):
        assert line in text


def test_a_picture_is_read_upright(reader: Runner) -> None:
    answer = reader.send(encoded(drawn(NATA)), "image/png").json
    assert answer["text"] == NATA and reader.send(turned(drawn(NATA)), "image/png").json == answer


def test_corners_are_those_of_the_picture_itself_however_large(reader: Runner) -> None:
    small = reader.send(encoded(drawn(NATA)), "image/png").json["lines"][0]
    large = reader.send(encoded(drawn(NATA).resize((3200, 600))), "image/png").json["lines"][0]
    assert large["text"] == small["text"] == NATA
    assert all(abs(a - 5 * b) <= 40 for one, other in zip(large["box"], small["box"], strict=True) for a, b in zip(one, other, strict=True))


def test_no_text_is_no_line_and_no_picture_is_refused(reader: Runner) -> None:
    assert reader.send(encoded(Image.new("RGB", (300, 200), "white")), "image/png").json == {"text": "", "lines": []}
    assert reader.send(encoded(Image.new("RGB", (1, 1))), "image/png").json == {"text": "", "lines": []}
    assert reader.send(b"no picture", "image/png").status == "bad_request"
