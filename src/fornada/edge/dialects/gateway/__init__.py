"""AI Gateway: `/gateway/v1/{account}/{gateway}/…`, the header cf-aig-gateway-id on other routes, and an account's gateways and logs.

In: requests for models as Exchanges; gateways and logs as Calls.
Out: passages through a gateway to the doors of other dialects (edge.gateway); envelopes.
May import: `edge` modules that are not dialects, `core`.
"""

from fornada.edge.dialects.gateway.door import GatewayDoor
from fornada.edge.dialects.gateway.routes import routes

__all__ = ["GatewayDoor", "routes"]
