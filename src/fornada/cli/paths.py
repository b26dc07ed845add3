"""Paths that somebody named, which may lie where this user can't look."""

import os
from pathlib import Path


def unreachable(path: Path | str) -> str:
    """Why nothing can be told of what stands there, as the system says it; empty where there is something."""
    try:
        os.stat(path)
    except OSError as error:
        return os.strerror(error.errno) if error.errno is not None else str(error)
    except ValueError as error:  # a NUL in it
        return str(error)
    return ""
