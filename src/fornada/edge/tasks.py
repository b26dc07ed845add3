"""Task types of Workers AI: id, name, what goes in, what comes out (WORKERS_AI.md, 5 and 8).

A model's own [schema] files take the place of its task's schemas; fields that hold pictures or sound stay the task's.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fornada.edge import task_schemas as schemas
from fornada.edge.text_schemas import TEXT_GENERATION_IN, TEXT_GENERATION_OUT

Schema = Mapping[str, Any]
_NAMESPACE = uuid.UUID("5f1d9c2e-6f0a-4c57-9a7b-1f0f3a52d1c4")
"""Ours: names what Cloudflare has no id for, the same on every node."""


@dataclass(frozen=True, slots=True)
class Task:
    """A kind of model."""

    slug: str
    """As in model.toml."""
    id: str
    name: str
    """As in the catalogue's answers."""
    description: str
    input: Schema = field(default_factory=lambda: schemas.ANYTHING_IN)
    output: Schema = field(default_factory=lambda: schemas.ANYTHING_OUT)
    binary: tuple[str, ...] = ()
    """Fields that may be raw bytes, numbers from 0 to 255, base64 or a data URI."""
    raw: str = ""
    """The field that a body of raw bytes is; empty: the body goes to the model as it is."""

    def public(self) -> dict[str, str]:
        """What the catalogue's answers show of it."""
        return {"id": self.id, "name": self.name, "description": self.description}


def named_id(kind: str, name: str) -> str:
    """The uuid of something that only has a name: the same on every node and after every restart."""
    return str(uuid.uuid5(_NAMESPACE, f"{kind}:{name}"))


CUSTOM = Task("custom", named_id("task", "custom"), "Custom", "Models with an interface of their own.")

TASKS: tuple[Task, ...] = (
    Task(
        "text-generation",
        "c329a1f9-323d-4e91-b2aa-582dd4188d34",
        "Text Generation",
        "Models that continue a prompt or a conversation.",
        TEXT_GENERATION_IN,
        TEXT_GENERATION_OUT,
    ),
    Task(
        "image-classification",
        "00cd182b-bf30-4fc4-8481-84a3ab349657",
        "Image Classification",
        "Models that say what a picture shows.",
        schemas.IMAGE_IN,
        schemas.LABELS_OUT,
        binary=("image",),
        raw="image",
    ),
    Task(
        "object-detection",
        "9c178979-90d9-49d8-9e2c-0f1cf01815d4",
        "Object Detection",
        "Models that find things in a picture and frame them.",
        schemas.IMAGE_IN,
        schemas.DETECTIONS_OUT,
        binary=("image",),
        raw="image",
    ),
    Task(
        "text-embeddings",
        "0137cdcf-162a-4108-94f2-1ca59e8c65ee",
        "Text Embeddings",
        "Models that turn texts into vectors, close ones for close meanings.",
        schemas.EMBEDDINGS_IN,
        schemas.EMBEDDINGS_OUT,
    ),
    Task(
        "automatic-speech-recognition",
        "dfce1c48-2a81-462e-a7fd-de97ce985207",
        "Automatic Speech Recognition",
        "Models that write down what is said.",
        schemas.SPEECH_IN,
        schemas.SPEECH_OUT,
        binary=("audio",),
        raw="audio",
    ),
    Task(
        "text-classification",
        "19606750-23ed-4371-aab2-c20349b53a60",
        "Text Classification",
        "Models that sort texts into labels.",
        schemas.TEXT_IN,
        schemas.LABELS_OUT,
    ),
    Task(
        "translation",
        "f57d07cb-9087-487a-bbbf-bc3e17fecc4b",
        "Translation",
        "Models that say a text in another language.",
        schemas.TRANSLATION_IN,
        schemas.TRANSLATION_OUT,
    ),
    Task(
        "summarization",
        "6f4e65d8-da0f-40d2-9aa4-db582a5a04fd",
        "Summarization",
        "Models that shorten a text.",
        schemas.SUMMARY_IN,
        schemas.SUMMARY_OUT,
    ),
    Task(
        "text-to-image",
        "3d6e1f35-341b-4915-a6c8-9a7142a9033a",
        "Text-to-Image",
        "Models that draw what a text says.",
        schemas.TEXT_TO_IMAGE_IN,
        schemas.TEXT_TO_IMAGE_OUT,
        binary=("image", "image_b64", "mask"),
    ),
    Task(
        "image-to-text",
        "882a91d1-c331-4eec-bdad-834c919942a8",
        "Image-to-Text",
        "Models that describe a picture.",
        schemas.IMAGE_TO_TEXT_IN,
        schemas.IMAGE_TO_TEXT_OUT,
        binary=("image",),
        raw="image",
    ),
    Task(
        "text-to-speech",
        "b52660a1-9a95-4ab2-8b1d-f232be34604a",
        "Text-to-Speech",
        "Models that say a text aloud.",
        schemas.TEXT_TO_SPEECH_IN,
        schemas.TEXT_TO_SPEECH_OUT,
    ),
    Task(
        "image-segmentation",
        named_id("task", "image-segmentation"),
        "Image Segmentation",
        "Models that say of each pixel of a picture what it belongs to.",
        schemas.IMAGE_IN,
        schemas.SEGMENTATION_OUT,
        binary=("image",),
        raw="image",
    ),
    Task(
        "pose-estimation",
        named_id("task", "pose-estimation"),
        "Pose Estimation",
        "Models that find the points of a body in a picture.",
        schemas.IMAGE_IN,
        schemas.KEYPOINTS_OUT,
        binary=("image",),
        raw="image",
    ),
    Task(
        "optical-character-recognition",
        named_id("task", "optical-character-recognition"),
        "Optical Character Recognition",
        "Models that read the text on a picture.",
        schemas.IMAGE_IN,
        schemas.READ_TEXT_OUT,
        binary=("image",),
        raw="image",
    ),
    Task(
        "audio-classification",
        named_id("task", "audio-classification"),
        "Audio Classification",
        "Models that say what is heard in a recording.",
        schemas.AUDIO_IN,
        schemas.LABELS_OUT,
        binary=("audio",),
        raw="audio",
    ),
    Task(
        "token-classification",
        named_id("task", "token-classification"),
        "Token Classification",
        "Models that find names, places, dates and the like in a text.",
        schemas.TEXT_IN,
        schemas.ENTITIES_OUT,
    ),
    Task(
        "file-classification",
        named_id("task", "file-classification"),
        "File Classification",
        "Models that say of what kind a file is, by its content.",
        schemas.FILE_IN,
        schemas.LABELS_OUT,
        binary=("file",),
        raw="file",
    ),
    Task(
        "markdown-conversion",
        named_id("task", "markdown-conversion"),
        "Markdown Conversion",
        "Models that turn a document into Markdown.",
        schemas.DOCUMENT_IN,
        schemas.MARKDOWN_OUT,
        binary=("file",),
        raw="file",
    ),
    CUSTOM,
)
_BY_SLUG = {task.slug: task for task in TASKS}


def task_of(slug: str) -> Task:
    """The task that a model declares. One that nobody knows is a custom one under its own name."""
    known = _BY_SLUG.get(slug)
    if known is not None:
        return known
    return Task(slug, named_id("task", slug), slug.replace("-", " ").title(), CUSTOM.description)
