"""What a place of a schema takes, in a few words with an example, and what stands there instead: for people who mend an input.

    an integer from 1 to 10, for example 3          a string of 5 characters

A schema's own words and numbers are shown, of the input nothing but its kind and size.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST = 120
"""Of an example or a description."""
_KINDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def schema_at(schema: Any, path: Sequence[str | int]) -> Mapping[str, Any]:
    """The subschema at a path of keywords and names; empty where there is none."""
    for step in path:
        try:
            schema = schema[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return schema if isinstance(schema, Mapping) else {}


def expected(schema: Mapping[str, Any]) -> str:
    """What the schema takes; empty where it says nothing that fits in a few words."""
    found = _kind(schema)
    example = _example(schema)
    description = schema.get("description")
    if isinstance(description, str):
        if not found:
            found = _cut(description)
        elif "enum" in schema or "const" in schema or schema.get("type") == "null":
            found += f": {_cut(description)}"  # why these alone, or that it isn't served at all: no other bound says so
    return f"{found}, for example {example}" if found and example else found or (f"something like {example}" if example else "")


def got(value: object) -> str:
    """The kind and size of what was sent."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return f"a string of {_count(len(value), 'character')}"
        case list():
            return f"an array of {_count(len(value), 'item')}"
        case dict():
            return f"an object of {_count(len(value), 'field')}"
        case int():
            return "an integer"
        case _:
            return "a number"


def _kind(schema: Mapping[str, Any]) -> str:
    options = schema.get("enum")
    if isinstance(options, list) and options:
        more = ", …" if len(options) > 8 else ""
        return f"one of {', '.join(map(_shown, options[:8]))}{more}"
    if "const" in schema:
        return _shown(schema["const"])
    types = schema.get("type")
    names = [types] if isinstance(types, str) else types if isinstance(types, list) else []
    kinds = [_KINDS[name] for name in names if isinstance(name, str) and name in _KINDS]
    return f"{' or '.join(kinds)}{_bounds(schema, names)}" if kinds else ""


def _bounds(schema: Mapping[str, Any], types: list[Any]) -> str:
    if "integer" in types or "number" in types:
        low, high = schema.get("minimum"), schema.get("maximum")
        return _range(low, high, "", above=schema.get("exclusiveMinimum"), below=schema.get("exclusiveMaximum"))
    if "string" in types:
        pattern = schema.get("pattern")
        form = schema.get("format")
        more = f" in the form {_cut(form)}" if isinstance(form, str) else f" matching {_cut(pattern)}" if isinstance(pattern, str) else ""
        return _range(schema.get("minLength"), schema.get("maxLength"), "character") + more
    if "array" in types:
        return _range(schema.get("minItems"), schema.get("maxItems"), "item")
    return ""


def _range(low: object, high: object, unit: str, *, above: object = None, below: object = None) -> str:
    found = []
    if _is_number(low) and _is_number(high):
        found.append(f"of {low} to {_counted(high, unit)}" if unit else f"from {low} to {high}")
    elif _is_number(low):
        found.append(f"of at least {_counted(low, unit)}")
    elif _is_number(high):
        found.append(f"of at most {_counted(high, unit)}")
    found += [f"above {above}"] * _is_number(above) + [f"below {below}"] * _is_number(below)
    return f" {' and '.join(found)}" if found else ""


def _counted(number: object, unit: str) -> str:
    return f"{number} {unit}{'s' * (number != 1)}" if unit else str(number)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _example(schema: Mapping[str, Any]) -> str:
    examples = schema.get("examples")
    if isinstance(examples, list) and examples:
        return _shown(examples[0])
    for word in ("example", "default"):
        if schema.get(word) is not None:
            return _shown(schema[word])
    return ""


def _shown(value: object) -> str:
    try:
        return _cut(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return ""


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
