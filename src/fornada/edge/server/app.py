"""The starlette application of the cold routes, made from the dialects' tables."""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, compile_path
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from fornada.core.errors import FornadaError, InternalFault, MethodNotAllowed
from fornada.core.keys import Role
from fornada.core.names import AccountId
from fornada.edge.auth import Caller
from fornada.edge.calls import DEFAULT_BODY, Call, Operation, Reply, Route
from fornada.edge.problems import Header, Problem, Style, problem, unrouted
from fornada.edge.server.asgi import EXTENSION, ColdExchange
from fornada.edge.targets import decoded, query_of

_ENVELOPES = re.compile(r"/client/v4(?!/accounts/[^/]+/ai/v1(?:/|\Z))(?:/|\Z)")
_TEXTS = re.compile(r"/v2(?:/|\Z)")
_BELOW_ACCOUNT = re.compile(r"/client/v4/accounts/[^/]+/.")


class Routes:
    """The table of the cold routes: what the bridge and the application ask of it."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = [(compile_path(route.pattern)[0], route) for route in routes]

    def limit(self, method: str, path: str) -> int:
        for expression, route in self._routes:
            if expression.match(path.rstrip("/") or "/"):
                operation = route.operations.get(method)
                return operation.body_limit if operation else DEFAULT_BODY
        return DEFAULT_BODY

    def admit(self, method: str, path: str, caller: Caller) -> None:
        """Before anything is read of the body. What isn't there is told to whoever has a key, and to nobody else."""
        if method == "OPTIONS":  # browsers ask it without credentials
            return
        for expression, route in self._routes:
            if found := expression.match(path.rstrip("/") or "/"):
                operation = route.operations.get("GET" if method == "HEAD" else method)
                caller.require(operation.needs if operation else Role.USER)
                if account := found.groupdict().get("account"):
                    caller.acting_for(AccountId(decoded(account)))
                return
        caller.require(Role.USER)

    def action(self, method: str, path: str) -> str:
        """The operation's id where it changes what the node or a model of it is to be; else empty."""
        for expression, route in self._routes:
            if expression.match(path.rstrip("/") or "/"):
                operation = route.operations.get(method)
                return operation.id if operation and operation.needs >= Role.DEPLOYER else ""
        return ""

    def style(self, path: str) -> Style:
        return _style(path)


def _style(path: str) -> Style:
    if path.startswith("/binding/"):
        return Style.BINDING
    if _TEXTS.match(path):
        return Style.TEXT
    return Style.ENVELOPE if _ENVELOPES.match(path) else Style.SUPERSET


def application(routes: Sequence[Route]) -> Starlette:
    """An ASGI application. It may only be called through server.asgi: it reads what that puts into the scope."""
    mounted: list[BaseRoute] = [StarletteRoute(route.pattern, endpoint=_Endpoint(route)) for route in routes]
    app = Starlette(routes=mounted, exception_handlers={Exception: _failed})
    app.router.redirect_slashes = False
    # A route for every path would miss what is none, such as the target "*".
    app.router.default = _Unrouted()
    return app


class _Endpoint:
    """One route as an ASGI application."""

    def __init__(self, route: Route) -> None:
        self._route = route
        methods = set(route.operations) | {"OPTIONS"} | ({"HEAD"} if "GET" in route.operations else set())
        self._allow: tuple[Header, ...] = ((b"allow", ", ".join(sorted(methods)).encode()),)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _exchange(scope)
        route = self._route
        if exchange.method == "OPTIONS":
            await _respond(Reply(status=204, headers=() if exchange.facts.preflight else self._allow), scope, receive, send)
            return
        operation = route.operations.get("GET" if exchange.method == "HEAD" else exchange.method)
        try:
            if operation is None or operation.handler is None:
                raise MethodNotAllowed(f"this route doesn't take {exchange.method}")
            reply = await operation.handler(self._call(scope, exchange, operation))
        except FornadaError as error:
            headers = self._allow if isinstance(error, MethodNotAllowed) else ()
            reply = _as_reply(problem(error, route.style, exchange.trace_id, headers=headers))
        await _respond(reply, scope, receive, send)

    def _call(self, scope: Scope, exchange: ColdExchange, operation: Operation) -> Call:
        return Call(
            method=exchange.method,
            path=exchange.path,
            parameters={name: decoded(value) for name, value in scope["path_params"].items()},
            query=query_of(exchange.query, once=operation.query_names),
            raw_query=exchange.query,
            facts=exchange.facts,
            body=exchange.body(),
            request_id=exchange.request_id,
            trace_id=exchange.trace_id,
        )


class _Unrouted:
    """Everything else."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _exchange(scope)
        if exchange.facts.preflight or (exchange.method, exchange.path) == ("OPTIONS", "*"):
            await _respond(Reply(status=204), scope, receive, send)
            return
        style = _style(exchange.path)
        below = bool(_BELOW_ACCOUNT.match(exchange.path))
        found = unrouted(exchange.path, below_account=below, style=style, trace_id=exchange.trace_id)
        await _respond(_as_reply(found), scope, receive, send)


def _exchange(scope: Scope) -> ColdExchange:
    return cast(ColdExchange, scope["extensions"][EXTENSION])


def _as_reply(found: Problem) -> Reply:
    headers = (*found.headers, (b"connection", b"close")) if found.close else found.headers
    return Reply(body=found.body, status=found.status, headers=headers)


async def _respond(reply: Reply, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reply.headers}
    if reply.stream is None:
        if reply.body or reply.status == 200:
            headers["content-type"] = reply.type
        await Response(reply.body, reply.status, headers)(scope, receive, send)
        return
    headers["content-type"] = reply.type
    # A generator that is left in the middle would otherwise hold its subscription until it is collected.
    async with aclosing(cast("_Closable", reply.stream)):
        await StreamingResponse(reply.stream, reply.status, headers)(scope, receive, send)


class _Closable:
    """What aclosing needs; generators have it."""

    aclose: Callable[[], Awaitable[object]]


async def _failed(request: Request, error: Exception) -> Response:
    # starlette raises the error again afterwards: the bridge logs it.
    exchange = _exchange(request.scope)
    found = problem(InternalFault("the server failed; its log says more"), _style(exchange.path), exchange.trace_id)
    return Response(found.body, found.status, {"content-type": "application/json"})
