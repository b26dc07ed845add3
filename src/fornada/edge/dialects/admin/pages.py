"""`/`, `/docs` and `/openapi.json`: what this is, for people and for programs. Nothing is loaded from elsewhere."""

from collections.abc import Sequence
from importlib.resources import files

import msgspec

import fornada
from fornada.core.keys import Role
from fornada.edge.calls import Call, Operation, Reply, Route, json_reply
from fornada.edge.dialects.admin.openapi import describe
from fornada.edge.problems import Header, Style

HTML = "text/html; charset=utf-8"
_OWN_SCRIPTS_ONLY: tuple[Header, ...] = (
    (b"content-security-policy", b"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"),
    (b"x-content-type-options", b"nosniff"),
)
_ANSWER = {"type": "object", "properties": {name: {"type": "string"} for name in ("name", "version", "docs", "openapi")}}


def page_routes(described: Sequence[Route]) -> list[Route]:
    """The pages; they describe `described` and themselves."""
    pages = _Pages()
    own = [
        Route("/", Style.SUPERSET, {"GET": Operation("getRoot", "What this is", _ANSWER, pages.root, Role.NOBODY)}),
        Route(
            "/docs",
            Style.SUPERSET,
            {"GET": Operation("getDocs", "This description as a page", {"type": "string"}, pages.docs, Role.NOBODY, answer_type=HTML)},
        ),
        Route(
            "/openapi.json",
            Style.SUPERSET,
            {"GET": Operation("getOpenapi", "This description", {"type": "object"}, pages.openapi, Role.NOBODY)},
        ),
    ]
    pages.describe([*described, *own])
    return own


class _Pages:
    """Handlers."""

    def __init__(self) -> None:
        self._page = files("fornada.edge.dialects.admin").joinpath("docs.html").read_bytes()
        self._openapi = b""

    def describe(self, routes: Sequence[Route]) -> None:
        self._openapi = msgspec.json.encode(describe(routes))

    async def root(self, call: Call) -> Reply:
        if b"text/html" in (call.facts.get(b"accept") or b""):
            return await self.docs(call)
        return json_reply({"name": "fornada", "version": fornada.__version__, "docs": "/docs", "openapi": "/openapi.json"})

    async def docs(self, call: Call) -> Reply:
        return Reply(self._page, HTML, headers=_OWN_SCRIPTS_ONLY)

    async def openapi(self, call: Call) -> Reply:
        return Reply(self._openapi)
