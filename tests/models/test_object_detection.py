"""Things and faces are found where they are, in pixels of the upright picture."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.models.conftest import MODELS
from tests.models.pictures import encoded, sample, turned
from tests.models.runner import Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(300)]

Shipped = Callable[[str], Runner]
EDGES = ("xmin", "ymin", "xmax", "ymax")


@pytest.fixture
def finder(shipped: Shipped) -> Runner:
    return shipped("coco-ssd")


@pytest.fixture
def faces(shipped: Shipped) -> Runner:
    return shipped("face-detection")


def find(runner: Runner, picture: bytes) -> list[dict[str, Any]]:
    found = runner.send(picture, "application/octet-stream").json
    assert all(sorted(each) == ["box", "label", "score"] and sorted(each["box"]) == sorted(EDGES) for each in found)
    scores = [each["score"] for each in found]
    assert scores == sorted(scores, reverse=True) and all(0.5 <= score <= 1 for score in scores)
    return found


def close(box: dict[str, int], wanted: tuple[int, ...] | dict[str, int], pixels: int) -> bool:
    edges = tuple(wanted[edge] for edge in EDGES) if isinstance(wanted, dict) else wanted
    return all(abs(box[edge] - place) <= pixels for edge, place in zip(EDGES, edges, strict=True))


@pytest.mark.parametrize(("slug", "pixels"), [("coco-ssd", 10), ("face-detection", 6)])
def test_the_shipped_example_gives_the_shipped_answer(shipped: Shipped, slug: str, pixels: int) -> None:
    example = MODELS / slug / "example"
    answer, wanted = find(shipped(slug), (example / "request.jpg").read_bytes()), json.loads((example / "answer.json").read_text())
    assert [each["label"] for each in answer] == [each["label"] for each in wanted]
    for got, each in zip(answer, wanted, strict=True):
        assert got["score"] == pytest.approx(each["score"], abs=0.05) and close(got["box"], each["box"], pixels), got


def test_a_cup_stands_on_a_table(finder: Runner, photographs: Path) -> None:
    cup, table = find(finder, (photographs / "coffee.png").read_bytes())
    assert (cup["label"], table["label"]) == ("cup", "dining table")
    assert cup["score"] == pytest.approx(0.79, abs=0.05) and table["score"] == pytest.approx(0.60, abs=0.07)
    assert close(cup["box"], (165, 17, 426, 314), 12) and close(table["box"], (14, 6, 583, 385), 25)


@pytest.mark.parametrize(
    ("name", "label", "score", "box"),
    [("astronaut.png", "person", 0.64, (12, 4, 389, 505)), ("chelsea.png", "cat", 0.63, (0, 0, 415, 298))],
)
def test_what_is_on_a_photograph_is_found(
    finder: Runner, photographs: Path, name: str, label: str, score: float, box: tuple[int, ...]
) -> None:
    best = find(finder, (photographs / name).read_bytes())[0]
    assert best["label"] == label and best["score"] == pytest.approx(score, abs=0.07) and close(best["box"], box, 20), best


def test_cats_and_a_parrot_are_found(finder: Runner) -> None:
    assert {each["label"] for each in find(finder, sample("cats_and_dogs.jpg"))} <= {"cat", "dog"}
    (bird,) = find(finder, sample("parrot.jpg"))
    assert bird["label"] == "bird" and bird["score"] == pytest.approx(0.82, abs=0.05)


def test_boxes_are_those_of_the_upright_picture_in_its_own_pixels(finder: Runner, faces: Runner, photographs: Path) -> None:
    with Image.open(photographs / "coffee.png") as image:
        coffee = image.convert("RGB")
    straight = find(finder, encoded(coffee))
    assert find(finder, turned(coffee)) == straight
    doubled = find(finder, encoded(coffee.resize((1200, 800)), "JPEG"))[0]
    assert doubled["label"] == "cup" and close(doubled["box"], tuple(2 * straight[0]["box"][edge] for edge in EDGES), 24)
    with Image.open(photographs / "astronaut.png") as image:
        astronaut = image.convert("RGB").crop((0, 0, 512, 300))
    (face,) = find(faces, encoded(astronaut))
    assert close(face["box"], (177, 81, 272, 175), 12)
    assert find(faces, turned(astronaut)) == [face]
    (moved,) = find(faces, encoded(astronaut.crop((100, 50, 400, 300))))
    assert close(moved["box"], (77, 31, 172, 125), 12)


@pytest.mark.parametrize("form", ["ints", "base64", "data URI", "part"])
def test_every_form_of_the_same_picture_gives_the_same_answer(finder: Runner, photographs: Path, form: str) -> None:
    with Image.open(photographs / "coffee.png") as image:
        raw = encoded(image.convert("RGB").resize((300, 200)), "JPEG")
    text = base64.b64encode(raw).decode()
    match form:
        case "part":
            answer = finder.send(b"{}" + raw, "application/json", parts=[("", 2), ("image", len(raw))])
        case "ints":
            answer = finder.ask({"image": list(raw)})
        case _:
            answer = finder.ask({"image": text if form == "base64" else f"data:image/jpeg;base64,{text}"})
    assert answer.json == find(finder, raw)


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "CMYK"])
def test_a_cat_is_a_cat_in_every_mode(finder: Runner, photographs: Path, mode: str) -> None:
    with Image.open(photographs / "chelsea.png") as image:
        picture = image.convert("RGB").convert(mode)
    assert find(finder, encoded(picture, "TIFF" if mode == "CMYK" else "PNG"))[0]["label"] == "cat"


def test_what_is_no_picture_is_the_callers_fault_and_the_model_goes_on(finder: Runner, photographs: Path) -> None:
    whole = (photographs / "coffee.png").read_bytes()
    bomb = whole[:16] + (60_000).to_bytes(4, "big") * 2 + whole[24:]
    for broken in (b"", b"text", whole[:-4000], bomb):
        assert finder.send(broken, "image/png").status == "bad_request"
    assert find(finder, whole)[0]["label"] == "cup"


def test_nothing_to_find_is_an_empty_list(finder: Runner, faces: Runner, photographs: Path) -> None:
    assert find(finder, encoded(Image.new("RGB", (1, 1)))) == find(faces, encoded(Image.new("RGB", (1, 1)))) == []
    for name in ("coffee.png", "chelsea.png"):
        assert find(faces, (photographs / name).read_bytes()) == []


def test_the_faces_of_two_people_are_two(faces: Runner) -> None:
    found = find(faces, sample("face.jpg"))
    assert len(found) == 2 and all(each["label"] == "face" and each["score"] > 0.85 for each in found)


def test_the_score_below_which_nothing_counts_can_be_set(start: Callable[..., Runner], photographs: Path) -> None:
    strict = start(MODELS / "coco-ssd", settings={"least_score": 0.7})
    assert [each["label"] for each in find(strict, (photographs / "coffee.png").read_bytes())] == ["cup"]
