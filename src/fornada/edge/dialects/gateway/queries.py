"""Queries for logs, out of a URL's parameters."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.ports_gateway import FILTERED, ORDERED, Comparison, Filter, LogQuery, Value
from fornada.edge.calls import Parameter
from fornada.edge.dialects.gateway.times import seconds_of

USUAL_PAGE, MOST_PAGE = 20, 100
MOST_PAGES = 10**9
MOST_FILTERS, MOST_VALUES = 20, 50
USUAL_REMOVED = MOST_REMOVED = 10_000
_TEXTS = ("model", "provider", "model_type", "request_content_type", "response_content_type")
_TRUTHS = ("success", "cached")
_RANGES = {"cost": "cost", "duration": "duration", "tokens_in": "tokens_in", "tokens_out": "tokens_out", "total_tokens": "tokens"}
_PIECES = re.compile(r"filters(?:\[(\d*)\])?(?:\[(key|operator|value)\](?:\[\d*\])?|\.(key|operator|value))\Z")
_OPERATORS = tuple(each for each in Comparison if each not in (Comparison.LEAST, Comparison.MOST))
_ABSENT = ("authentication", "wholesale", "compatibilityMode", "dlp_action")
"""Fields of Cloudflare's logs that no log of a node has."""


def read_page(query: Mapping[str, str], *, usual: int = USUAL_PAGE, most: int = MOST_PAGE) -> tuple[int, int]:
    """Which page, and how long pages are. Raises BadRequest."""
    return _whole(query, "page", 1, 1, MOST_PAGES), _whole(query, "per_page", usual, 1, most)


def read_query(query: Mapping[str, str], raw: bytes) -> tuple[LogQuery, int]:
    """The page of logs that a URL asks for, and its number. `raw`: the same query as it came. Raises BadRequest, which names the parameter."""
    page, per_page = read_page(query)
    ways = [_choice(name, query[name], ("asc", "desc")) for name in ("order_by_direction", "direction") if query.get(name)]
    found = LogQuery(
        filters=tuple(_filters(query, raw)),
        search=query.get("search", ""),
        order_by=_choice("order_by", query.get("order_by") or "created_at", ORDERED),
        descending=ways[:1] != ["asc"],
        offset=(page - 1) * per_page,
        limit=per_page,
    )
    return found, page


def read_removal(query: Mapping[str, str], raw: bytes) -> LogQuery:
    """Which logs are to go: by default all, the oldest first. Raises BadRequest."""
    return LogQuery(
        filters=tuple(_filters(query, raw)),
        order_by=_choice("order_by", query.get("order_by") or "created_at", ORDERED),
        descending=_choice("order_by_direction", query.get("order_by_direction") or "asc", ("asc", "desc")) == "desc",
        limit=_whole(query, "limit", USUAL_REMOVED, 1, MOST_REMOVED),
    )


def _filters(query: Mapping[str, str], raw: bytes) -> list[Filter]:
    found = [Filter(name, Comparison.EQ, (query[name],)) for name in _TEXTS if query.get(name)]
    found += [Filter(name, Comparison.EQ, (_truth(name, query[name]),)) for name in _TRUTHS if query.get(name)]
    if query.get("feedback"):
        found.append(Filter("feedback", Comparison.EQ, (_number("feedback", query["feedback"]),)))
    for name, comparison in (("start_date", Comparison.LEAST), ("end_date", Comparison.MOST)):
        if query.get(name):
            found.append(Filter("created_at", comparison, (seconds_of(name, query[name]),)))
    for prefix, comparison in (("min_", Comparison.LEAST), ("max_", Comparison.MOST)):
        for name, key in _RANGES.items():
            if query.get(prefix + name):
                found.append(Filter(key, comparison, (_number(prefix + name, query[prefix + name]),)))
    return found + [_filter(each) for each in _given(query, raw)]


def _given(query: Mapping[str, str], raw: bytes) -> list[dict[str, Any]]:
    """`filters` as JSON, or piece by piece as SDKs write lists of objects: filters.key=…&filters.operator=…&filters.value=…, or in brackets."""
    if query.get("filters"):
        try:
            found = msgspec.json.decode(query["filters"], type=list[dict[str, Any]])
        except (msgspec.MsgspecError, RecursionError):
            raise BadRequest("'filters' must be a JSON list of objects with 'key', 'operator' and 'value'") from None
    else:
        pieces: dict[str, dict[str, list[str]]] = {}
        if b"filters" in raw:
            for name, value in parse_qsl(raw.decode("ascii", "replace"), keep_blank_values=True):
                if piece := _PIECES.match(name):
                    pieces.setdefault(piece[1] or "", {}).setdefault(piece[2] or piece[3], []).append(value)
        found = [each for piece in pieces.values() for each in _put_together(piece)]
    if len(found) > MOST_FILTERS:
        raise BadRequest(f"'filters' has at most {MOST_FILTERS} entries")
    return found


