"""`fornada run --out FILE.png`: what was found, drawn on the picture that was sent."""

import base64
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import FakeNode
from tests.unit.cli.test_answers import NAME, answers, png, segmentation

GREY = (128, 128, 128)
PICTURE = png((400, 300), mode="RGB", fill=GREY)
BOX = {"xmin": 100, "ymin": 100, "xmax": 300, "ymax": 200}


def drawn(cli: Cli, node: FakeNode, tmp_path: Path, result: Any, *, picture: bytes = PICTURE, name: str = "out.png") -> Image.Image:
    answers(node, result, task="object-detection")
    (tmp_path / "in.png").write_bytes(picture)
    done = cli("run", NAME, "--file", tmp_path / "in.png", "--out", tmp_path / name)
    assert done.exit_code == 0, done.stderr
    assert line(done).endswith(" bytes")
    assert done.stdout  # the table is shown as well
    return opened(tmp_path / name)


def opened(path: Path) -> Image.Image:
    return Image.open(io.BytesIO(path.read_bytes()))


def changed(image: Image.Image) -> list[tuple[int, int]]:
    """The points that are no longer grey."""
    width, height = image.size
    rgb = image.convert("RGB")
    return [(x, y) for x in range(width) for y in range(height) if rgb.getpixel((x, y)) != GREY]


def test_a_box_is_drawn_where_it_is_with_its_label_above(cli: Cli, node: FakeNode, tmp_path: Path):
    image = drawn(cli, node, tmp_path, [{"label": "dog", "score": 0.8, "box": BOX}])
    assert (image.format, image.size, image.mode) == ("PNG", (400, 300), "RGB")
    points = set(changed(image))
    assert {(100, 150), (300, 150), (200, 100), (200, 200)} <= points
    assert not {(200, 150), (50, 50), (350, 250)} & points
    assert any(y < 100 for _, y in points), "the caption"
    assert min(x for x, _ in points) == 100 and max(x for x, _ in points) == 300 and max(y for _, y in points) == 200


@pytest.mark.parametrize("edge", [1e300, -1e300])
def test_boxes_beyond_the_picture_are_brought_to_its_edge(cli: Cli, node: FakeNode, tmp_path: Path, edge: float):
    drawn(cli, node, tmp_path, [{"label": "dog\n\x1b[2J猫", "score": None, "box": {**BOX, "xmax": edge, "ymin": edge}}])


def test_labels_of_the_whole_picture_stand_in_its_corner(cli: Cli, node: FakeNode, tmp_path: Path):
    points = changed(drawn(cli, node, tmp_path, [{"label": "espresso", "score": 0.94}, {"label": "cup", "score": 0.01}]))
    assert (0, 3) in points and max(x for x, _ in points) < 200 and max(y for _, y in points) < 60


def test_what_found_nothing_gives_the_picture_back(cli: Cli, node: FakeNode, tmp_path: Path):
    assert changed(drawn(cli, node, tmp_path, [])) == []


def test_a_body_has_points_and_limbs_but_no_guesses(cli: Cli, node: FakeNode, tmp_path: Path):
    at = {"left_shoulder": (50, 50), "left_elbow": (50, 150), "left_wrist": (350, 250)}
    points = [{"name": name, "x": x, "y": y, "score": 0.1 if name == "left_wrist" else 0.9} for name, (x, y) in at.items()]
    seen = set(changed(drawn(cli, node, tmp_path, {"keypoints": points})))
    assert {(50, 50), (50, 100), (50, 150)} <= seen and (350, 250) not in seen and (200, 200) not in seen


def test_lines_of_text_are_framed_and_numbered(cli: Cli, node: FakeNode, tmp_path: Path):
    frame = [[100, 100], [300, 120], [300, 160], [100, 140]]
    seen = set(changed(drawn(cli, node, tmp_path, {"text": "字", "lines": [{"text": "字", "score": 0.9, "box": frame}]})))
    assert {(100, 120), (300, 140), (200, 110), (200, 150)} <= seen and (200, 130) not in seen


def test_segments_are_veiled_and_the_background_is_left_alone(cli: Cli, node: FakeNode, tmp_path: Path):
    mask = png((400, 300), boxes={(200, 150, 400, 300): 1, (0, 280, 10, 300): 2})
    seen = set(changed(drawn(cli, node, tmp_path, segmentation(mask))))
    assert {(200, 150), (399, 299), (5, 290)} <= seen and (100, 200) not in seen


def test_a_mask_of_another_size_is_brought_to_the_pictures(cli: Cli, node: FakeNode, tmp_path: Path):
    seen = set(changed(drawn(cli, node, tmp_path, segmentation(png((4, 3), boxes={(2, 0, 4, 3): 9})))))
    assert (300, 250) in seen and (100, 250) not in seen


def test_the_picture_is_turned_upright_as_the_model_saw_it(cli: Cli, node: FakeNode, tmp_path: Path):
    written = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (400, 300), GREY).save(written, "PNG", exif=exif)
    assert drawn(cli, node, tmp_path, [], picture=written.getvalue()).size == (300, 400)


@pytest.mark.parametrize(("name", "format"), [("a.jpg", "JPEG"), ("a.JPEG", "JPEG"), ("a.webp", "WEBP")])
def test_the_name_of_the_file_says_the_format(cli: Cli, node: FakeNode, tmp_path: Path, name: str, format: str):
    assert drawn(cli, node, tmp_path, [], name=name).format == format


def test_the_picture_may_be_a_field_of_the_request(cli: Cli, node: FakeNode, tmp_path: Path):
    answers(node, [], task="object-detection")
    for image in (base64.b64encode(PICTURE).decode(), f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}", list(PICTURE)):
        done = cli("run", NAME, "--input", f'{{"image": {image!r}}}'.replace("'", '"'), "--out", tmp_path / "a.png")
        assert done.exit_code == 0 and opened(tmp_path / "a.png").size == (400, 300)


def bomb(width: int, height: int) -> bytes:
    """A PNG that claims so many pixels and holds none."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(9000, 9000), (30000, 30000)])
def test_too_many_pixels_are_refused_before_they_are_decoded(cli: Cli, node: FakeNode, tmp_path: Path, size: tuple[int, int]):
    (tmp_path / "in.png").write_bytes(bomb(*size))
    answers(node, [], task="object-detection")
    done = cli("run", NAME, "--file", tmp_path / "in.png", "--out", tmp_path / "out.png")
    assert done.exit_code == 1 and "pixels" in line(done) and not (tmp_path / "out.png").exists()
    answers(node, segmentation(bomb(*size)))
    done = cli("run", NAME)
    assert done.exit_code == 1 and "pixels" in line(done)


@pytest.mark.parametrize(
    ("result", "sent"), [({"response": "x"}, PICTURE), ([{"label": "a", "score": 1}], b"{}"), ([{"label": "a", "score": 1}], b"no picture")]
)
def test_what_can_not_be_drawn_is_said(cli: Cli, node: FakeNode, tmp_path: Path, result: Any, sent: bytes):
    (tmp_path / "in").write_bytes(sent)
    answers(node, result)
    done = cli("run", NAME, "--file", tmp_path / "in", "--out", tmp_path / "out.png")
    assert done.exit_code == 1 and "can be drawn" in line(done) and ".json" in line(done)
