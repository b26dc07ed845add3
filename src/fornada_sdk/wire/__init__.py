"""The messages between control plane, keeper and runner, and their framing.

In: messages; packets.
Out: packets; messages.
May import: the standard library of Python 3.9.
"""
