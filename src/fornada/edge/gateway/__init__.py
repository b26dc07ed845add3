"""Requests on their way through an AI gateway: asked for by headers or options, answered by the doors of the dialects.

In: Exchanges of whoever serves a gateway's URLs, what they ask of it, and the targets behind it.
Out: the same Exchanges answered, from what the gateway keeps or by the targets' doors; logs.
May import: `edge` modules that are not dialects, `core`.
"""
