"""Responses that are kept: `GET` and `DELETE /v1/responses/{id}`, and the items that one was asked with."""

from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import BadRequest, DiskFull, UnknownResponse
from fornada.core.keys import Role
from fornada.core.ports import Clock
from fornada.core.responses import KeptResponse, ResponseStore
from fornada.edge.auth import account_of
from fornada.edge.calls import Call, Operation, Parameter, Reply, Route, json_reply
from fornada.edge.dialects.openai.pages import PAGE, page_of
from fornada.edge.dialects.openai.responses.descriptions import DELETED, ITEMS, RESPONSE
from fornada.edge.problems import Style

KEPT_S = 30 * 86400.0
MOST, MOST_BYTES = 4096, 64 * 1024 * 1024
"""Of one account: beyond them its oldest are forgotten."""
_ORDER = Parameter("order", "desc: the newest first, as without it", {"enum": ["asc", "desc"]})


def response_routes(base: str, suffix: str, *, responses: ResponseStore, clock: Clock) -> list[Route]:
    """Below `base`. `suffix` tells the operations of two bases apart."""
    desk = _Desk(responses, clock)
    missing = (UnknownResponse,)
    return [
        Route(
            f"{base}/responses/{{id}}",
            Style.SUPERSET,
            {
                "GET": Operation(
                    f"getResponse{suffix}", "A response that was stored", RESPONSE, desk.one, Role.USER, errors=(*missing, BadRequest)
                ),
                "DELETE": Operation(
                    f"deleteResponse{suffix}", "Forget a response", DELETED, desk.remove, Role.USER, errors=(*missing, DiskFull)
                ),
            },
        ),
        Route(
            f"{base}/responses/{{id}}/input_items",
            Style.SUPERSET,
            {
                "GET": Operation(
                    f"listInputItems{suffix}",
                    "What a response was asked with",
                    ITEMS,
                    desk.items,
                    Role.USER,
                    (*PAGE, _ORDER),
                    errors=(*missing, BadRequest),
                )
            },
        ),
    ]


class _Item(NamedTuple):
    """One of a response's input."""

    id: str
    shown: dict[str, Any]


class _Desk:
    """Handlers."""

    def __init__(self, responses: ResponseStore, clock: Clock) -> None:
        self._responses = responses
        self._clock = clock

    async def one(self, call: Call) -> Reply:
        if call.query.get("stream") == "true":
            raise BadRequest("'stream': a response that is kept isn't told as events again")
        return Reply(body=self._found(call).body)

    async def remove(self, call: Call) -> Reply:
        id = call.parameters["id"]
        if not self._responses.remove_response(id, account_of(call.account)):
            raise _unknown(id)
        return json_reply({"id": id, "object": "response", "deleted": True})

    async def items(self, call: Call) -> Reply:
        given = msgspec.json.decode(self._found(call).input, type=list[dict[str, Any]])
        found = [_Item(item["id"], item) for item in given]
        order = call.query.get("order") or "desc"
        if order not in ("asc", "desc"):
            raise BadRequest("'order' must be asc or desc")
        return json_reply(await page_of(found if order == "asc" else found[::-1], call, lambda each: each.shown))

    def _found(self, call: Call) -> KeptResponse:
        id = call.parameters["id"]
        found = self._responses.response(id, account_of(call.account), since=self._clock.wall() - KEPT_S)
        if found is None:
            raise _unknown(id)
        return found


def _unknown(id: str) -> UnknownResponse:
    return UnknownResponse(f"no such response '{id[:64]}': it wasn't stored, or has been forgotten")
