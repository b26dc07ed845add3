"""Drivers of the store ports: where truth is kept on disk.

In: values of `core`.
Out: the same values after a restart.
May import: `telemetry`, `core`, `fornada_sdk.wire`.
"""
