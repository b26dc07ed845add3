"""The shapes of answers that the command knows, read from JSON that a model wrote.

    list  [{label, text, start, end}]   Entities          [{label, score, box?}]   Labels
    dict  {keypoints}   Pose            {text, lines}      ReadText                 {width, height, labels, mask}   Segmentation
          {shape, data} Vectors         {response: [{id, score}]}   Ranking         {text, vtt?, words?}   Speech
          {image | audio: base64}   Encoded          {response | summary | translated_text | description: text}, {choices: [one]}   Text

Whatever fits none of them is Other, and is shown as it is: an answer is never an error because of its shape.
"""

import base64
import binascii
from typing import Any

import msgspec

SURE = 0.3
"""A keypoint below is a guess: MoveNet's own advice."""


class Box(msgspec.Struct, frozen=True):
    """Pixels from the upper left corner."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


class Label(msgspec.Struct, frozen=True):
    label: str
    score: float | None
    box: Box | None = None


class Entity(msgspec.Struct, frozen=True):
    """`start` and `end` count characters of the text."""

    label: str
    text: str
    start: int
    end: int


class Keypoint(msgspec.Struct, frozen=True):
    name: str
    x: float
    y: float
    score: float


class Line(msgspec.Struct, frozen=True):
    """`box`: its corners, clockwise from where the line begins."""

    text: str
    score: float
    box: list[tuple[float, float]]


class Ranked(msgspec.Struct, frozen=True):
    """`id` counts the request's contexts from 0."""

    id: int
    score: float | None


class Labels(msgspec.Struct, frozen=True):
    items: list[Label]


class Entities(msgspec.Struct, frozen=True):
    items: list[Entity]


class Pose(msgspec.Struct, frozen=True):
    keypoints: list[Keypoint]


class ReadText(msgspec.Struct, frozen=True):
    text: str
    lines: list[Line]


class Segmentation(msgspec.Struct, frozen=True):
    """`mask`: a PNG of 8 bits a pixel in base64, each an index into `labels`."""

    width: int
    height: int
    labels: list[str]
    mask: str


class Vectors(msgspec.Struct, frozen=True):
    shape: list[int]
    data: list[list[float | None]]
    pooling: str | None = None


class Ranking(msgspec.Struct, frozen=True):
    response: list[Ranked]


class Speech(msgspec.Struct, frozen=True):
    """`vtt`: subtitles as WebVTT."""

    text: str
    vtt: str
    words: list[Any] = []


class Encoded(msgspec.Struct, frozen=True):
    """A file inside JSON."""

    content: bytes
    type: str


class Text(msgspec.Struct, frozen=True):
    text: str


class Other(msgspec.Struct, frozen=True):
    value: Any


Answer = Labels | Entities | Pose | ReadText | Segmentation | Vectors | Ranking | Speech | Encoded | Text | Other

WITHOUT_FIND = frozenset({"object-detection", "image-classification", "audio-classification", "token-classification"})
"""Tasks whose empty list means that nothing was found."""
BY_KEYS: tuple[tuple[frozenset[str], type[Any]], ...] = (
    (frozenset({"keypoints"}), Pose),
    (frozenset({"text", "lines"}), ReadText),
    (frozenset({"width", "height", "labels", "mask"}), Segmentation),
    (frozenset({"shape", "data"}), Vectors),
    (frozenset({"text", "vtt"}), Speech),
)
SENTENCES = ("response", "summary", "translated_text", "description")
FILES = ("image", "audio")
SIGNATURES = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "audio/wav",
    b"OggS": "audio/ogg",
    b"fLaC": "audio/flac",
    b"ID3": "audio/mpeg",
    b"\xff\xfb": "audio/mpeg",
    b"\xff\xf3": "audio/mpeg",
}


def read(result: Any, *, task: str = "") -> Answer:
    """What `result` is. `task` tells an empty list of finds from an empty list."""
    if isinstance(result, str):
        return Text(result)
    if isinstance(result, list):
        return _list(result, task)
    if isinstance(result, dict):
        return _object(result)
    return Other(result)


def _list(result: list[Any], task: str) -> Answer:
    if not result:
        return Labels([]) if task in WITHOUT_FIND else Other(result)
    entities = _as(list[Entity], result)
    if entities is not None:
        return Entities(entities)
    labels = _as(list[Label], result)
    return Other(result) if labels is None else Labels(labels)


def _object(result: dict[str, Any]) -> Answer:
    for keys, shape in BY_KEYS:
        if keys <= result.keys():
            found: Answer | None = _as(shape, result)
            if found is not None:
                return found
    ranking: Ranking | None = _as(Ranking, result)
    if ranking is not None:
        return ranking
    if result.get("tool_calls"):
        return Other(result)
    return _single(result) or Other(result)


def _single(result: dict[str, Any]) -> Text | Encoded | None:
    """An object with one thing to tell, and perhaps its usage."""
    told = [key for key, value in result.items() if key != "usage" and value is not None]
    for key in SENTENCES:
        if isinstance(result.get(key), str) and (key == "response" or told == [key]):
            return Text(result[key])
    choices = result.get("choices")
    if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict):
        said = choices[0].get("message")
        text = said.get("content") if isinstance(said, dict) and not said.get("tool_calls") else choices[0].get("text")
        return Text(text) if isinstance(text, str) else None
    for key in FILES:
        if told == [key] and isinstance(result[key], str):
            return _encoded(result[key])
    return None


def _encoded(text: str) -> Encoded | None:
    try:
        content = base64.b64decode(text.rpartition("base64,")[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = next((kind for signature, kind in SIGNATURES.items() if content.startswith(signature)), "application/octet-stream")
    return Encoded(content, kind)


def _as(shape: Any, value: Any) -> Any:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return None
