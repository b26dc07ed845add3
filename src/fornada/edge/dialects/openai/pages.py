"""Lists in pages, as OpenAI's clients walk through them: `limit` of them after the one whose id is `after`."""

from collections.abc import Sequence
from typing import Any

from fornada.core.errors import BadRequest
from fornada.edge.calls import Call, Parameter

USUAL, MOST = 20, 10_000
PAGE = (
    Parameter("after", "Id of the last one of the page before"),
    Parameter("limit", "How many", {"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL}),
)


def page_of(found: Sequence[dict[str, Any]], call: Call) -> dict[str, Any]:
    """Raises BadRequest for a limit that is none. After an id that isn't there, nothing comes."""
    after, text = call.query.get("after", ""), call.query.get("limit", "") or str(USUAL)
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise BadRequest(f"'limit' must be a number from 1 to {MOST}")
    begin = 0
    if after:
        begin = next((place + 1 for place, each in enumerate(found) if each["id"] == after), len(found))
    page = found[begin : begin + int(text)]
    ids = [each["id"] for each in page]
    return {
        "object": "list",
        "data": page,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": begin + len(page) < len(found),
    }
