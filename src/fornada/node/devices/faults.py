"""What an XID says: whether the card is to blame or the program that ran on it.

The numbers are NVIDIA's (docs.nvidia.com/deploy/xid-errors); what is a program's is the list that its Kubernetes device plugin ignores.
"""

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Faults of a program, after which a card goes on working."""
WORDS = {
    13: "a program's illegal instruction or address",
    31: "a program's page fault",
    43: "a program was stopped",
    45: "a program was ended",
    48: "a double bit error of its memory",
    62: "its own controller halted",
    63: "a memory page was retired",
    64: "a memory page couldn't be retired",
    68: "a video processor's fault",
    74: "an NVLink error",
    79: "it has fallen off the bus",
    94: "a contained memory error",
    95: "an uncontained memory error",
    109: "a program's context switch timed out",
    119: "its own processor doesn't answer",
}


def is_the_programs(xid: int) -> bool:
    return xid in APPLICATION_XIDS


def describe(xid: int) -> str:
    """`XID 79: it has fallen off the bus`."""
    return f"XID {xid}: {WORDS[xid]}" if xid in WORDS else f"XID {xid}"
