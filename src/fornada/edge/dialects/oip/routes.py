"""The protocol's routes under /v2 that aren't inference: health, metadata, the repository."""

from collections.abc import Awaitable, Callable
from typing import Any

from fornada.core.errors import BadRequest, Unavailable
from fornada.core.keys import Role
from fornada.edge.calls import Call, Operation, Reply, Route, json_reply
from fornada.edge.dialects.oip import descriptions as d
from fornada.edge.dialects.oip.models import ModelsView
from fornada.edge.json_bodies import fields_of, value_of
from fornada.edge.problems import Style

_MODEL = "/v2/models/{name:path}"
_VERSION = f"{_MODEL}/versions/{{version}}"
_REPOSITORY = "/v2/repository/models/{name:path}"


def routes(models: ModelsView) -> list[Route]:
    """All routes of the dialect over HTTP, the hot one as a description."""
    handlers = _Handlers(models)
    get: list[tuple[str, Operation]] = [
        ("/v2", Operation("serverMetadata", "What this server is", d.SERVER, handlers.server, Role.NOBODY)),
        ("/v2/health/live", Operation("isServerLive", "200 while the node answers", d.EMPTY, handlers.live, Role.NOBODY)),
        (
            "/v2/health/ready",
            Operation("isServerReady", "200 once requests are accepted", d.EMPTY, handlers.ready, Role.NOBODY, errors=(Unavailable,)),
        ),
    ]
    for memory in ("system", "cuda"):
        path, name = f"/v2/{memory}sharedmemory", memory.capitalize()
        get.append((f"{path}/status", Operation(f"list{name}SharedMemory", "None: there is no shared memory", d.REGIONS, _none, Role.USER)))
    for path, suffix in ((_VERSION, "OfVersion"), (_MODEL, "")):
        get += [
            (
                f"{path}/ready",
                Operation(
                    f"isTensorModelReady{suffix}",
                    "200 where a request would be taken",
                    d.EMPTY,
                    handlers.model_ready,
                    Role.USER,
                    errors=d.LOAD_ERRORS,
                ),
            ),
            (
                f"{path}/config",
                Operation(f"tensorModelConfig{suffix}", "As Triton shows it", d.CONFIG, handlers.config, Role.USER, errors=d.LOAD_ERRORS),
            ),
            (
                f"{path}/stats",
                Operation(f"tensorModelStats{suffix}", "What is under way", d.STATS, handlers.stats, Role.USER, errors=d.MODEL_ERRORS),
            ),
        ]
    for path, suffix in ((_VERSION, "OfVersion"), (_MODEL, "")):
        about = Operation(
            f"tensorModelMetadata{suffix}", "Inputs and outputs", d.METADATA, handlers.metadata, Role.USER, errors=d.LOAD_ERRORS
        )
        get.append((path, about))
    post: list[tuple[str, Operation]] = [
        (f"{_VERSION}/infer", d.INFER.named("inferTensorsOfVersion")),
        (f"{_MODEL}/infer", d.INFER),
        (
            "/v2/repository/index",
            Operation(
                "repositoryIndex",
                "Models that take tensors",
                d.INDEX,
                handlers.index,
                Role.USER,
                takes={"application/json": {"type": "object", "properties": {"ready": {"type": "boolean"}}}},
                errors=(BadRequest,),
            ),
        ),
        (
            f"{_REPOSITORY}/load",
            Operation(
                "repositoryLoad", "Load a model; answers when it is ready", d.EMPTY, handlers.load, Role.DEPLOYER, errors=d.LOAD_ERRORS
            ),
        ),
        (
            f"{_REPOSITORY}/unload",
            Operation(
                "repositoryUnload", "Unload a model until the next request", d.EMPTY, handlers.unload, Role.DEPLOYER, errors=d.MODEL_ERRORS
            ),
        ),
    ]
    for memory in ("system", "cuda"):
        for verb in ("register", "unregister"):
            said = Operation(
                f"{verb}{memory.capitalize()}SharedMemory",
                "Refused: there is no shared memory",
                d.EMPTY,
                _refuse_memory if verb == "register" else _nothing,
                Role.USER,
                errors=(BadRequest,),
            )
            post.append((f"/v2/{memory}sharedmemory/region/{{region}}/{verb}", said))
            if verb == "unregister":
                post.append((f"/v2/{memory}sharedmemory/{verb}", said.named(f"{said.id}Regions")))
    # More particular paths first: `{name:path}` takes anything.
    return [Route(path, Style.TEXT, {"POST": each}) for path, each in post] + [Route(path, Style.TEXT, {"GET": each}) for path, each in get]


class _Handlers:
    """Of Calls."""

    def __init__(self, models: ModelsView) -> None:
        self._models = models

    async def server(self, call: Call) -> Reply:
        return json_reply(self._models.server())

    async def live(self, call: Call) -> Reply:
        return json_reply({"live": True})

    async def ready(self, call: Call) -> Reply:
        self._models.require_accepting()
        return json_reply({"ready": True})

    async def model_ready(self, call: Call) -> Reply:
        resolved = self._models.resolve(call.parameters["name"], call.parameters.get("version", ""), call.sees)
        self._models.require_accepting()
        self._models.require_ready(resolved)
        return json_reply({"name": call.parameters["name"], "ready": True})

    async def metadata(self, call: Call) -> Reply:
        return await self._about(call, self._models.metadata)

    async def config(self, call: Call) -> Reply:
        return await self._about(call, self._models.config)

    async def _about(self, call: Call, tell: Callable[..., Awaitable[dict[str, Any]]]) -> Reply:
        name = call.parameters["name"].strip("/")
        resolved = self._models.resolve(name, call.parameters.get("version", ""), call.sees)
        return json_reply(await tell(name, resolved, call.facts.timeout_s))

    async def stats(self, call: Call) -> Reply:
        name = call.parameters["name"]
        return json_reply(self._models.stats(name, self._models.resolve(name, call.parameters.get("version", ""), call.sees)))

    async def index(self, call: Call) -> Reply:
        fields = fields_of(call.body.strip() or b"{}")
        ready = value_of(fields["ready"]) if "ready" in fields else False
        if not isinstance(ready, bool):
            raise BadRequest("Type mismatch of '/ready', it must be true or false")
        return json_reply(self._models.index(call.sees, ready=ready))

    async def load(self, call: Call) -> Reply:
        _refuse_parameters(call)
        await self._models.load(call.facts.caller, call.parameters["name"], call.facts.timeout_s)
        return json_reply({})

    async def unload(self, call: Call) -> Reply:
        await self._models.unload(call.facts.caller, call.parameters["name"])
        return json_reply({})


def _refuse_parameters(call: Call) -> None:
    fields = fields_of(call.body.strip() or b"{}")
    if "parameters" in fields and bytes(fields["parameters"]).strip() not in (b"{}", b"null"):
        raise BadRequest("'parameters': a model's files and configuration come by deploying it, not with a load")


async def _none(call: Call) -> Reply:
    return json_reply([])


async def _nothing(call: Call) -> Reply:
    return json_reply({})


async def _refuse_memory(call: Call) -> Reply:
    raise BadRequest("there is no shared memory here: send tensors as binary data")
