"""`/client/v4/accounts/{account}/ai-gateway/…`: gateways and their logs, for their owners."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fornada.core.errors import BadRequest, Conflict, DiskFull, RateLimited, Unauthorized, UnknownGateway, UnknownLog
from fornada.core.gateway import WORKERS_AI, GatewayId, Log, LogId
from fornada.core.keys import Role
from fornada.core.names import AccountId
from fornada.core.ports_gateway import GatewaysPort
from fornada.edge.auth import account_of
from fornada.edge.calls import Call, Handler, Operation, Parameter, Reply, Route, json_reply
from fornada.edge.dialects.gateway import descriptions as d
from fornada.edge.dialects.gateway.logs import PATCH_BODY, read_patch, shown_log
from fornada.edge.dialects.gateway.queries import LOGS_QUERY, PAGES, REMOVAL_QUERY, read_page, read_query, read_removal
from fornada.edge.dialects.gateway.settings import CREATE_BODY, UPDATE_BODY, read_change, read_new, shown
from fornada.edge.envelope import enveloped
from fornada.edge.gateway.asked import ASKED_HEADERS
from fornada.edge.gateway.steps import COMPAT
from fornada.edge.invoke import RUN_HEADERS, TEXT_ERRORS
from fornada.edge.problems import Style

UNIVERSAL = "universal"
_BASE = "/client/v4/accounts/{account}/ai-gateway/gateways"
_ONE = _BASE + "/{gateway}"
_LOG = _ONE + "/logs/{log}"
_DATA = "/gateway/v1/{account}/{gateway}"
_AS_IT_IS = ((b"x-content-type-options", b"nosniff"), (b"content-security-policy", b"sandbox"))
"""Of bodies that callers and models wrote: a browser that is led there must not run them as a page of the node's."""


def routes(*, gateways: GatewaysPort, scheme: str) -> list[Route]:
    """All routes of the dialect, the hot ones as descriptions. `scheme`: by which the node is reached."""
    desk = _Desk(gateways, scheme)
    return [
        Route(_BASE, Style.ENVELOPE, {"GET": _read("listGateways", "Gateways", d.GATEWAYS, desk.all, PAGES), "POST": _create(desk)}),
        Route(
            _ONE,
            Style.ENVELOPE,
            {
                "GET": _read("getGateway", "One gateway", d.ONE, desk.one, errors=(UnknownGateway,)),
                "PUT": _change("updateGateway", "Change a gateway's settings", d.ONE, desk.update, takes=UPDATE_BODY.schema),
                "DELETE": _change("deleteGateway", "Remove a gateway with its logs", d.ONE, desk.remove),
            },
        ),
        Route(
            _ONE + "/logs",
            Style.ENVELOPE,
            {
                "GET": Operation(
                    *("listGatewayLogs", "What came through a gateway", d.LOGS, desk.logs, Role.DEPLOYER, LOGS_QUERY),
                    errors=(BadRequest, UnknownGateway),
                ),
                "DELETE": _change("deleteGatewayLogs", "Forget logs", d.DONE, desk.remove_logs, parameters=REMOVAL_QUERY),
            },
        ),
        Route(_LOG + "/request", Style.ENVELOPE, {"GET": _of_log("getGatewayLogRequest", "What was asked", {}, desk.request)}),
        Route(_LOG + "/response", Style.ENVELOPE, {"GET": _of_log("getGatewayLogResponse", "What was answered", {}, desk.response)}),
        Route(
            _LOG,
            Style.ENVELOPE,
            {
                "GET": _of_log("getGatewayLog", "One log", d.LOG, desk.log),
                "PATCH": Operation(
                    *("patchGatewayLog", "Say how good an answer was", d.LOG, desk.patch_log, Role.USER),
                    takes={"application/json": PATCH_BODY.schema},
                    errors=(BadRequest, UnknownGateway, UnknownLog, DiskFull),
                ),
            },
        ),
        Route(
            _ONE + "/url/{provider}",
            Style.ENVELOPE,
            {
                "GET": _read(
                    "getGatewayUrl", "Where a provider is reached through a gateway", d.URL, desk.url, errors=(BadRequest, UnknownGateway)
                )
            },
        ),
        Route(_DATA, Style.ENVELOPE, {"POST": _hot("runGatewayEntries", "Put a request to the first entry that answers", d.ENTRIES)}),
        Route(_DATA + "/{endpoint:path}", Style.ENVELOPE, {"POST": _hot("runThroughGateway", "Put a request to a provider", d.ANY_BODY)}),
    ]


def _read(
    id: str,
    summary: str,
    answer: dict[str, Any],
    handler: Handler,
    parameters: tuple[Parameter, ...] = (),
    errors: tuple[type[Any], ...] = (BadRequest,),
) -> Operation:
    return Operation(id, summary, answer, handler, Role.USER, parameters, errors=errors)


def _change(
    id: str,
    summary: str,
    answer: dict[str, Any],
    handler: Handler,
    *,
    parameters: tuple[Parameter, ...] = (),
    takes: Mapping[str, Any] | None = None,
) -> Operation:
    body = {"application/json": takes} if takes is not None else {}
    return Operation(id, summary, answer, handler, Role.DEPLOYER, parameters, takes=body, errors=(BadRequest, UnknownGateway, DiskFull))


