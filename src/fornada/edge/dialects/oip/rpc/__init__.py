"""The Open Inference Protocol over gRPC, on a port of its own ([server] grpc_port). Imported only where there is one: grpcio is large.

In: protobuf messages; metadata as headers.
Out: requests of tensors for the InferencePort; protobuf messages, refusals as gRPC's status codes.
May import: `edge` modules that are not dialects, the protocol's own, `telemetry`, `core`.
"""
