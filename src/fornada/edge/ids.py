"""Ids of requests: `cf-ai-req-id` is always ours, `x-request-id` is the caller's where it can be echoed."""

import itertools
import os

LONGEST = 128
_SEED_BYTES = 14


class Ids:
    """Makes uuids that are unique among all processes, for the cost of formatting a number.

    A uuid4 each would cost more than parsing the request; these ids are names, not secrets.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        """`seed`: 14 bytes or more of chance; None draws them."""
        digits = (os.urandom(_SEED_BYTES) if seed is None else seed).hex()
        self._prefix = f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[15:18]}-"
        # From a number of 12 digits on: padding would cost as much as all the rest.
        self._next = itertools.count(0x100000000000 + int(digits[18:28], 16)).__next__

    def trace(self) -> str:
        return "%s%x" % (self._prefix, self._next())  # noqa: UP031 - a third faster than an f-string here


def echoable(value: bytes) -> str | None:
    """An x-request-id as text, or None where it isn't 1 to 128 printable characters."""
    if not 0 < len(value) <= 4 * LONGEST:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= LONGEST and text.isprintable() else None
