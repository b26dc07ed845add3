"""The Workers AI API under /client/v4/accounts/{account}/ai.

In: `ai/run` as Exchanges, the catalogue's routes as Calls.
Out: requests for the InferencePort; envelopes, event streams, raw bodies.
May import: `edge` modules that are not dialects, `telemetry`, `core`.
"""

from fornada.edge.dialects.workers_ai.catalog import routes
from fornada.edge.dialects.workers_ai.run import RunDoor

__all__ = ["RunDoor", "routes"]
