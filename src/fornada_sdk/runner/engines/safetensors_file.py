"""Files in the safetensors format as PyTorch tensors, without the package of that name.

The format: 8 bytes with the header's size, a JSON header {name: {dtype, shape, data_offsets}}, the tensors' bytes. Nothing in it is code.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from typing import Any

HEADER_LONGEST = 100 * 1000 * 1000
"""What the format's own reader takes at most."""
_SIZE = struct.Struct("<Q")
DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
"""The format's name -> PyTorch's."""


def read_safetensors(path: str) -> dict[str, Any]:
    """The file's tensors by name. They share the file's pages until they are written to. Raises ValueError for a broken file."""
    import torch

    with open(path, "rb") as file:
        # A private mapping: a write changes a copy of the page, never the artifact.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    header, begin = read_entries(data)
    tensors = {}
    for name, entry in header.items():
        dtype, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if dtype not in DTYPES:
            raise ValueError(f"tensor {name} is of type {dtype}, which isn't known here")
        kind = getattr(torch, DTYPES[dtype])
        count = math.prod(shape)
        if not 0 <= first <= last <= len(data) - begin or count * kind.itemsize != last - first or any(size < 0 for size in shape):
            raise ValueError(f"tensor {name} doesn't lie where the header says")
        flat = torch.frombuffer(data, dtype=kind, count=count, offset=begin + first) if count else torch.empty(0, dtype=kind)
        tensors[name] = flat.reshape(shape)
    return tensors


def read_entries(data: mmap.mmap) -> tuple[dict[str, Any], int]:
    """({name: {dtype, shape, data_offsets}} as the file says it, where the tensors' bytes begin). Raises ValueError for a broken header."""
    try:
        (size,) = _SIZE.unpack_from(data)
        if size > min(HEADER_LONGEST, len(data) - _SIZE.size):
            raise ValueError("its size is beyond the file")
        header = json.loads(data[_SIZE.size : _SIZE.size + size])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            if not all(type(number) is int for number in [first, last, *entry["shape"]]) or type(entry["dtype"]) is not str:
                raise ValueError(f"the entry of {name} is broken")
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError) as error:
        raise ValueError(f"no safetensors file: {type(error).__name__}: {error}") from None
    return header, _SIZE.size + size
