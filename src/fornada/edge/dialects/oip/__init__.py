"""The Open Inference Protocol (KServe's and Triton's v2) over HTTP, /v2, and over gRPC.

In: tensors as JSON, as JSON with the binary tensor extension, as protobuf; questions about models.
Out: requests of tensors for the InferencePort; the protocol's objects, errors as {"error": text} with the superset body around it.
May import: `edge` modules that are not dialects, `telemetry`, `core`.
"""

from fornada.edge.dialects.oip.infer import InferDoor
from fornada.edge.dialects.oip.routes import routes

__all__ = ["InferDoor", "routes"]
