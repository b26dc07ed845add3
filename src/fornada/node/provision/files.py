"""`file:` sources: files of this machine that whoever deploys may name, as far as the operator allows it.

path ── O_PATH (nothing is read, no device wakes) ──► which file is this really? ── allowed, and regular? ──► read that very one
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from fornada.node.provision.download import SourceFailed

ANY = ("/",)
_NEVER = ("/proc", "/sys", "/dev")
"""What lies there tells of processes and devices, and is no weights."""


class Files:
    """Which files a `file:` source may name."""

    def __init__(self, roots: Sequence[str], *, private: Path) -> None:
        """`roots` are directories, or none; `private` is the data directory, of which nothing may be named."""
        self.allow(roots)
        self._never = [*_NEVER, os.path.realpath(private)]

    def allow(self, roots: Sequence[str]) -> None:
        """Other directories from now on."""
        self._roots = [os.path.realpath(os.path.expanduser(root)) for root in roots]

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[Path]:
        """A path that leads to the file which was checked, whatever is done to its name meanwhile. Raises SourceFailed."""
        if not self._roots:
            raise SourceFailed("files of this machine can't be named: [provision] allow_files lists no directory")
        if not path.startswith("/"):
            raise SourceFailed("there is no such file (write file:/absolute/path)")
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (OSError, ValueError):
            # The same for what isn't there and for what may not be read: which of them it is, is nobody's business.
            raise self._no_such() from None
        try:
            same = Path(f"/proc/self/fd/{descriptor}")
            place = os.readlink(same)
            if any(_below(place, folder) for folder in self._never) or not any(_below(place, root) for root in self._roots):
                raise self._no_such()
            if not stat.S_ISREG(os.fstat(descriptor).st_mode) or not os.access(same, os.R_OK):
                raise self._no_such()
            yield same
        finally:
            os.close(descriptor)

    def _no_such(self) -> SourceFailed:
        where = "" if "/" in self._roots else f" below {', '.join(self._roots)} ([provision] allow_files)"
        return SourceFailed(f"there is no such file{where}")


def _below(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(f"{folder}/")
