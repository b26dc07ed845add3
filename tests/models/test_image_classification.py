"""EfficientNet-Lite0 says what is on real photographs, whatever form they come in."""

import base64
import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.models.conftest import MODELS
from tests.models.pictures import encoded, sample
from tests.models.runner import Answer, Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLE = MODELS / "efficientnet-lite0" / "example"
CATS = {"tabby, tabby cat", "tiger cat", "Persian cat", "Siamese cat, Siamese", "Egyptian cat"}
COFFEES = {"espresso", "cup", "coffee mug"}


def labels(answer: Answer) -> list[str]:
    return [entry["label"] for entry in answer.json]


def classify(runner: Runner, image: Image.Image, format: str = "PNG", **options: Any) -> Answer:
    return runner.send(encoded(image, format, **options), f"image/{format.lower()}")


def test_the_shipped_example_gives_the_shipped_answer(classifier: Runner) -> None:
    answer = classifier.send((EXAMPLE / "request.jpg").read_bytes(), "image/jpeg").json
    wanted = json.loads((EXAMPLE / "answer.json").read_text())
    assert answer[0]["label"] == wanted[0]["label"] == "espresso"
    scores = {entry["label"]: entry["score"] for entry in answer}
    for entry in wanted[:2]:
        assert scores[entry["label"]] == pytest.approx(entry["score"], abs=0.03)


def test_five_labels_come_best_first_with_scores_of_a_distribution(classifier: Runner, coffee: Image.Image) -> None:
    answer = classify(classifier, coffee).json
    assert [sorted(entry) for entry in answer] == [["label", "score"]] * 5
    scores = [entry["score"] for entry in answer]
    assert scores == sorted(scores, reverse=True) and scores[-1] > 0 and sum(scores) <= 1
    file = (MODELS / "efficientnet-lite0" / "labels.txt").read_text().splitlines()
    assert len(file) == 1000 and {entry["label"] for entry in answer} <= set(file)


def test_coffee_is_coffee_and_a_cat_is_a_cat(classifier: Runner, photographs: Path) -> None:
    coffee = classifier.send((photographs / "coffee.png").read_bytes(), "image/png")
    assert coffee.json[0]["label"] == "espresso" and coffee.json[0]["score"] == pytest.approx(0.94, abs=0.03)
    cat = classifier.send((photographs / "chelsea.png").read_bytes(), "image/png")
    assert set(labels(cat)[:3]) <= CATS


def test_a_macaw_is_a_macaw(classifier: Runner) -> None:
    best = classifier.send(sample("parrot.jpg"), "image/jpeg").json[0]
    assert best["label"] == "macaw" and best["score"] == pytest.approx(0.94, abs=0.03)


def test_a_hot_dog_is_a_hot_dog(classifier: Runner) -> None:
    best = classifier.send(sample("hot_dog.jpg"), "image/jpeg").json[0]
    assert best["label"] == "hotdog, hot dog, red hot" and best["score"] == pytest.approx(0.98, abs=0.03)


@pytest.mark.parametrize("form", ["bytes", "part", "part alone", "ints", "base64", "data URI"])
def test_every_form_of_the_same_picture_gives_the_same_answer(classifier: Runner, coffee: Image.Image, form: str) -> None:
    raw = encoded(coffee.resize((300, 200)), "JPEG")
    text = base64.b64encode(raw).decode()
    match form:
        case "bytes":
            answer = classifier.send(raw, "application/x-www-form-urlencoded")
        case "part":
            answer = classifier.send(b"{}" + raw, "application/json", parts=[("", 2), ("image", len(raw))])
        case "part alone":
            answer = classifier.send(raw, "image/jpeg", parts=[("image", len(raw))])
        case "ints":
            answer = classifier.ask({"image": list(raw)})
        case "base64":
            answer = classifier.ask({"image": text})
        case _:
            answer = classifier.ask({"image": f"data:image/jpeg;base64,{text}"})
    assert answer.json == classifier.send(raw, "image/jpeg").json


