"""Violations of a JSON Schema in the words that Workers AI uses.

    oneOf at '/' not met, 0 matches: required properties at '/' are 'prompt', Type mismatch of '/messages/0/content', 'array' not in 'string'

They name fields and rules, never values. What the place takes, with an example where the schema has one, stands behind it for people.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from jsonschema_rs import ValidationError, ValidationErrorKind

from fornada.edge.schema_hints import expected, got, schema_at

MOST = 3
"""Violations told at once. They are made one by one: a long array of wrong elements costs no more than a short one."""
LONGEST = 1000
MOST_NAMES = 200
"""Properties of a schema that a mistyped one is compared with."""
_DEEPEST = 3


def describe(errors: Iterable[ValidationError], schema: Mapping[str, Any]) -> str:
    """One line about the first violations of `schema`."""
    # A wrong type comes first: what else is missing is what the other type would have, and filling it in would mend nothing.
    first = sorted(islice(errors, MOST), key=lambda error: error.instance_path[-1:] != ["type"])
    found = [f"{_one(error, 0)}{_hint(error, schema)}" for error in first]
    text = ", ".join(found) or "the input doesn't match the model's schema"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _one(error: ValidationError, depth: int) -> str:
    place = "/" + "/".join(_segment(part) for part in error.instance_path)
    kind = error.kind
    match kind:
        case ValidationErrorKind.Required():
            return f"required properties at '{place}' are '{kind.property}'"
        case ValidationErrorKind.Type():
            return f"Type mismatch of '{place}', '{_type(error.instance)}' not in {_listed(kind.types)}"
        case ValidationErrorKind.AdditionalProperties() | ValidationErrorKind.UnevaluatedProperties():
            return f"no such properties at '{place}': {_listed(name[:60] for name in kind.unexpected[:5])}"
        case ValidationErrorKind.OneOfNotValid():
            return f"oneOf at '{place}' not met, 0 matches{_inner(kind.context, depth)}"
        case ValidationErrorKind.AnyOf():
            return f"anyOf at '{place}' not met, 0 matches{_inner(kind.context, depth)}"
        case ValidationErrorKind.OneOfMultipleValid():
            return f"oneOf at '{place}' not met, more than one match"
        case ValidationErrorKind.Enum():
            return f"'{place}' must be one of {_listed(_option(option) for option in kind.options[:20])}"
        case ValidationErrorKind.Pattern():
            return f"'{place}' doesn't match the pattern {kind.pattern[:100]}"
        case _:
            return f"'{place}': {error.message[:200]}"


def _hint(error: ValidationError, schema: Mapping[str, Any]) -> str:
    """What the place takes and what it got, in brackets; empty where the schema says no more than the rule itself."""
    *above, _ = error.schema_path or [""]
    place = schema_at(schema, above)
    kind = error.kind
    match kind:
        case ValidationErrorKind.Required():
            takes = expected(schema_at(place, ["properties", kind.property])) or expected({"examples": place.get("examples")})
            return f" ({takes})" if takes else ""
        case ValidationErrorKind.AdditionalProperties() | ValidationErrorKind.UnevaluatedProperties():
            known = list(schema_at(place, ["properties"]))[:MOST_NAMES]
            alike = [name for unexpected in kind.unexpected[:5] for name in difflib.get_close_matches(unexpected[:60], known, n=1)]
            return f" (did you mean {_listed(dict.fromkeys(alike))}?)" if alike else f" (known are {_listed(known[:10])})" if known else ""
        case _:
            takes = expected(place)
            return f" (it takes {takes}; this is {got(error.instance)})" if takes else f" (this is {got(error.instance)})"


def _inner(context: list[list[ValidationError]], depth: int) -> str:
    if depth >= _DEEPEST:
        return ""
    found = list(dict.fromkeys(_one(branch[0], depth + 1) for branch in context if branch))
    return ": " + ", ".join(found[:MOST]) if found else ""


def _segment(part: str | int) -> str:
    return str(part)[:60].replace("~", "~0").replace("/", "~1")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _option(value: object) -> str:
    """A value as JSON has it; a text without its marks."""
    return value if isinstance(value, str) else json.dumps(value)


def _type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, str):
        return "string"
    return "integer" if isinstance(value, int) else "number"
