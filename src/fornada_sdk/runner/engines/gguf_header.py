"""What a GGUF file says of its model, read before the library loads it: a wrong file is told apart from a broken load.

Layout (little-endian): "GGUF", version u32, tensors u64, entries u64; an entry is key, type u32, value; a string is length u64, bytes.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from fornada_sdk.runner.engines import LoadError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_ENTRIES = 10_000
MOST_TENSORS = 100_000
MOST_SIZES = 4
_T = TypeVar("_T")
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_U64 = struct.Struct("<Q")


class Header(NamedTuple):
    """The few entries that matter here."""

    architecture: str = ""
    context_length: int = 0
    """Tokens that the model was trained with; 0: not said."""
    chat_template: str = ""
    """Jinja; empty: the file has none, and llama.cpp falls back on ChatML."""
    heads: int = 0
    """Of attention; 0: not said, or not the same in all layers."""
    kv_heads: int = 0

    @property
    def shows_tools(self) -> bool:
        """The template writes tools into the prompt by itself."""
        return "tools" in self.chat_template


def read_header(path: str) -> Header:
    """Raises LoadError for a file that is no GGUF file."""
    return _read(path, _header)


def read_shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Name -> sizes of every tensor, the one that changes fastest first. Raises LoadError for a file that is no GGUF file."""
    return _read(path, _shapes)


def _read(path: str, part: Callable[[_Reader], _T]) -> _T:
    name = os.path.basename(path)
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return part(_Reader(data))
    except OSError as error:
        raise LoadError(f"{name} can't be read: {error.strerror}") from None
    except (struct.error, ValueError, UnicodeDecodeError, IndexError) as error:
        raise LoadError(f"{name} is no GGUF file: {error}") from None


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise ValueError("it ends in the middle")
        piece = self._data[self._at : self._at + size]
        self._at += size
        return piece

    def number(self, format: str) -> Any:
        return struct.unpack(format, self.take(struct.calcsize(format)))[0]

    def string(self) -> str:
        return self.take(self.number("<Q")).decode()

    def value(self, kind: int) -> Any:
        """The value of an entry; None for an array, which is passed over."""
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            self._pass_array(self.number("<I"), self.number("<Q"))
            return None
        if kind not in _NUMBERS:
            raise ValueError(f"it has a value of an unknown kind {kind}")
        return self.number(_NUMBERS[kind])

    def _pass_array(self, kind: int, count: int) -> None:
        if kind in _NUMBERS:
            self._skip(count * struct.calcsize(_NUMBERS[kind]))
        elif kind == _STRING:
            # Vocabularies have a quarter of a million of them.
            data, at, length = self._data, self._at, _U64.unpack_from
            for _ in range(count):
                at += 8 + length(data, at)[0]
            self._at = at
            self._skip(0)
        else:
            raise ValueError(f"it has an array of an unknown kind {kind}")

    def _skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._data):
            raise ValueError("it ends in the middle")


def _entries(reader: _Reader) -> tuple[int, dict[str, Any]]:
    """(number of tensors, entries)"""
    if reader.take(4) != MAGIC:
        raise ValueError("it doesn't begin with GGUF")
    version = reader.number("<I")
    if version not in VERSIONS:
        raise ValueError(f"its version {version} is unknown")
    tensors = reader.number("<Q")
    count = reader.number("<Q")
    if count > MOST_ENTRIES:
        raise ValueError(f"it claims {count} entries")
    found: dict[str, Any] = {}
    for _ in range(count):
        key = reader.string()
        found[key] = reader.value(reader.number("<I"))
    return tensors, found


def _shapes(reader: _Reader) -> dict[str, tuple[int, ...]]:
    count, _ = _entries(reader)
    if count > MOST_TENSORS:
        raise ValueError(f"it claims {count} tensors")
    found = {}
    for _ in range(count):
        name, sizes = reader.string(), reader.number("<I")
        if sizes > MOST_SIZES:
            raise ValueError(f"a tensor has {sizes} sizes")
        found[name] = tuple(reader.number("<Q") for _ in range(sizes))
        reader.take(12)  # its type and its place
    return found


def _header(reader: _Reader) -> Header:
    _, found = _entries(reader)
    architecture = str(found.get("general.architecture") or "")
    template = found.get("tokenizer.chat_template")
    length, heads, kv_heads = (
        value if isinstance(value := found.get(f"{architecture}.{key}"), int) else 0
        for key in ("context_length", "attention.head_count", "attention.head_count_kv")
    )
    # Without a number of their own there are as many as heads; a list for the layers was passed over as None.
    kv_heads = kv_heads if f"{architecture}.attention.head_count_kv" in found else heads
    return Header(architecture, length, template if isinstance(template, str) else "", heads, kv_heads)
