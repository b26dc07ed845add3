"""Nodes on virtual time: core.policy itself decides, about traffic that was recorded or made up.

In: models as numbers, requests with their times, what the operator sets.
Out: what every request saw, what was swapped, every choice; nothing here is started or measured.
May import: `core`.
"""
