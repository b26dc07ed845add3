"""Lists in pages, as OpenAI's clients walk through them: `limit` of them after the one whose id is `after`."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from fornada.core.errors import BadRequest
from fornada.edge.calls import Call, Parameter

USUAL, MOST = 20, 10_000
PAGE = (
    Parameter("after", "Id of the last one of the page before"),
    Parameter("limit", "How many", {"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL}),
)


_LIMIT = re.compile(r"[1-9][0-9]{0,5}\Z")


class Named(Protocol):
    """Whatever has an id."""

    @property
    def id(self) -> str: ...


Thing = TypeVar("Thing", bound=Named)


class Wanted(NamedTuple):
    """`after` is empty for the first page."""

    after: str
    limit: int


def wanted_of(call: Call) -> Wanted:
    """Raises BadRequest for a limit that is none."""
    text = call.query.get("limit", "") or str(USUAL)
    if not _LIMIT.match(text) or int(text) > MOST:
        raise BadRequest(f"'limit' must be a number from 1 to {MOST}")
    return Wanted(call.query.get("after", ""), int(text))


async def page_of(found: Sequence[Thing], call: Call, shown: Callable[[Thing], dict[str, Any]]) -> dict[str, Any]:
    """The page that is asked for of all that there are. After an id that isn't there, nothing comes. Raises BadRequest."""
    wanted = wanted_of(call)
    begin = 0
    if wanted.after:
        begin = next((place + 1 for place, each in enumerate(found) if each.id == wanted.after), len(found))
    page = found[begin : begin + wanted.limit]
    return await listed(page, shown, more=begin + len(page) < len(found))


async def listed(page: Sequence[Thing], shown: Callable[[Thing], dict[str, Any]], *, more: bool) -> dict[str, Any]:
    """A page as it is answered. Others get their turn between two of its things: each may have 50,000 items to be counted."""
    data = []
    for each in page:
        data.append(shown(each))
        await asyncio.sleep(0)
    ids = [each.id for each in page]
    return {
        "object": "list",
        "data": data,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": more,
    }