def _create(desk: "_Desk") -> Operation:
    return Operation(
        *("createGateway", "Make a gateway", d.ONE, desk.create, Role.DEPLOYER),
        takes={"application/json": CREATE_BODY.schema},
        errors=(BadRequest, Conflict, DiskFull),
    )


def _of_log(id: str, summary: str, answer: dict[str, Any], handler: Handler) -> Operation:
    return Operation(id, summary, answer, handler, Role.USER, errors=(UnknownGateway, UnknownLog))


def _hot(id: str, summary: str, takes: dict[str, Any]) -> Operation:
    return Operation(
        *(id, summary, d.ANSWER),
        needs=Role.USER,
        parameters=(*ASKED_HEADERS, *RUN_HEADERS),
        takes=takes,
        errors=(*TEXT_ERRORS, UnknownGateway, RateLimited, Unauthorized),
    )


class _Desk:
    """Handlers."""

    def __init__(self, gateways: GatewaysPort, scheme: str) -> None:
        self._gateways = gateways
        self._scheme = scheme

    async def all(self, call: Call) -> Reply:
        page, per_page = read_page(call.query)
        wanted = call.query.get("search", "").casefold()
        found = [shown(each) for each in self._gateways.all(account_of(call.account)) if wanted in each.id.casefold()]
        return _listed(found[(page - 1) * per_page : page * per_page], page, per_page, len(found))

    async def one(self, call: Call) -> Reply:
        return json_reply(enveloped(shown(self._gateways.gateway(*_place(call)))))

    async def create(self, call: Call) -> Reply:
        id, settings = read_new(call.body)
        return json_reply(enveloped(shown(self._gateways.create(account_of(call.account), id, settings))))

    async def update(self, call: Call) -> Reply:
        account, id = _place(call)
        change = read_change(call.body, id)
        return json_reply(enveloped(shown(self._gateways.update(account, id, change(self._gateways.gateway(account, id).settings)))))

    async def remove(self, call: Call) -> Reply:
        return json_reply(enveloped(shown(await self._gateways.remove(*_place(call)))))

    async def logs(self, call: Call) -> Reply:
        query, page = read_query(call.query, call.raw_query)
        logs, total = await self._gateways.logs(*_place(call), query)
        return _listed([shown_log(log) for log in logs], page, query.limit, total)

    async def remove_logs(self, call: Call) -> Reply:
        await self._gateways.remove_logs(*_place(call), read_removal(call.query, call.raw_query))
        return json_reply(enveloped(None))

    async def log(self, call: Call) -> Reply:
        log = self._log(call)
        return json_reply(enveloped(shown_log(log, self._gateways.payload(log))))

    async def patch_log(self, call: Call) -> Reply:
        patch = read_patch(call.body)
        log = patch.applied(self._log(call))
        self._gateways.change_log(log)
        return json_reply(enveloped(shown_log(log)))

    async def request(self, call: Call) -> Reply:
        log = self._log(call)
        return Reply(self._gateways.payload(log).request, log.request_content_type, headers=_AS_IT_IS)

    async def response(self, call: Call) -> Reply:
        log = self._log(call)
        return Reply(self._gateways.payload(log).response, log.response_content_type or "application/json", headers=_AS_IT_IS)

    async def url(self, call: Call) -> Reply:
        account, gateway = _place(call)
        self._gateways.gateway(account, gateway)
        return json_reply(enveloped(self._url_of(call, account, gateway, call.parameters["provider"])))

    def _url_of(self, call: Call, account: AccountId, gateway: GatewayId, provider: str) -> str:
        """At the name by which the caller reached this node."""
        host = (call.facts.get(b"host") or b"127.0.0.1").decode("latin-1")
        base = f"{self._scheme}://{host}/gateway/v1/{quote(account, safe='')}/{gateway}"
        if provider == UNIVERSAL:
            return base
        if provider not in (WORKERS_AI, COMPAT):
            raise BadRequest(f"'{provider[:64]}' is a provider elsewhere: this node has '{WORKERS_AI}', '{COMPAT}' and '{UNIVERSAL}'")
        return f"{base}/{provider}"

    def _log(self, call: Call) -> Log:
        """One that the caller may see: a user his own key's, whoever may deploy all of his account's."""
        id = LogId(call.parameters["log"])
        log = self._gateways.log(*_place(call), id)
        caller = call.facts.caller
        if caller.role < Role.DEPLOYER and log.key != caller.key:
            raise UnknownLog(f"no such log '{id[:64]}'")
        return log


def _place(call: Call) -> tuple[AccountId, GatewayId]:
    return account_of(call.account), GatewayId(call.parameters["gateway"])


def _listed(result: list[dict[str, Any]], page: int, per_page: int, total: int) -> Reply:
    info = {"page": page, "per_page": per_page, "count": len(result), "total_count": total, "total_pages": -(-total // per_page)}
    return json_reply(enveloped(result, result_info=info))
