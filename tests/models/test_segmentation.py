"""Masks cover what they name, at the picture's own size; points of a body lie where they are."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.models.conftest import MODELS
from tests.models.pictures import encoded, mask_of, sample, turned
from tests.models.runner import Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(300)]

Shipped = Callable[[str], Runner]
BIRD, CAT = 3, 8
ASTRONAUT = {  # seen on the photograph by a person, in pixels
    "nose": (224, 122),
    "left_eye": (245, 103),
    "right_eye": (207, 101),
    "left_ear": (275, 112),
    "right_ear": (183, 112),
    "right_shoulder": (118, 245),
}


@pytest.mark.parametrize(("slug", "share"), [("selfie-segmentation", 0.01), ("deeplab-v3", 0.02)])
def test_the_shipped_example_gives_the_shipped_answer(shipped: Shipped, slug: str, share: float) -> None:
    example = MODELS / slug / "example"
    wanted = json.loads((example / "answer.json").read_text())
    answer = shipped(slug).send((example / "request.jpg").read_bytes(), "image/jpeg").json
    assert {name: answer[name] for name in ("width", "height", "labels")} == {name: wanted[name] for name in ("width", "height", "labels")}
    assert np.mean(mask_of(answer) != mask_of(wanted)) <= share


def test_the_person_is_told_from_the_background(shipped: Shipped, photographs: Path) -> None:
    answer = shipped("selfie-segmentation").send((photographs / "astronaut.png").read_bytes(), "image/png").json
    mask = mask_of(answer)
    assert answer["labels"] == ["background", "person"] and mask.shape == (512, 512) and set(np.unique(mask)) == {0, 1}
    assert np.mean(mask) == pytest.approx(0.545, abs=0.04)
    assert mask[256, 256] == 1 and mask[5, 5] == 0


def test_a_cat_covers_its_pixels(shipped: Shipped, photographs: Path) -> None:
    answer = shipped("deeplab-v3").send((photographs / "chelsea.png").read_bytes(), "image/png").json
    mask = mask_of(answer)
    assert len(answer["labels"]) == 21 and answer["labels"][CAT] == "cat"
    assert mask.shape == (300, 451) and mask[150, 200] == CAT and np.mean(mask == CAT) > 0.4


def test_a_bird_takes_a_fifth_of_its_picture(shipped: Shipped) -> None:
    answer = shipped("deeplab-v3").send(sample("bird_segmentation.bmp"), "image/bmp").json
    assert answer["labels"][BIRD] == "bird" and np.mean(mask_of(answer) == BIRD) == pytest.approx(0.212, abs=0.02)


@pytest.mark.parametrize("slug", ["selfie-segmentation", "deeplab-v3"])
def test_masks_are_upright_and_as_large_as_the_picture(shipped: Shipped, photographs: Path, slug: str) -> None:
    with Image.open(photographs / "astronaut.png") as image:
        picture = image.convert("RGB").crop((0, 0, 450, 333))
    straight = shipped(slug).send(encoded(picture), "image/png").json
    assert (straight["width"], straight["height"]) == (450, 333)
    assert shipped(slug).send(turned(picture), "image/png").json == straight
    assert shipped(slug).send(encoded(Image.new("RGB", (1, 3))), "image/png").json["height"] == 3
    assert shipped(slug).send(base64.b64encode(b"no picture"), "image/png").status == "bad_request"


def test_the_points_of_a_body_lie_where_they_are(shipped: Shipped, photographs: Path) -> None:
    answer = shipped("movenet").send((photographs / "astronaut.png").read_bytes(), "image/png").json
    points = {point["name"]: point for point in answer["keypoints"]}
    assert len(points) == 17 and list(points)[:3] == ["nose", "left_eye", "right_eye"] and list(points)[-1] == "right_ankle"
    for name, place in ASTRONAUT.items():
        assert np.hypot(points[name]["x"] - place[0], points[name]["y"] - place[1]) < 20, points[name]
        assert points[name]["score"] > 0.4
    assert points["left_shoulder"]["x"] > points["right_shoulder"]["x"]
    assert all(0 <= point["x"] <= 512 and 0 <= point["y"] <= 512 for point in points.values())


def test_points_are_those_of_the_upright_picture(shipped: Shipped, photographs: Path) -> None:
    with Image.open(photographs / "astronaut.png") as image:
        picture = image.convert("RGB").crop((0, 0, 450, 400))
    answer = shipped("movenet").send(encoded(picture), "image/png").json
    assert shipped("movenet").send(turned(picture), "image/png").json == answer
    nose = answer["keypoints"][0]
    assert np.hypot(nose["x"] - 224, nose["y"] - 122) < 20


def test_the_shipped_points_are_found_again(shipped: Shipped) -> None:
    example = MODELS / "movenet" / "example"
    answer = shipped("movenet").send((example / "request.jpg").read_bytes(), "image/jpeg").json["keypoints"]
    for got, wanted in zip(answer, json.loads((example / "answer.json").read_text())["keypoints"], strict=True):
        assert got["name"] == wanted["name"]
        if wanted["score"] >= 0.3:
            assert np.hypot(got["x"] - wanted["x"], got["y"] - wanted["y"]) < 12
            assert got["score"] == pytest.approx(wanted["score"], abs=0.15)
