"""What a runner does when it has had nothing to do for a while: mapped weights go out of its memory and stay in the page cache.

The node's keeper could do the same from outside (process_madvise), but only with rights that few have, and only in a way that takes
the pages out of the cache, too: the next request would read them from the disk. A process itself can let go of them alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

LEAST_BYTES = 1024 * 1024
"""Smaller mappings aren't worth a look."""
MADV_DONTNEED = 4
_READ_ONLY = ("r--p", "r--s")


class _Mapping(NamedTuple):
    start: int
    size: int
    path: str


def give_back(paths: Sequence[str]) -> int:
    """Lets go of the read-only mappings of these files, and of all files in these folders. How many bytes they spanned.

    A mapping with pages of its own, which no file could bring back, is left alone; a page that is touched again is mapped again.
    """
    roots = [os.path.realpath(path) for path in paths]
    if not any(_is_ours(mapping, roots) for mapping in _mappings("/proc/self/maps")):
        return 0
    try:
        import ctypes  # most models map nothing, and needn't carry it
    except ImportError:  # a Python built without it
        return 0
    madvise = ctypes.CDLL(None).madvise
    found = [mapping for mapping in _mappings("/proc/self/smaps") if _is_ours(mapping, roots)]
    gone = [m for m in found if madvise(ctypes.c_void_p(m.start), ctypes.c_size_t(m.size), MADV_DONTNEED) == 0]
    return sum(mapping.size for mapping in gone)


def _is_ours(mapping: _Mapping, roots: Sequence[str]) -> bool:
    return mapping.size >= LEAST_BYTES and any(mapping.path == root or mapping.path.startswith(root.rstrip("/") + "/") for root in roots)


def _mappings(file: str) -> Iterator[_Mapping]:
    """Read-only ones of files, from maps or smaps (proc_pid_maps(5)); of smaps only those whose every page is the file's."""
    last = None
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                words = line.split(None, 5)
                if "-" in words[0]:
                    if last is not None:
                        yield last
                    last = None
                    if words[1] in _READ_ONLY and len(words) == 6 and words[5].startswith("/"):
                        start, end = (int(word, 16) for word in words[0].split("-"))
                        last = _Mapping(start, end - start, words[5].rstrip("\n"))
                elif words[0] in ("Anonymous:", "Locked:") and words[1] != "0":
                    last = None
    except OSError:  # without /proc there is nothing to be known
        return
    if last is not None:
        yield last