def _put_together(pieces: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """Lists of keys, operators and values that came without saying which belong together."""
    keys, operators, values = (pieces.get(name, []) for name in ("key", "operator", "value"))
    if len(keys) == 1 and len(operators) == 1:
        return [{"key": keys[0], "operator": operators[0], "value": list(values)}]
    if not len(keys) == len(operators) == len(values):
        raise BadRequest("'filters': which value belongs to which key nobody can tell; send them as JSON: filters=[{...}]")
    return [{"key": key, "operator": operator, "value": [value]} for key, operator, value in zip(keys, operators, values, strict=True)]


def _filter(given: Mapping[str, Any]) -> Filter:
    key = given.get("key")
    if key in _ABSENT:
        raise BadRequest(f"'filters': no log of this node has a '{key}'")
    key = _choice("filters.key", key, FILTERED)
    operator = Comparison(_choice("filters.operator", given.get("operator"), _OPERATORS))
    value = given.get("value")
    values = value if isinstance(value, list) else [value]
    if len(values) > MOST_VALUES or not all(isinstance(each, str | int | float | None) for each in values):
        raise BadRequest(f"'filters.value' must be at most {MOST_VALUES} texts, numbers, booleans or nulls")
    return Filter(key, operator, tuple(_as_field(key, each) for each in values))


_NUMERIC = ("status_code", "cost", "tokens", "tokens_in", "tokens_out", "duration", "feedback")


def _as_field(key: str, value: Value) -> Value:
    """In brackets everything is a text."""
    if not isinstance(value, str):
        return value
    if key in _TRUTHS:
        return _truth(key, value)
    if key in _NUMERIC:
        return _number(key, value)
    return seconds_of("filters.value", value) if key == "created_at" else value


def _whole(query: Mapping[str, str], name: str, usual: int, least: int, most: int) -> int:
    text = query.get(name, "").strip()
    if not text:
        return usual
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or not least <= int(text) <= most:
        raise BadRequest(f"'{name}' must be a whole number from {least} to {most}")
    return int(text)


def _number(name: str, text: str) -> float:
    if not re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", text):
        raise BadRequest(f"'{name}' must be a number")
    return float(text)


def _truth(name: str, text: str) -> bool:
    return _choice(name, text.lower(), ("true", "false")) == "true"


def _choice(name: str, value: object, among: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in among:
        raise BadRequest(f"'{name}' must be one of {', '.join(among)}")
    return value


_INTEGER = {"type": "integer", "minimum": 1}
PAGES = (
    Parameter("page", "Page, from 1; those after the last are empty", {**_INTEGER, "default": 1}),
    Parameter("per_page", "How many on a page", {**_INTEGER, "maximum": MOST_PAGE, "default": USUAL_PAGE}),
)
_FILTERS = Parameter("filters", "JSON list of {key, operator: eq | neq | contains | lt | gt, value: [...]}; all must hold")
LOGS_QUERY = (
    *PAGES,
    Parameter("search", "Part of an id, a model, a path, an event's id or of metadata"),
    Parameter("order_by", "By which field", {"enum": list(ORDERED), "default": "created_at"}),
    Parameter("order_by_direction", "Which way", {"enum": ["asc", "desc"], "default": "desc"}),
    Parameter("direction", "The same", {"enum": ["asc", "desc"]}),
    *(Parameter(name, "Exactly so") for name in _TEXTS),
    *(Parameter(name, "Exactly so", {"enum": ["true", "false"]}) for name in _TRUTHS),
    Parameter("start_date", "Not before", {"type": "string", "format": "date-time"}),
    Parameter("end_date", "Not after", {"type": "string", "format": "date-time"}),
    Parameter("feedback", "Exactly so", {"type": "number"}),
    *(Parameter(f"{way}_{name}", "Bound", {"type": "number"}) for way in ("min", "max") for name in _RANGES),
    _FILTERS,
)
REMOVAL_QUERY = (
    _FILTERS,
    Parameter("order_by", "Which go first", {"enum": list(ORDERED), "default": "created_at"}),
    Parameter("order_by_direction", "Which way", {"enum": ["asc", "desc"], "default": "asc"}),
    Parameter("limit", "How many at most", {**_INTEGER, "maximum": MOST_REMOVED, "default": USUAL_REMOVED}),
)
