"""Ids of requests: `cf-ai-req-id` is always ours, `x-request-id` is the caller's where it can be echoed."""

import itertools
import os

LONGEST = 128


class Ids:
    """Makes uuids that are unique among all processes, for the cost of formatting a number.

    A uuid4 each would cost more than parsing the request; these ids are names, not secrets.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        """`seed`: 9 bytes or more of chance; None draws them."""
        digits = (os.urandom(9) if seed is None else seed).hex()
        self._prefix = f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[15:18]}-"
        self._next = itertools.count(1).__next__

    def trace(self) -> str:
        return f"{self._prefix}{self._next():012x}"


def echoable(value: bytes) -> str | None:
    """An x-request-id as text, or None where it isn't 1 to 128 printable characters."""
    if not 0 < len(value) <= 4 * LONGEST:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= LONGEST and text.isprintable() else None
