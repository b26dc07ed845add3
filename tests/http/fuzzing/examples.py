"""Values that a JSON Schema allows, small ones: a seed from which mutations begin."""

import base64
import io
import random
from typing import Any

from PIL import Image

Schema = dict[str, Any]

WORDS = ("a", "hello", "user", "en", "0.5", "@fuzz/none", "data:image/png;base64,AAAA", "ü €", "")


class NoExample(ValueError):
    """This generator doesn't know a value for the schema."""


def example(schema: Any, rng: random.Random, *, depth: int = 0) -> Any:
    """One value. Optional properties come now and then, never deeper than six levels. Raises NoExample."""
    if schema is True or schema == {} or not isinstance(schema, dict):
        return rng.choice([1, "x", None, [1], {"a": 1}])
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    for word in ("oneOf", "anyOf", "allOf"):
        if word in schema:
            rest = {name: value for name, value in schema.items() if name != word}
            chosen = schema[word] if word == "allOf" else [rng.choice(schema[word])]
            return example(_merged([rest, *chosen]), rng, depth=depth)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = rng.choice(kind)
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else rng.choice(["string", "integer"])
    maker = _MAKERS.get(kind)
    if maker is None:
        raise NoExample(str(kind))
    return maker(schema, rng, depth)


def _merged(schemas: list[Schema]) -> Schema:
    found: Schema = {}
    for schema in schemas:
        for name, value in schema.items():
            if name == "properties":
                found[name] = {**found.get(name, {}), **value}
            elif name == "required":
                found[name] = [*found.get(name, []), *value]
            else:
                found[name] = value
    return found


def _object(schema: Schema, rng: random.Random, depth: int) -> Any:
    required = schema.get("required", [])
    chance = 0.3 if depth < 3 else 0.0
    properties = {name: value for name, value in schema.get("properties", {}).items() if name in required or rng.random() < chance}
    for name in required:
        properties.setdefault(name, True)
    if depth > 6 and not required:
        return {}
    return {name: example(value, rng, depth=depth + 1) for name, value in properties.items()}


def _array(schema: Schema, rng: random.Random, depth: int) -> Any:
    least = schema.get("minItems", 0)
    count = max(least, min(schema.get("maxItems", 2), rng.randrange(3) if depth < 4 else 0))
    return [example(schema.get("items", True), rng, depth=depth + 1) for _ in range(count)]


def _string(schema: Schema, rng: random.Random, depth: int) -> Any:
    if schema.get("format") == "binary" or schema.get("contentEncoding") == "base64":
        return base64.b64encode(PNG).decode()
    text = rng.choice(WORDS)
    return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength", 1000)]


def _integer(schema: Schema, rng: random.Random, depth: int) -> Any:
    least = int(schema.get("minimum", 0))
    return rng.randint(least, int(min(schema.get("maximum", least + 8), least + 64)))


def _number(schema: Schema, rng: random.Random, depth: int) -> Any:
    least = schema.get("minimum", 0)
    return rng.uniform(least, schema.get("maximum", least + 1))


_MAKERS = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": lambda _schema, rng, _depth: rng.random() < 0.5,
    "null": lambda _schema, _rng, _depth: None,
}


def _png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (2, 2), (200, 10, 10)).save(file, "PNG")
    return file.getvalue()


PNG = _png()
