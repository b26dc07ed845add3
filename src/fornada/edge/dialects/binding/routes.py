"""The binding's routes that aren't inference, and all of them in words and schemas."""

from collections.abc import Sequence
from typing import Any

from fornada.core.keys import Role
from fornada.edge.calls import Operation, Parameter, Route
from fornada.edge.dialects.workers_ai.descriptions import TALK
from fornada.edge.invoke import RUN_ERRORS
from fornada.edge.problems import Style

_BASE = "/binding/{key}"
_SEARCH = "/ai/models/search"
RUN = Operation(
    "runModelByBinding",
    "`env.AI.run` in a Worker",
    {"description": "What the model answers, without an envelope"},
    parameters=(
        Parameter("cf-consn-model-id", "The model's name", place="header", required=True),
        Parameter("userInputs", "JSON object of the other inputs, where the body is one input: a stream"),
    ),
    takes={
        "application/json": {
            "type": "object",
            "properties": {
                "inputs": {"description": "The model's inputs"},
                "options": {"type": ["object", "null"], "description": "`queueRequest`, `rejectIfBusy`, `tags`"},
            },
        },
        "application/octet-stream": {"type": "string", "format": "binary"},
    },
    needs=Role.USER,
    errors=RUN_ERRORS,
)


def routes(workers_ai: Sequence[Route]) -> list[Route]:
    """All routes of the dialect, the hot ones as descriptions. `workers_ai`: those whose answers the binding's are."""
    return [
        Route(f"{_BASE}/run", Style.BINDING, {"POST": RUN, "GET": TALK.named("talkWithModelByBinding")}),
        Route(f"{_BASE}/ai-api/models/search", Style.BINDING, {"GET": _taken(workers_ai, _SEARCH, "searchModelsByBinding")}),
    ]


def _taken(routes: Sequence[Route], ending: str, id: str) -> Operation:
    route: Any = next(route for route in routes if route.pattern.endswith(ending))
    operation: Operation = route.operations["GET"]
    return operation.named(id)
