"""The route of messages in words and schemas, for /openapi.json."""

from fornada.core.keys import Role
from fornada.edge.calls import Operation, Parameter, Route
from fornada.edge.dialects.anthropic.schema import MESSAGE, SCHEMA
from fornada.edge.invoke import RUN_ERRORS, RUN_HEADERS
from fornada.edge.problems import Style

CREATE = Operation(
    "createMessage",
    "Go on with a conversation, in content blocks",
    MESSAGE,
    parameters=(
        *RUN_HEADERS,
        Parameter("x-api-key", "A key, where there is no Authorization", place="header"),
        Parameter("anthropic-version", "Not looked at", place="header"),
    ),
    takes={"application/json": SCHEMA},
    needs=Role.USER,
    errors=RUN_ERRORS,
    more_answers={"text/event-stream": {"type": "string", "description": "Events with names, from message_start to message_stop"}},
)


def routes() -> list[Route]:
    """Both places of the route, as descriptions."""
    return [
        Route("/v1/messages", Style.SUPERSET, {"POST": CREATE}),
        Route("/client/v4/accounts/{account}/ai/v1/messages", Style.SUPERSET, {"POST": CREATE.named("createMessageOfAccount")}),
    ]
