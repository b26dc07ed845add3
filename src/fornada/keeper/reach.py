"""Where children see the host's files and have a uid of their own: whether that uid comes as far as to what it is given.

Landlock only takes away; what a folder's mode refuses to others it doesn't give.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fornada.keeper.orders import Sandbox
from fornada_sdk.sandbox.view import interpreter


def let_through(sandbox: Sandbox, *, below: Path) -> None:
    """Lets others pass the folders `below`, which are the node's own; they still can't list them. Raises OSError for one elsewhere
    that they can't pass."""
    paths = [grant.path for grant in sandbox.files]
    if sandbox.python:
        paths += [sandbox.python, os.path.realpath(sandbox.python), *interpreter(sandbox.python)]
    for folder in dict.fromkeys(folder for path in paths for folder in _above(path)):
        mode = stat.S_IMODE(os.stat(folder).st_mode)
        if mode & stat.S_IXOTH:
            continue
        if not (folder == below or below in folder.parents):
            raise OSError(
                errno.EACCES,
                f"at this level of isolation a model has a uid of its own, which can't pass {folder}: chmod o+x it, or use a data "
                "directory and a Python that lie elsewhere",
            )
        os.chmod(folder, mode | stat.S_IXOTH)


def _above(path: str) -> Iterator[Path]:
    """From the top."""
    yield from reversed(Path(os.path.realpath(os.path.dirname(path))).parents)
    yield Path(os.path.realpath(os.path.dirname(path)))
