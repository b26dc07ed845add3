"""What the members of a shared process may read, laid out in one directory: a process behind walls sees what it was started with.

Each member's folder and artifacts stand there as hard links, which cost neither time nor disk, and go with the member. The
directory is the host's alone, so that it shows no other account's models.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fornada.core.ports import Provisioned

FOLDER_MODE, FILE_MODE = 0o755, 0o444
FILES_MOST = 512
"""Of one model's folder: laying out more would hold up the loop."""


def files(provisioned: Provisioned) -> list[str] | None:
    """The files of the folder, relative to it; None where there are more than FILES_MOST."""
    found: list[str] = []
    for place, _, names in os.walk(provisioned.folder):
        found += [os.path.relpath(os.path.join(place, name), provisioned.folder) for name in names]
        if len(found) > FILES_MOST:
            return None
    return found


def weights_bytes(provisioned: Provisioned, names: list[str]) -> int:
    """Of all that the engine could load: the artifacts, and the files of the folder."""
    paths = [*provisioned.artifacts.values(), *(os.path.join(provisioned.folder, name) for name in names)]
    return sum(_sizes(paths))


def lay_out(place: Path, provisioned: Provisioned, names: list[str]) -> Provisioned:
    """Everything in `place`, which is made, with the paths changed to that. Raises OSError."""
    folder = place / "folder"
    _make(folder)
    for name in names:
        target = folder / name
        _make(target.parent)
        _link(os.path.join(provisioned.folder, name), target)
    artifacts = {}
    for number, (name, path) in enumerate(provisioned.artifacts.items()):
        target = place / str(number) / os.path.basename(path)
        _make(target.parent)
        _link(path, target)
        artifacts[name] = str(target)
    return msgspec.structs.replace(provisioned, folder=str(folder), artifacts=artifacts)


def _make(folder: Path) -> None:
    """With what leads there. A model may run as another user, and the node's own umask lets nobody in."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir()
        folder.chmod(FOLDER_MODE)


def _link(source: str, target: Path) -> None:
    try:
        os.link(os.path.realpath(source), target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
        target.chmod(FILE_MODE)


def _sizes(paths: list[str]) -> Iterator[int]:
    for path in paths:
        try:
            yield os.path.getsize(path)
        except OSError:
            pass  # the load will say what is wrong with it
