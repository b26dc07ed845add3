"""The mirror that is asked before any source: a folder in which any file with that sha256 serves, or an address."""

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from fornada.node.provision.durable import write_file
from fornada.node.provision.hashing import digest_of
from fornada.node.provision.threads import uninterrupted

MOST_FILES = 100_000
Known = dict[str, tuple[list[int], str]]


class MirrorFolder:
    """Finds files by content. What was hashed once is remembered by size, times and inode, also through restarts."""

    def __init__(self, folder: Path, index: Path) -> None:
        """`index` is the file that remembers."""
        self.folder = folder
        self._index = index
        self._known: Known | None = None

    async def find(self, sha256: str, *, likely: str, told: Callable[[str], None]) -> Path | None:
        """A file with that content. `likely` is a name that it may have: such files are looked at first."""
        files = await uninterrupted(self._files)
        known = self._known = self._load() if self._known is None else self._known
        for path, seal in files:
            if known.get(str(path)) == (seal, sha256):
                return path
        unknown = [(path, seal) for path, seal in files if known.get(str(path), ([], ""))[0] != seal]
        unknown.sort(key=lambda one: (one[0].name not in (likely, sha256), one[1][0]))
        try:
            for path, seal in unknown:
                told(f"looking at {path.name} in the mirror")
                with contextlib.suppress(OSError):
                    found = await digest_of(path)
                    known[str(path)] = (seal, found)
                    if found == sha256:
                        return path
        finally:
            if unknown:
                await uninterrupted(self._save, {str(path) for path, _ in files})
        return None

    def _files(self) -> list[tuple[Path, list[int]]]:
        return [(path, seal) for path, seal in _walk(self.folder)]

    def _load(self) -> Known:
        try:
            return {path: (list(seal), str(sha256)) for path, (seal, sha256) in json.loads(self._index.read_bytes()).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _save(self, present: set[str]) -> None:
        known = {path: entry for path, entry in (self._known or {}).items() if path in present}
        with contextlib.suppress(OSError):  # without an index the folder is only hashed again
            write_file(self._index, json.dumps(known).encode())


def _walk(folder: Path) -> Iterator[tuple[Path, list[int]]]:
    count = 0
    for below, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(below, name)
            with contextlib.suppress(OSError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    yield path, [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
                    count += 1
                    if count >= MOST_FILES:
                        return
