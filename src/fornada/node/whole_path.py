"""Paths that an operator wrote, as the walls around models take them."""

import os
from pathlib import Path


def whole_path(written: Path | str) -> Path:
    """Absolute and without `..`, since walls hold no other: `..` behind a symbolic link leads where the kernel says. Other links stay as
    they are written. Raises RuntimeError where `~` names nobody's home."""
    path = Path(written).expanduser().absolute()
    return Path(os.path.realpath(path)) if ".." in path.parts else path
