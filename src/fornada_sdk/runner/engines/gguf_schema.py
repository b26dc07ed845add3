"""A JSON Schema that llama.cpp may make a grammar of: not every one ends, and what a few lines can ask for has to stay small.

It takes most words of a schema, and passes over those that no grammar can hold (`not`, `multipleOf`, `uniqueItems`, …): the edge checks
the answer by the whole schema.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fornada_sdk.api import BadRequest

SCHEMA_BYTES = 32 * 1024
SCHEMA_VALUES = 1500
SCHEMA_DEPTH = 100
"""A schema becomes a grammar that is tried against the whole vocabulary at each token: an `enum` of 5000 texts took 38 s for one."""
_BOUNDS = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"), ("minimum", "maximum"))
PATTERN_PARTS, PATTERN_OPTIONS = 2000, 60
_REPEATED = re.compile(r"\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}")
_ELEMENT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_LONGEST_NUMBER = 9
SCHEMA_WRITTEN_OUT = 10_000
"""Values, with each reference in its place: definitions of which each names the next one twice make 2^40 out of forty lines."""


def checked(schema: Any, field: str) -> dict[str, Any]:
    """`schema`, the caller's own. Raises BadRequest that names `field` and what is wrong."""
    if not isinstance(schema, dict):
        raise BadRequest(f'"{field}" must hold a JSON Schema, an object')
    if len(json.dumps(schema)) > SCHEMA_BYTES or _values(schema, SCHEMA_DEPTH) > SCHEMA_VALUES:
        raise BadRequest(f'the schema in "{field}" is too large: up to {SCHEMA_BYTES} bytes and {SCHEMA_VALUES} values are taken')
    references = _References(schema)
    try:
        written_out = references.of(schema)
    except RecursionError:
        raise BadRequest(f'the schema in "{field}" is too large: its references lie too deep in one another') from None
    if written_out > SCHEMA_WRITTEN_OUT:
        raise BadRequest(
            f'the schema in "{field}" is too large: it has more than {SCHEMA_WRITTEN_OUT} values with its references written out'
        )
    if references.endless:
        raise BadRequest(f'the schema in "{field}" can\'t be met: its $ref "{references.endless[:200]}" leads back to itself')
    if contradiction := _contradiction(schema):
        raise BadRequest(f'the schema in "{field}" can\'t be met: {contradiction}')
    return schema


def _contradiction(value: Any) -> str:
    """Bounds that nothing meets, in words: llama.cpp counts from the lower one up to the upper one, and never arrives. Empty: none."""
    if isinstance(value, list):
        return next(filter(None, map(_contradiction, value)), "")
    if not isinstance(value, dict):
        return ""
    for least, most in _BOUNDS:
        low, high = value.get(least), value.get(most)
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
            return f"{least} is {low}, and {most} is {high}"
    pattern = value.get("pattern")
    if isinstance(pattern, str) and (why := _endless(pattern)):
        return why
    return next(filter(None, map(_contradiction, value.values())), "")


def _endless(pattern: str) -> str:
    """What of a regular expression would keep llama.cpp busy for minutes or for ever, in words: it writes repetitions out, and follows all
    ways through parts that may be left out at once. Empty: nothing."""
    sums, last, at = [(0, 0)], (0, 0), 0
    closed = pattern.rfind("]")
    while at < len(pattern):
        repeated = _REPEATED.match(pattern, at)
        parts, options = sums[-1]
        if repeated:
            low, high = repeated[1], repeated[2] if repeated[2] else repeated[1]
            if len(low) > _LONGEST_NUMBER or len(high) > _LONGEST_NUMBER or int(low) > int(high):
                return f"its pattern repeats {{{low[:20]},{high[:20]}}} times"
            sums[-1] = parts + last[0] * (int(high) - 1), options + last[1] * (int(high) - 1)
            last = last[0] * int(high), last[1] * int(high)
            at = repeated.end()
        elif pattern[at] == "(":
            sums.append((0, 0))
            if len(sums) > SCHEMA_DEPTH:
                return f"its pattern has more than {SCHEMA_DEPTH} brackets in each other"
            at += 1
        elif pattern[at] == ")" and len(sums) > 1:
            last = sums.pop()
            sums[-1] = sums[-1][0] + last[0], sums[-1][1] + last[1]
            at += 1
        elif pattern[at] in "?*+":
            last = last[0], last[1] + 1
            sums[-1] = parts, options + 1
            at += 1
        else:
            last = 1, 0
            sums[-1] = parts + 1, options
            element = _ELEMENT.match(pattern, at) if at < closed or pattern[at] == "\\" else None
            after = element.end() if element else at + 1
            if pattern[at] == "[" and after == at + 1:
                closed = -1  # nothing closes what is opened from here on: looking again each time would take long
            at = after
        if sums[-1][0] > PATTERN_PARTS or sums[-1][1] > PATTERN_OPTIONS:
            most = f"{PATTERN_PARTS} parts, or {PATTERN_OPTIONS} of ?, * and +"
            return f"its pattern has more than {most}, with its repetitions written out"
    return ""


def _values(value: Any, depth: int) -> int:
    if depth == 0:
        return SCHEMA_VALUES + 1
    if isinstance(value, dict):
        return 1 + sum(_values(each, depth - 1) for each in value.values())
    if isinstance(value, list):
        return 1 + sum(_values(each, depth - 1) for each in value)
    return 1


class _References:
    """Counts the values of a schema with each reference in its place; one that leads back to where it stands counts once."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.endless = ""
        """A reference behind which there are only references, back to itself."""
        self._root = root
        self._known: dict[str, int] = {}
        self._open: list[str] = []

    def of(self, value: Any) -> int:
        """At most a little more than may be."""
        if isinstance(value, list):
            return min(1 + sum(map(self.of, value)), SCHEMA_WRITTEN_OUT + 1)
        if not isinstance(value, dict):
            return 1
        reference = value.get("$ref")
        count = 1 + sum(self.of(each) for name, each in value.items() if name not in ("$defs", "definitions"))
        if isinstance(reference, str):
            count += self._target(reference)
        return min(count, SCHEMA_WRITTEN_OUT + 1)

    def _target(self, reference: str) -> int:
        if reference in self._open:
            return 1
        if reference not in self._known:
            self._open.append(reference)
            target = self._found(reference)
            if self._leads_back(target):
                self.endless = self.endless or reference
            self._known[reference] = self.of(target)
            self._open.pop()
        return self._known[reference]

    def _leads_back(self, target: Any) -> bool:
        seen = set()
        while isinstance(target, dict) and isinstance(reference := target.get("$ref"), str):
            if reference in seen:
                return True
            seen.add(reference)
            target = self._found(reference)
        return False

    def _found(self, reference: str) -> Any:
        """What it names; None for what isn't there, which llama.cpp refuses by itself."""
        value: Any = self._root
        for part in reference.split("/")[1:] if reference.startswith("#") else ("",):
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and part.isdecimal() and len(part) < _LONGEST_NUMBER:
                value = dict(enumerate(value)).get(int(part))
            else:
                value = value.get(part) if isinstance(value, dict) else None
        return value
