"""The two kinds of processor whose system calls are known here."""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
import sys

from fornada_sdk.sandbox import numbers_aarch64, numbers_x86_64


@dataclasses.dataclass(frozen=True)
class Architecture:
    """What a filter, or a call by number, has to know."""

    name: str
    """As `uname -m` says it."""
    audit: int
    """AUDIT_ARCH of linux/audit.h: machine, 64 bit, little-endian."""
    numbers: dict[str, int]
    """System call to number; a call that isn't here doesn't exist on this processor."""


X86_64 = Architecture("x86_64", 0xC000003E, numbers_x86_64.NUMBERS)
AARCH64 = Architecture("aarch64", 0xC00000B7, numbers_aarch64.NUMBERS)
ALL = (X86_64, AARCH64)


@functools.cache
def own() -> Architecture:
    """This process's. Raises OSError (ENOSYS) on any other, and in a 32-bit interpreter."""
    machine = os.uname().machine
    for known in ALL:
        if machine == known.name and sys.maxsize > 2**32:
            return known
    raise OSError(errno.ENOSYS, f"the numbers of the system calls aren't known for this interpreter on {machine}")
