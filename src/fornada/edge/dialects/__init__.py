"""One folder per public API: how it reads a request and writes an answer.

In: a parsed HTTP request; results and errors of `core`.
Out: `core` requests; response bodies of that API.
May import: `edge` modules that are not dialects, `telemetry`, `core`; not another dialect.
"""
