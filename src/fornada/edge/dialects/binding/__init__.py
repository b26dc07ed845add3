"""The binding protocol: what `env.AI` in a Worker asks of https://workers-binding.ai, below /binding/{key}.

In: `run` as Exchanges, the catalogue as Calls, both unwrapped by `edge.server.unwrapped`.
Out: requests for the Workers AI door; its answers without their envelope.
May import: `edge.dialects.workers_ai`, `edge` modules that are not dialects, `telemetry`, `core`.
"""

from fornada.edge.dialects.binding.door import BindingDoor
from fornada.edge.dialects.binding.routes import routes

__all__ = ["BindingDoor", "routes"]
