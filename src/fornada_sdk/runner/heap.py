"""What this process has freed, given back to the machine."""

from __future__ import annotations

import gc
from typing import Callable


def give_back() -> None:
    """Everything that nobody refers to any more, and the free pages in the middle of the heap. Takes as long as the process has objects:
    tenths of a second with a large framework."""
    # After its load a process froze what it had made: cycles among it (a network's layers) would never be found.
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    trimmer()()


def trimmer() -> Callable[[], object]:
    """glibc's malloc_trim: free memory in the middle of its heaps would stay the process' own."""
    try:
        import ctypes

        trim = ctypes.CDLL(None).malloc_trim
    except (ImportError, OSError, AttributeError):
        return lambda: None  # another C library
    return lambda: trim(0)
