"""`/api/v1/usage`: what was used, by account, key, model and day."""

from fornada.core.errors import DiskFull
from fornada.core.keys import Role
from fornada.core.usage import UsagePort
from fornada.edge.calls import Call, Operation, Reply, Route, json_reply
from fornada.edge.problems import Style

_ROW = {
    "type": "object",
    "properties": {
        "account": {"type": "string"},
        "key": {"type": "string", "description": "Id of the key; empty in open mode, and for items of jobs"},
        "model": {"type": "string"},
        "day": {"type": "string", "format": "date", "description": "UTC"},
        "requests": {"type": "integer", "minimum": 0, "description": "Those that a runner finished, answered or not"},
        "input_tokens": {"type": "integer", "minimum": 0},
        "output_tokens": {"type": "integer", "minimum": 0},
        "device_seconds": {"type": "number", "minimum": 0, "description": "Of the model's own code"},
        "neurons": {"type": "number", "minimum": 0, "description": "By the model's [price]"},
    },
    "required": ["account", "key", "model", "day", "requests", "input_tokens", "output_tokens", "device_seconds", "neurons"],
}
USAGE = {"type": "object", "properties": {"usage": {"type": "array", "items": _ROW}}, "required": ["usage"]}


def usage_routes(*, usage: UsagePort) -> list[Route]:
    async def all(call: Call) -> Reply:
        return json_reply({"usage": list(usage.rows(call.facts.caller.within))})

    operation = Operation(
        "readUsage",
        "What was used, the newest day first: of the key's account, of all for an administrator",
        USAGE,
        all,
        Role.USER,
        errors=(DiskFull,),
    )
    return [Route("/api/v1/usage", Style.SUPERSET, {"GET": operation})]
