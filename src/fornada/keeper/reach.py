"""Where children have a uid of their own: whether that uid comes as far as to what it is given.

Walls only take away; what a folder's mode refuses to others they don't give.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fornada.keeper.orders import Sandbox
from fornada_sdk.sandbox.view import interpreter


def closed(python: str, data_dir: Path, *, own_mounts: bool) -> list[Path]:
    """What no child with a uid of its own could use of the node's Python, or pass on the way to its data: paths that others are kept out
    of. `own_mounts`: it is shown each by itself, so that nothing above matters."""
    parts = [Path(os.path.realpath(python)), *_libraries(python)]
    found = [path for path in parts if not _open_to_others(path)]
    if not own_mounts:
        paths = [python, *map(str, parts), *interpreter(python), str(data_dir)]
        found += [folder for path in paths for folder in _above(path) if not _passable(folder)]
    return list(dict.fromkeys(found))


def let_through(sandbox: Sandbox, *, below: Path) -> None:
    """Lets others pass the folders `below`, which are the node's own; they still can't list them. Raises OSError for one elsewhere
    that they can't pass: a Python that isn't the node's own, whose place was looked at when it started."""
    paths = [grant.path for grant in sandbox.files]
    if sandbox.python:
        paths += [sandbox.python, os.path.realpath(sandbox.python), *interpreter(sandbox.python)]
    for folder in dict.fromkeys(folder for path in paths for folder in _above(path)):
        if _passable(folder):
            continue
        if not (folder == below or below in folder.parents):
            raise OSError(
                errno.EACCES,
                f"at this level of isolation a model has a uid of its own, which can't pass {folder}: chmod o+x it, or use a data "
                "directory and a Python that lie elsewhere",
            )
        os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) | stat.S_IXOTH)


def _libraries(python: str) -> list[Path]:
    """Python's own modules: the folders, and the first that it imports."""
    prefix = Path(os.path.realpath(python)).parents[1]
    return [path for found in prefix.glob("lib*/python3*/os.py") for path in (found.parent, found)]


def _open_to_others(path: Path) -> bool:
    """Whoever executes a program or lists a folder needs both."""
    mode = path.stat().st_mode
    needed = stat.S_IROTH if stat.S_ISREG(mode) and path.suffix == ".py" else stat.S_IROTH | stat.S_IXOTH
    return mode & needed == needed


def _passable(folder: Path) -> bool:
    """One that isn't there yet will be the node's own."""
    try:
        return bool(folder.stat().st_mode & stat.S_IXOTH)
    except FileNotFoundError:
        return True


def _above(path: str) -> Iterator[Path]:
    """From the top."""
    yield from reversed(Path(os.path.realpath(os.path.dirname(path))).parents)
    yield Path(os.path.realpath(os.path.dirname(path)))
