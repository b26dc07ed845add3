"""What a GGUF file says of its model, read before the library loads it: a wrong file is told apart from a broken load.

Layout (little-endian): "GGUF", version u32, tensors u64, entries u64; an entry is key, type u32, value; a string is length u64, bytes.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Any, NamedTuple

from fornada_sdk.runner.engines import LoadError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_ENTRIES = 10_000
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

    @property
    def shows_tools(self) -> bool:
        """The template writes tools into the prompt by itself."""
        return "tools" in self.chat_template


def read_header(path: str) -> Header:
    """Raises LoadError for a file that is no GGUF file."""
    name = os.path.basename(path)
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _header(_Reader(data))
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


def _header(reader: _Reader) -> Header:
    if reader.take(4) != MAGIC:
        raise ValueError("it doesn't begin with GGUF")
    version = reader.number("<I")
    if version not in VERSIONS:
        raise ValueError(f"its version {version} is unknown")
    reader.number("<Q")  # tensors
    count = reader.number("<Q")
    if count > MOST_ENTRIES:
        raise ValueError(f"it claims {count} entries")
    found: dict[str, Any] = {}
    for _ in range(count):
        key = reader.string()
        found[key] = reader.value(reader.number("<I"))
    architecture = str(found.get("general.architecture") or "")
    length = found.get(f"{architecture}.context_length")
    template = found.get("tokenizer.chat_template")
    return Header(architecture, length if isinstance(length, int) else 0, template if isinstance(template, str) else "")