KINDS = {
    "greyscale": lambda image: encoded(image.convert("L")),
    "greyscale with alpha": lambda image: encoded(image.convert("LA")),
    "palette": lambda image: encoded(image.quantize(200)),
    "palette with transparency": lambda image: encoded(image.quantize(200), transparency=3),
    "alpha": lambda image: encoded(image.convert("RGBA")),
    "CMYK": lambda image: encoded(image.convert("CMYK"), "JPEG"),
    "YCbCr in a TIFF": lambda image: encoded(image.convert("YCbCr"), "TIFF"),
    "16 bit grey": lambda image: encoded(Image.fromarray(np.asarray(image.convert("L"), np.uint16) * 257)),
    "16 bit colour": lambda image: png16(image),
    "progressive": lambda image: encoded(image, "JPEG", progressive=True),
    "WebP": lambda image: encoded(image, "WEBP"),
    "GIF": lambda image: encoded(image, "GIF"),
    "BMP": lambda image: encoded(image, "BMP"),
    "animation": lambda image: encoded(image, "GIF", save_all=True, append_images=[Image.new("RGB", image.size)]),
    "a sliver of it, high": lambda image: encoded(image.crop((150, 0, 480, 400)).resize((330, 800))),
}


def png16(image: Image.Image) -> bytes:
    """An RGB picture as a PNG with 16 bits a channel, which Pillow reads but doesn't write."""
    rows = np.asarray(image, ">u2") * 257
    data = b"".join(b"\0" + row.astype(">u2").tobytes() for row in rows)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", image.width, image.height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", KINDS)
def test_coffee_is_coffee_in_every_kind_of_picture(classifier: Runner, coffee: Image.Image, kind: str) -> None:
    answer = classifier.send(KINDS[kind](coffee), "application/octet-stream")
    assert labels(answer)[0] in COFFEES, answer.json


@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_picture_is_turned_as_its_exif_data_says(classifier: Runner, photographs: Path, orientation: int) -> None:
    with Image.open(photographs / "chelsea.png") as image:
        upright = image.convert("RGB")
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}[orientation]  # Image.Transpose that makes the stored picture of the upright one
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = classify(classifier, upright.transpose(Image.Transpose(undo)), exif=exif).json
    straight = classify(classifier, upright).json
    assert [entry["label"] for entry in turned] == [entry["label"] for entry in straight]
    assert turned[0]["score"] == pytest.approx(straight[0]["score"], abs=1e-3)


def test_a_picture_of_one_pixel_is_a_picture(classifier: Runner) -> None:
    assert len(classify(classifier, Image.new("RGB", (1, 1))).json) == 5


BROKEN = {
    "nothing": b"",
    "text": b"hello, I am no picture",
    "a PNG's beginning alone": b"\x89PNG\r\n\x1a\n",
    "random bytes": bytes(np.random.default_rng(1).integers(0, 256, 5000, np.uint8)),
    "an SVG": b'<svg xmlns="x"><rect width="10" height="10"/></svg>',
}


@pytest.mark.parametrize("what", [*BROKEN, "a truncated JPEG", "a truncated PNG", "a PNG with a broken middle"])
def test_what_is_no_picture_is_the_callers_fault_and_the_model_goes_on(classifier: Runner, coffee: Image.Image, what: str) -> None:
    whole = {"JPEG": encoded(coffee, "JPEG"), "PNG": encoded(coffee)}
    broken = BROKEN.get(what, b"")
    if "truncated" in what:
        broken = whole[what.split()[-1]][:-4000]
    elif "middle" in what:
        broken = whole["PNG"][:20000] + b"\xff" * 100 + whole["PNG"][20100:]
    answer = classifier.send(broken, "image/png")
    assert answer.status == "bad_request" and answer.head["message"], answer.head
    assert labels(classify(classifier, coffee))[0] == "espresso"


def bomb(width: int, height: int) -> bytes:
    """Some kilobytes that claim to be width x height pixels."""
    image = io.BytesIO()
    Image.new("1", (8, 8)).save(image, "PNG")
    head = image.getvalue()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return head[:16] + header + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + head[33:]


