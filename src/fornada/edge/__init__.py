"""HTTP in, HTTP out: server, authentication, dialects, validation, problems.

In: bytes from clients.
Out: requests for the ports of `core`, and answers or problems in the caller's dialect.
May import: `telemetry`, `core`, `fornada_sdk.wire`; neither `control`, `node` nor `store`.
"""
