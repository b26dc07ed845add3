"""Amounts of memory and their spelling."""

import re
from typing import NewType

ByteCount = NewType("ByteCount", int)

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[_letter] = _UNITS[f"{_letter}ib"] = 1024**_power
    _UNITS[f"{_letter}b"] = 1000**_power
_DIGITS_MOST = 30
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*\Z")


def parse_size(value: str | int) -> ByteCount:
    """Bytes of `512MiB`, `2 GB`, `1g` or a plain number (KiB and k = 1024, kB = 1000). Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f'{value!r} is no size; write a number of bytes or e.g. "512MiB"')
    if isinstance(value, int):
        if value < 0:
            raise ValueError("a size can't be negative")
        return ByteCount(value)
    match = _SIZE.match(value)
    unit = match and _UNITS.get(match[2].lower())
    if not match or not unit or len(match[1]) > _DIGITS_MOST:
        raise ValueError(f'{value!r} is no size; write a number of bytes or e.g. "512MiB"')
    return ByteCount(int(float(match[1]) * unit))


def format_size(count: int) -> str:
    """`1.5 GiB`, `512 MiB`, `17 B`: for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount == int(amount) else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
