"""A decision over the words of a system call, put into instructions of the kernel's classic packet filter.

A decision is a tree that ends in `Return` on every path, so a program made of one can't run off its end. Jumps only go forward.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Sequence
from typing import NamedTuple, Union

INSTRUCTIONS_MOST = 4096
"""BPF_MAXINSNS."""

LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
JUMP = 0x05  # BPF_JMP | BPF_JA
RETURN = 0x06  # BPF_RET | BPF_K
_FARTHEST = 255


class Compare(enum.Enum):
    """Comparisons of the loaded word with a number; all are unsigned."""

    EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
    AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
    ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K


@dataclasses.dataclass(frozen=True)
class Return:
    """The end: the kernel does what `action` says."""

    action: int


@dataclasses.dataclass(frozen=True)
class Load:
    """Loads the 32-bit word at `offset` bytes, then goes on."""

    offset: int
    then: Decision


@dataclasses.dataclass(frozen=True)
class Mask:
    """Keeps only `bits` of the loaded word, then goes on."""

    bits: int
    then: Decision


@dataclasses.dataclass(frozen=True)
class Branch:
    """Goes on with `yes` or `no`."""

    compare: Compare
    value: int
    yes: Decision
    no: Decision


Decision = Union[Return, Load, Mask, Branch]


class Instruction(NamedTuple):
    """struct sock_filter."""

    code: int
    if_true: int
    if_false: int
    value: int


def search(ranges: Sequence[tuple[int, Decision]]) -> Decision:
    """Finds the loaded word by halving. `ranges` are (first number, what then), ascending; the first also gets what lies below."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    return Branch(Compare.AT_LEAST, ranges[middle][0], search(ranges[middle:]), search(ranges[:middle]))


def instructions(decision: Decision) -> list[Instruction]:
    """Raises ValueError if they are more than the kernel takes."""
    made = _made(decision)
    if len(made) > INSTRUCTIONS_MOST:
        raise ValueError(f"a filter of {len(made)} instructions; the kernel takes {INSTRUCTIONS_MOST}")
    return made


def packed(made: Sequence[Instruction]) -> bytes:
    """As the kernel reads them: 8 bytes each."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in made)


def _made(decision: Decision) -> list[Instruction]:
    if isinstance(decision, Return):
        return [Instruction(RETURN, 0, 0, decision.action)]
    if isinstance(decision, Load):
        return [Instruction(LOAD_WORD, 0, 0, decision.offset), *_made(decision.then)]
    if isinstance(decision, Mask):
        return [Instruction(AND, 0, 0, decision.bits), *_made(decision.then)]
    no, yes = _made(decision.no), _made(decision.yes)
    code = decision.compare.value
    if len(no) <= _FARTHEST:
        return [Instruction(code, len(no), 0, decision.value), *no, *yes]
    # A condition jumps 255 instructions at most; the jump without one goes anywhere.
    return [Instruction(code, 0, 1, decision.value), Instruction(JUMP, 0, 0, len(no)), *no, *yes]