@pytest.mark.parametrize("size", [(9000, 9000), (60000, 60000), (2**31 - 1, 2**31 - 1), (2**31 - 1, 1)])
def test_a_bomb_is_refused_before_it_takes_memory(classifier: Runner, size: tuple[int, int]) -> None:
    before = classifier.memory()["Rss"]
    answer = classifier.send(bomb(*size), "image/png")
    assert answer.status == "bad_request" and answer.head["message"], answer.head
    assert classifier.memory()["Rss"] < before + 64


@pytest.mark.parametrize(
    "value", [{}, {"image": None}, {"image": 7}, {"image": [256]}, {"image": ["a"]}, {"image": "no base64!"}, [1, 2], "x"]
)
def test_json_without_a_picture_is_the_callers_fault(classifier: Runner, value: Any) -> None:
    assert classifier.ask(value).status == "bad_request"


def test_requests_at_the_same_time_get_their_own_answers(classifier: Runner, coffee: Image.Image, photographs: Path) -> None:
    pictures = [encoded(coffee), (photographs / "chelsea.png").read_bytes(), b"no picture", encoded(coffee.rotate(90))]
    answers = classifier.send_all([(picture, "image/png", []) for picture in pictures])
    assert [answer.status for answer in answers] == ["ok", "ok", "bad_request", "ok"]
    assert labels(answers[0])[0] == "espresso" and labels(answers[1])[0] in CATS


def test_mobilenet_sees_the_same(shipped: Callable[[str], Runner], coffee: Image.Image) -> None:
    runner = shipped("mobilenet-v2")
    wanted = json.loads((MODELS / "mobilenet-v2" / "example" / "answer.json").read_text())
    answer = runner.send((MODELS / "mobilenet-v2" / "example" / "request.jpg").read_bytes(), "image/jpeg").json
    assert answer[0]["label"] == wanted[0]["label"] == "espresso" and len(answer) == 5
    assert answer[0]["score"] == pytest.approx(wanted[0]["score"], abs=0.05)
    assert labels(classify(runner, coffee.convert("L")))[0] in COFFEES
    assert runner.send(b"no picture", "image/png").status == "bad_request"


@pytest.mark.parametrize(("name", "label", "score"), [("parrot.jpg", "macaw", 0.996), ("hot_dog.jpg", "hotdog, hot dog, red hot", 0.887)])
def test_mobilenet_knows_a_macaw_and_a_hot_dog(shipped: Callable[[str], Runner], name: str, label: str, score: float) -> None:
    best = shipped("mobilenet-v2").send(sample(name), "image/jpeg").json[0]
    assert best["label"] == label and best["score"] == pytest.approx(score, abs=0.05)


def test_safe_pictures_are_called_safe(shipped: Callable[[str], Runner], photographs: Path) -> None:
    # That unsafe ones are called unsafe nobody tried: no such picture can be kept here.
    runner = shipped("nsfw")
    for name, score in (("astronaut.png", 0.032), ("coffee.png", 0.013), ("chelsea.png", 0.002), ("rocket.jpg", 0.0)):
        answer = runner.send((photographs / name).read_bytes(), "image/png").json
        assert [entry["label"] for entry in answer] == ["sfw", "nsfw"]
        assert answer[1]["score"] == pytest.approx(score, abs=0.02) and sum(each["score"] for each in answer) == pytest.approx(1, abs=1e-3)


def test_the_shipped_safe_picture_gives_the_shipped_answer(shipped: Callable[[str], Runner]) -> None:
    example = MODELS / "nsfw" / "example"
    answer = shipped("nsfw").send((example / "request.jpg").read_bytes(), "image/jpeg").json
    for got, wanted in zip(answer, json.loads((example / "answer.json").read_text()), strict=True):
        assert got["label"] == wanted["label"] and got["score"] == pytest.approx(wanted["score"], abs=0.02)
    assert shipped("nsfw").send(b"GIF89a", "image/gif").status == "bad_request"


def test_its_tensors_are_reported(classifier: Runner) -> None:
    tensors = classifier.ready["tensors"]
    assert tensors["inputs"] == [{"name": "image", "dtype": "UINT8", "shape": [-1, 224, 224, 3]}]
    assert tensors["outputs"] == [{"name": "scores", "dtype": "FP32", "shape": [-1, 1000]}]
