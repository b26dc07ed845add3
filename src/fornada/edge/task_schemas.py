"""JSON Schemas of the task types' inputs and outputs (WORKERS_AI.md, 5); text generation's are in text_schemas."""

from fornada.edge.schema_parts import Object
from fornada.edge.schema_parts import fields as _object
from fornada.edge.schema_parts import flag as _flag
from fornada.edge.schema_parts import integer as _integer
from fornada.edge.schema_parts import number as _number
from fornada.edge.schema_parts import text as _text


def _binary(what: str) -> Object:
    return {
        "description": f"{what}: bytes as numbers, base64, or a data URI. The whole body may also be the bytes themselves.",
        "oneOf": [
            {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}, "minItems": 1},
            {"type": "string", "minLength": 1},
        ],
    }


_SCORE = {"type": "number", "minimum": 0, "maximum": 1}
_ONE_OR_MORE_TEXTS: Object = {
    "description": "A text, or 1 to 100 of them",
    "oneOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 100},
    ],
}
ANYTHING_IN: Object = {"type": "object", "description": "Whatever the model's own documentation says", "additionalProperties": True}
ANYTHING_OUT: Object = {"description": "Whatever the model's own documentation says"}

TEXT_IN = _object("A text", {"text": _text("The text", minLength=1)}, required=("text",))
IMAGE_IN = _object("A picture", {"image": _binary("The picture")}, required=("image",))
LABELS_OUT: Object = {
    "type": "array",
    "description": "Labels with their scores",
    "items": {"type": "object", "properties": {"label": {"type": "string"}, "score": _SCORE}, "required": ["label", "score"]},
}
DETECTIONS_OUT: Object = {
    "type": "array",
    "description": "What was found, with its place in pixels from the upper left corner",
    "items": {
        "type": "object",
        "properties": {
            "label": {"type": "string"},
            "score": _SCORE,
            "box": {"type": "object", "properties": {name: {"type": "number"} for name in ("xmin", "ymin", "xmax", "ymax")}},
        },
    },
}
SEGMENTATION_OUT = _object(
    "What each pixel belongs to",
    {
        "width": _integer("Of the picture, upright, and of the mask, in pixels", minimum=1),
        "height": _integer("The same", minimum=1),
        "labels": {"type": "array", "description": "By class index", "items": {"type": "string"}},
        "mask": _text("A PNG of 8 bits a pixel in base64: class indices"),
    },
    required=("width", "height", "labels", "mask"),
)
KEYPOINTS_OUT = _object(
    "The points of a body, in pixels from the upper left corner",
    {
        "keypoints": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "x": {"type": "number"}, "y": {"type": "number"}, "score": _SCORE},
                "required": ["name", "x", "y", "score"],
            },
        }
    },
    required=("keypoints",),
)
READ_TEXT_OUT = _object(
    "The text on a picture",
    {
        "text": _text("All lines"),
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "score": _SCORE,
                    "box": {
                        "type": "array",
                        "description": "Its corners in pixels, clockwise from where the line begins",
                        "items": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
                        "minItems": 4,
                        "maxItems": 4,
                    },
                },
                "required": ["text", "score", "box"],
            },
        },
    },
    required=("text", "lines"),
)
ENTITIES_OUT: Object = {
    "type": "array",
    "description": "Names, places, dates and the like, with their place in the text, counted in characters",
    "items": {
        "type": "object",
        "properties": {
            "label": {"type": "string"},
            "text": {"type": "string"},
            "start": {"type": "integer", "minimum": 0},
            "end": {"type": "integer", "minimum": 0},
        },
        "required": ["label", "text", "start", "end"],
    },
}
AUDIO_IN = _object("A recording", {"audio": _binary("The recording")}, required=("audio",))
FILE_IN = _object("A file of any kind", {"file": _binary("The file")}, required=("file",))
DOCUMENT_IN = _object(
    "A document",
    {
        "file": _binary("The document"),
        "name": _text("Its name, whose ending says what it is"),
        "mimeType": _text("Its media type, where the name says nothing"),
        "conversionOptions": {"type": "object", "description": "As tomarkdown's"},
    },
    required=("file",),
)
MARKDOWN_OUT = _object(
    "The document as Markdown",
    {
        "kind": _text("What it was"),
        "data": _text("Markdown, or plain text where that was asked for"),
        "images": {
            "type": "array",
            "description": "Pictures in it, base64; `data` holds U+E000, number, U+E001 where each was",
            "items": {"type": "string"},
        },
    },
    required=("kind", "data"),
)
EMBEDDINGS_IN = _object(
    "Texts to embed",
    {
        "text": _ONE_OR_MORE_TEXTS,
        "pooling": _text("How tokens become one vector; results of the two can't be compared", enum=["mean", "cls"], default="mean"),
        "truncate_inputs": _flag("Cut texts that are too long instead of refusing them"),
    },
    required=("text",),
)
EMBEDDINGS_OUT = _object(
    "Vectors in the order of the texts",
    {
        "shape": {"type": "array", "items": {"type": "integer"}},
        "data": {"type": "array", "items": {"type": "array", "items": {"type": ["number", "null"]}}},
        "pooling": {"type": "string"},
    },
    required=("shape", "data"),
)
SPEECH_IN = _object(
    "Recorded speech",
    {
        "audio": _binary("The recording"),
        "source_lang": _text("Language that is spoken"),
        "target_lang": _text("Language to write"),
        "language": _text("Language that is spoken"),
        "task": _text("What to do", enum=["transcribe", "translate"]),
        "initial_prompt": _text("Words that were said before"),
        "prefix": _text("How the text begins"),
        "vad_filter": _flag("Leave out what is no speech"),
        "beam_size": _integer("Ways that are followed at the same time", minimum=1),
        "condition_on_previous_text": _flag("Go on from what was heard before"),
        "no_speech_threshold": _number("How probable silence must be"),
        "compression_ratio_threshold": _number("Text that compresses better repeats itself"),
        "log_prob_threshold": _number("Text that is less probable is heard again"),
        "hallucination_silence_threshold": _number("Seconds of silence in which words are doubted"),
    },
    required=("audio",),
)
SPEECH_OUT = _object(
    "What was said",
    {
        "text": {"type": "string"},
        "word_count": {"type": "integer"},
        "words": {
            "type": "array",
            "items": {"type": "object", "properties": {"word": {"type": "string"}, "start": {"type": "number"}, "end": {"type": "number"}}},
        },
        "vtt": {"type": "string"},
        "segments": {"type": "array", "items": {"type": "object"}},
        "transcription_info": {"type": "object"},
    },
    required=("text",),
)
TRANSLATION_IN = _object(
    "A text to translate",
    {
        "text": _text("The text", minLength=1),
        "source_lang": _text("Its language", default="en"),
        "target_lang": _text("The language wanted"),
    },
    required=("text", "target_lang"),
)
TRANSLATION_OUT = _object("The translation", {"translated_text": {"type": "string"}}, required=("translated_text",))
SUMMARY_IN = _object(
    "A text to shorten",
    {
        "input_text": _text("The text", minLength=1),
        "max_length": _integer("Most tokens of the summary", minimum=1, default=1024),
    },
    required=("input_text",),
)
SUMMARY_OUT = _object("The summary", {"summary": {"type": "string"}}, required=("summary",))
TEXT_TO_IMAGE_IN = _object(
    "What to draw",
    {
        "prompt": _text("What the picture should show", minLength=1),
        "negative_prompt": _text("What it should not"),
        "height": _integer("Pixels", minimum=256, maximum=2048),
        "width": _integer("Pixels", minimum=256, maximum=2048),
        "image": _binary("A picture to begin with"),
        "image_b64": _binary("A picture to begin with"),
        "mask": _binary("Where to paint"),
        "num_steps": _integer("Steps", minimum=1, maximum=20, default=20),
        "steps": _integer("Steps", minimum=1),
        "strength": _number("How far from the picture it may go", minimum=0, maximum=1, default=1),
        "guidance": _number("How closely to follow the prompt", default=7.5),
        "seed": _integer("Seed"),
    },
    required=("prompt",),
)
TEXT_TO_IMAGE_OUT: Object = {"description": "The picture: image/png or image/jpeg as it is, or base64 in `image`"}
IMAGE_TO_TEXT_IN = _object(
    "A picture to describe",
    {
        "image": _binary("The picture"),
        "prompt": _text("What to say of it"),
        "max_tokens": _integer("Most tokens of the answer", minimum=1, default=512),
        "temperature": _number("Randomness", minimum=0, maximum=5),
        "top_p": _number("Share of probability to choose from", minimum=0, maximum=2),
        "top_k": _number("Number of tokens to choose from"),
        "seed": _number("Seed"),
        "repetition_penalty": _number("Against repetition", minimum=0, maximum=2),
        "frequency_penalty": _number("Against frequent words", minimum=-2, maximum=2),
        "presence_penalty": _number("Against words that were there", minimum=-2, maximum=2),
        "raw": _flag("No chat template"),
        "messages": {"type": "array", "description": "A conversation about it"},
    },
    required=("image",),
)
IMAGE_TO_TEXT_OUT = _object("The description", {"description": {"type": "string"}})
TEXT_TO_SPEECH_IN: Object = {
    **_object(
        "A text to say", {"text": _text("The text", minLength=1), "prompt": _text("The text", minLength=1), "lang": _text("Its language")}
    ),
    "anyOf": [{"required": ["text"]}, {"required": ["prompt"]}],
}
TEXT_TO_SPEECH_OUT: Object = {"description": "The sound: audio/mpeg as it is, or base64 in `audio`"}
