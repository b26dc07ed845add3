"""Choices: who is admitted, batched, evicted, placed.

In: a snapshot and an instant.
Out: a choice, with its reason.
May import: `core`.
"""
