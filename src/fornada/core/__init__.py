"""The decisions, pure: no I/O, no clock, no chance; those are arguments.

In: specs, snapshots, events, instants.
Out: values, choices, commands, errors, and the ports that others implement.
May import: `fornada_sdk.wire` and the pure part of the standard library.
"""
