"""What a model found, drawn on the picture that it was asked about."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from fornada.cli.answers import shapes
from fornada.cli.answers.masks import MOST_PIXELS, mask_of, shares
from fornada.cli.failures import CommandFailed, one_line
from fornada_sdk import BadRequest
from fornada_sdk.api_image import decode_image

if TYPE_CHECKING:
    from PIL import Image

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#bcbd22", "#f032e6", "#9a6324", "#17becf")
VEIL = 0.5
"""How much of a segment's colour covers the picture."""
CAPTIONS = 3
"""Labels of a whole picture that are written on it."""
LIMBS = (
    *(("left_shoulder", "right_shoulder"), ("left_hip", "right_hip"), ("left_shoulder", "left_hip"), ("right_shoulder", "right_hip")),
    *(("left_shoulder", "left_elbow"), ("left_elbow", "left_wrist"), ("right_shoulder", "right_elbow"), ("right_elbow", "right_wrist")),
    *(("left_hip", "left_knee"), ("left_knee", "left_ankle"), ("right_hip", "right_knee"), ("right_knee", "right_ankle")),
    *(("nose", "left_eye"), ("nose", "right_eye"), ("left_eye", "left_ear"), ("right_eye", "right_ear")),
)
"""Points of COCO's body that belong together."""

Drawable = shapes.Labels | shapes.Pose | shapes.ReadText | shapes.Segmentation


def is_picture_path(path: str) -> bool:
    return Path(path).suffix.lower() in FORMATS


def annotated(picture: bytes, answer: Drawable, *, path: str) -> bytes:
    """The picture, upright, with the finds on it, in the format that `path` ends in. Raises CommandFailed."""
    try:
        image = decode_image(picture, max_pixels=MOST_PIXELS)
    except BadRequest as error:
        raise CommandFailed(f"nothing can be drawn: {one_line(str(error))}; --out with .json keeps the answer itself") from None
    match answer:
        case shapes.Labels(items=items):
            _boxes(image, items)
        case shapes.Pose(keypoints=points):
            _body(image, points)
        case shapes.ReadText(lines=lines):
            _lines(image, lines)
        case shapes.Segmentation():
            image = _veiled(image, answer)
        case _:
            assert_never(answer)
    written = io.BytesIO()
    image.save(written, FORMATS[Path(path).suffix.lower()])
    return written.getvalue()


class Pen:
    """Lines and captions in a size that suits the picture."""

    def __init__(self, image: "Image.Image") -> None:
        from PIL import ImageDraw, ImageFont

        self.width = max(2, max(image.size) // 250)
        self.draw = ImageDraw.Draw(image)
        self._font = ImageFont.load_default(max(12, max(image.size) // 40))
        self._size = image.size
        # Of any text: captions one below the other shall be of one height.
        _, self._top, _, bottom = self.draw.textbbox((0, 0), "Ag", font=self._font)
        self._height = bottom - self._top + 2 * self.width

    def place(self, x: float, y: float) -> tuple[float, float]:
        """The point, brought to the picture's edge where it lies beyond: a model may name any number."""
        return min(max(x, 0), self._size[0] - 1), min(max(y, 0), self._size[1] - 1)

    def caption(self, x: float, y: float, text: str, colour: str) -> None:
        """White on the colour, above (x, y), moved so that all of it is on the picture."""
        left, _, right, _ = self.draw.textbbox((0, 0), text, font=self._font)
        width = right - left + 2 * self.width
        x = min(max(x, 0), max(self._size[0] - width, 0))
        y = min(max(y - self._height, 0), max(self._size[1] - self._height, 0))
        self.draw.rectangle((x, y, x + width, y + self._height), fill=colour)
        self.draw.text((x + self.width - left, y + self.width - self._top), text, fill="white", font=self._font)

    def captions(self, lines: Sequence[tuple[str, str]]) -> None:
        """(text, colour) of what belongs to the whole picture, one below the other from the upper left corner."""
        for number, (text, colour) in enumerate(lines, 1):
            self.caption(0, number * self._height, text, colour)


def _boxes(image: "Image.Image", items: Sequence[shapes.Label]) -> None:
    pen = Pen(image)
    colours = {label: COLOURS[place % len(COLOURS)] for place, label in enumerate(dict.fromkeys(item.label for item in items))}
    # The surest last, so that it is never covered.
    for item in reversed([item for item in items if item.box]):
        assert item.box
        (left, top), (right, bottom) = pen.place(item.box.xmin, item.box.ymin), pen.place(item.box.xmax, item.box.ymax)
        left, right, top, bottom = min(left, right), max(left, right), min(top, bottom), max(top, bottom)
        pen.draw.rectangle((left, top, right, bottom), outline=colours[item.label], width=pen.width)
        pen.caption(left, top, _named(item), colours[item.label])
    pen.captions([(_named(item), colours[item.label]) for item in items if not item.box][:CAPTIONS])


def _named(item: shapes.Label) -> str:
    text = one_line(item.label)
    return text if item.score is None else f"{text} {item.score:.2f}"


def _body(image: "Image.Image", points: Sequence[shapes.Keypoint]) -> None:
    pen = Pen(image)
    sure = {point.name: pen.place(point.x, point.y) for point in points if point.score >= shapes.SURE}
    for one, other in LIMBS:
        if one in sure and other in sure:
            pen.draw.line((sure[one], sure[other]), fill=COLOURS[1], width=pen.width)
    radius = pen.width * 1.5
    for x, y in sure.values():
        pen.draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=COLOURS[0], outline="white")


def _lines(image: "Image.Image", lines: Sequence[shapes.Line]) -> None:
    # Numbers as in the table: the built-in font knows Latin letters only, and the text stands on the picture anyway.
    pen = Pen(image)
    for number, line in enumerate(lines, 1):
        if len(line.box) < 2:
            continue
        pen.draw.polygon([pen.place(x, y) for x, y in line.box], outline=COLOURS[0], width=pen.width)
        pen.caption(line.box[0][0], line.box[0][1], str(number), COLOURS[0])


def _veiled(image: "Image.Image", answer: shapes.Segmentation) -> "Image.Image":
    from PIL import Image, ImageColor

    mask = mask_of(answer)
    if mask.size != image.size:
        mask = mask.resize(image.size, Image.Resampling.NEAREST)
    background = 0 if answer.labels and answer.labels[0].lower() == "background" else None
    palette: list[int] = []
    for index in range(256):
        palette += ImageColor.getrgb(COLOURS[index % len(COLOURS)])[:3]
    colours = mask.copy()
    colours.putpalette(palette)
    opacity = mask.point([0 if index == background else round(255 * VEIL) for index in range(256)])
    veiled = Image.composite(colours.convert("RGB"), image, opacity)
    found = [(label, share) for label, share in shares(answer) if share > 0 and (background is None or label != answer.labels[0])]
    indices = {label: index for index, label in reversed(list(enumerate(answer.labels)))}
    Pen(veiled).captions([(f"{one_line(label)} {share:.0%}", COLOURS[indices.get(label, 0) % len(COLOURS)]) for label, share in found])
    return veiled
