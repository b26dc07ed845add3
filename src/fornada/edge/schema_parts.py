"""The words that JSON Schemas of inputs and outputs are written in.

Fields that aren't named are let through: real clients send more than a contract lists. `null` counts as absent wherever a field
isn't required, since clients fill in what the user left out with null.
"""

from typing import Any

Object = dict[str, Any]


def fields(description: str, properties: Object, *, required: tuple[str, ...] = ()) -> Object:
    """An object of these properties; those that aren't required may be null."""
    shown = {name: schema if name in required else nullable(schema) for name, schema in properties.items()}
    found: Object = {"type": "object", "description": description, "properties": shown, "additionalProperties": True}
    if required:
        found["required"] = list(required)
    return found


def nullable(schema: Object) -> Object:
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema:
        return {**schema, "type": [kind, "null"]}
    if isinstance(kind, list):
        return schema if "null" in kind else {**schema, "type": [*kind, "null"]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


def text(description: str, **more: Any) -> Object:
    return {"type": "string", "description": description, **more}


def number(description: str, **more: Any) -> Object:
    return {"type": "number", "description": description, **more}


def integer(description: str, **more: Any) -> Object:
    return {"type": "integer", "description": description, **more}


def flag(description: str) -> Object:
    return {"type": "boolean", "description": description}
