"""Files of a member that its process can't see: the keeper sends a descriptor of each, since nothing can be mounted there any more."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence

from fornada_sdk.runner.assignment import Assignment


class Lent:
    """Descriptors of files and folders by their paths; they are this object's. Raises OSError, with nothing left open."""

    def __init__(self, paths: Sequence[str], descriptors: Sequence[int]) -> None:
        self._descriptors = list(descriptors)
        self._names: dict[str, str] = {}
        """Path -> where it is found here."""
        self._links = ""
        try:
            for path, descriptor in zip(paths, descriptors):
                self._names[path] = self._name(path, descriptor)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """The files can't be opened any more."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        if self._links:
            shutil.rmtree(self._links, ignore_errors=True)

    def found(self, assignment: Assignment) -> Assignment:
        """The same with paths that lead to the descriptors."""
        artifacts: Mapping[str, str] = {name: self._found(path) for name, path in assignment.artifacts.items()}
        return assignment._replace(folder=self._found(assignment.folder), artifacts=artifacts, example=self._found(assignment.example))

    def _name(self, path: str, descriptor: int) -> str:
        here = f"/proc/self/fd/{descriptor}"
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return here
        # An engine tells by the ending what a file is.
        self._links = self._links or tempfile.mkdtemp(prefix="lent-")
        name = os.path.join(self._links, str(descriptor), os.path.basename(path))
        os.mkdir(os.path.dirname(name))
        os.symlink(here, name)
        return name

    def _found(self, path: str) -> str:
        for base, name in self._names.items():
            if path == base or path.startswith(base + "/"):
                return name + path[len(base) :]
        return path
