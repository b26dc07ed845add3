"""Logs, metrics and traces: how a node says what it does.

In: named events with fields; numbers.
Out: lines on stderr, the text of `/metrics`.
May import: `core`, `fornada_sdk.wire`.
"""
