"""`/api/v1/models…`: what models there are and what an operator does to them. Each verb answers when it is true."""

from fornada.core.errors import BadRequest, Busy, Conflict, DeadlinePassed, LoadFailed, NeverFits, UnknownModel
from fornada.core.keys import Role
from fornada.core.names import Instant, ModelName, parse_reference
from fornada.core.ports import CatalogPort, Clock, Entry, OperationsPort
from fornada.edge.calls import Call, Operation, Parameter, Reply, Route, json_reply
from fornada.edge.dialects.admin import descriptions as d
from fornada.edge.dialects.admin.feeds import events_of, lines_of
from fornada.edge.json_bodies import fields_of, value_of
from fornada.edge.problems import Style

BASE = "/api/v1/models"
LOAD_PATIENCE_S = 3600.0
"""How long a load is waited for where the caller names no bound: environments may have to be built."""
USUAL_LINES, MOST_LINES = 10_000, 100_000


def model_routes(*, catalog: CatalogPort, operations: OperationsPort, clock: Clock, more: dict[str, Operation]) -> list[Route]:
    """`more`: methods of a model's own path that are another module's."""
    models = _Models(catalog, operations, clock)
    refusals = (BadRequest, UnknownModel)
    return [
        Route(BASE, Style.SUPERSET, {"GET": Operation("listModels", "All models", d.MODELS, models.all, Role.USER)}),
        Route(
            f"{BASE}/{{name:path}}/load",
            Style.SUPERSET,
            {
                "POST": Operation(
                    "loadModel",
                    "Load a model; answers when it is ready",
                    d.MODEL,
                    models.load,
                    Role.DEPLOYER,
                    (Parameter("x-timeout-ms", "How long to wait; the load goes on", {"type": "number"}, place="header"),),
                    errors=(*refusals, LoadFailed, Busy, NeverFits, DeadlinePassed, Conflict),
                )
            },
        ),
        Route(
            f"{BASE}/{{name:path}}/unload",
            Style.SUPERSET,
            {
                "POST": Operation(
                    "unloadModel",
                    "Unload a model until the next request or load",
                    d.MODEL,
                    models.unload,
                    Role.DEPLOYER,
                    (Parameter("grace", "Seconds that running requests get", {"type": "number", "minimum": 0}),),
                    errors=refusals,
                )
            },
        ),
        Route(
            f"{BASE}/{{name:path}}/sleep",
            Style.SUPERSET,
            {
                "POST": Operation(
                    "sleepModel", "Let a model give its memory back", d.MODEL, models.sleep, Role.DEPLOYER, errors=(*refusals, Conflict)
                )
            },
        ),
        Route(
            f"{BASE}/{{name:path}}/pin",
            Style.SUPERSET,
            {
                "POST": Operation(
                    "pinModel",
                    "Keep a model loaded, or no longer",
                    d.MODEL,
                    models.pin,
                    Role.DEPLOYER,
                    takes={"application/json": d.PIN},
                    errors=refusals,
                )
            },
        ),
        Route(
            f"{BASE}/{{name:path}}/reset",
            Style.SUPERSET,
            {"POST": Operation("resetModel", "Forget a model's failures", d.MODEL, models.reset, Role.DEPLOYER, errors=refusals)},
        ),
        Route(
            f"{BASE}/{{name:path}}/why",
            Style.SUPERSET,
            {"GET": Operation("explainModel", "Why a model is (not) loaded", d.WHY, models.why, Role.DEPLOYER, errors=refusals)},
        ),
        Route(
            f"{BASE}/{{name:path}}/logs",
            Style.SUPERSET,
            {
                "GET": Operation(
                    "readModelLogs",
                    "The model's own output: a JSON object a line, or an event stream that follows it",
                    d.LOG_LINE,
                    models.logs,
                    Role.DEPLOYER,
                    (
                        Parameter("follow", "true: events, without an end", {"type": "boolean", "default": False}),
                        Parameter("last", "Lines from the end to begin with", {"type": "integer", "minimum": 0, "maximum": MOST_LINES}),
                    ),
                    answer_type="application/x-ndjson",
                    errors=refusals,
                )
            },
        ),
        Route(
            f"{BASE}/{{name:path}}",
            Style.SUPERSET,
            {"GET": Operation("getModel", "One model", d.MODEL, models.one, Role.USER, errors=refusals), **more},
        ),
    ]


class _Models:
    """Handlers."""

    def __init__(self, catalog: CatalogPort, operations: OperationsPort, clock: Clock) -> None:
        self._catalog = catalog
        self._operations = operations
        self._clock = clock

    async def all(self, call: Call) -> Reply:
        return json_reply({"models": list(self._operations.views(call.sees))})

    async def one(self, call: Call) -> Reply:
        return json_reply(self._operations.view(self._name(call)))

    async def load(self, call: Call) -> Reply:
        patience_s = call.facts.timeout_s or LOAD_PATIENCE_S
        deadline = Instant(self._clock.now() + patience_s)
        return json_reply(await self._operations.load(self._own(call), deadline=deadline))

    async def unload(self, call: Call) -> Reply:
        grace_s = number(call, "grace", most=86400.0)
        return json_reply(await self._operations.unload(self._own(call), grace_s=grace_s))

    async def sleep(self, call: Call) -> Reply:
        return json_reply(await self._operations.sleep(self._own(call)))

    async def pin(self, call: Call) -> Reply:
        name = self._own(call)
        fields = fields_of(call.body.strip() or b"{}")
        if unknown := sorted(fields.keys() - {"pinned"}):
            raise BadRequest(f"there is no '{unknown[0]}' here, only 'pinned'")
        pinned = value_of(fields["pinned"]) if "pinned" in fields else True
        if not isinstance(pinned, bool):
            raise BadRequest("Type mismatch of '/pinned', it must be true or false")
        return json_reply(await self._operations.pin(name, pinned=pinned))

    async def reset(self, call: Call) -> Reply:
        return json_reply(await self._operations.reset(self._own(call)))

    async def why(self, call: Call) -> Reply:
        return json_reply(self._operations.why(self._own(call), call.facts.caller.within))

    async def logs(self, call: Call) -> Reply:
        name = self._own(call)
        follow = call.query.get("follow", "").lower() in ("1", "true", "yes", "on")
        last = number(call, "last", most=MOST_LINES)
        lines = self._operations.logs(name, follow=follow, last=USUAL_LINES if last is None else int(last))
        return events_of(lines) if follow else lines_of(lines)

    def _own(self, call: Call) -> ModelName:
        """The same as `_name`, of a model that is the caller's to change. Raises Forbidden."""
        entry = self._entry(call)
        call.facts.caller.own(entry.account, entry.name)
        return entry.name

    def _name(self, call: Call) -> ModelName:
        """The model's own name for what the path says: a name, an alias, a version or a label of it."""
        return self._entry(call).name

    def _entry(self, call: Call) -> Entry:
        named = call.parameters["name"]
        try:
            return self._catalog.resolve(parse_reference(named), call.sees).entry
        except UnknownModel as refusal:
            raise UnknownModel(f"No such model {named}", nearest=refusal.nearest) from None


def number(call: Call, name: str, *, most: float) -> float | None:
    """A number of the query from 0 on. Raises BadRequest."""
    text = call.query.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise BadRequest(f"'{name}' must be a number from 0 to {most:g}")
    return value
