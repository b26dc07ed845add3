"""The Messages API of Anthropic under /v1 and /client/v4/accounts/{account}/ai/v1.

In: conversations as Exchanges, in content blocks.
Out: chats for the InferencePort; messages and their events.
May import: `edge` modules that are not dialects, `telemetry`, `core`.
"""

from fornada.edge.dialects.anthropic.door import MessagesDoor
from fornada.edge.dialects.anthropic.routes import routes

DOORS = (MessagesDoor,)

__all__ = ["DOORS", "MessagesDoor", "routes"]
