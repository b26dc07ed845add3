"""TensorFlow Serving's REST API: /v1/models/{model}:predict, :classify and :regress, and what it says about models.

In: rows or columns of values as JSON, examples for the other two verbs.
Out: requests of tensors for the InferencePort; predictions, errors as {"error": text} with the superset body around it.
May import: `edge` modules that are not dialects, `telemetry`, `core`.
"""

from fornada.edge.dialects.tfserving.door import ServingDoor
from fornada.edge.dialects.tfserving.routes import routes

__all__ = ["ServingDoor", "routes"]
