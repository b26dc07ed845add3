"""The content store: DATA_DIR/artifacts/<sha256>, each file what its name says.

A file is hashed when it is admitted, and again whenever its size, times or inode aren't those of that moment: a truncated,
zeroed or replaced file is found out before a model sees it, and an intact one costs one stat.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from fornada.core.ports import EventLog
from fornada.node.provision.durable import FILE_MODE, remove, sync_file, sync_folder, write_file
from fornada.node.provision.hashing import digest_of
from fornada.node.provision.threads import uninterrupted

SEALS = ".seals"
PARTIAL = ".partial"
NAMED = "named"


class Seal(NamedTuple):
    """What a file looked like when it was hashed. Restoring the other times can't restore ctime."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


class Contents:
    """Files by their sha256."""

    def __init__(self, root: Path, *, log: EventLog | None) -> None:
        self.root = root
        self._log = log
        self.partial = root / PARTIAL
        self.damaged: set[str] = set()
        """Files that were found damaged and removed, until they are there again."""

    def prepare(self) -> None:
        """Makes the folders."""
        for folder in (self.root, self.partial, self.root / SEALS, self.root / NAMED):
            folder.mkdir(parents=True, exist_ok=True)

    async def find(self, sha256: str) -> Path | None:
        """The intact file, None where there is none. A damaged one is removed."""
        path = self.root / sha256
        seal = seal_of(path)
        if seal is None:
            await uninterrupted(remove, path)  # a folder, say, that would be in the way
            return None
        if seal == self._recorded(sha256):
            return path
        if await digest_of(path) == sha256:
            self._record(sha256, seal)
            return path
        self.damaged.add(sha256)
        if self._log:
            self._log.warning("provision.damaged", file=str(path))
        await uninterrupted(remove, path)
        return None

    async def admit(self, candidate: Path, sha256: str) -> str:
        """Takes the file in if it is what it should be: "", else the sha256 that it has instead. The candidate is gone either way."""
        found = await digest_of(candidate)
        # One that is there stays: models that have it mapped would keep the other one in memory beside it.
        if found != sha256 or await self.find(sha256):
            await uninterrupted(remove, candidate)
            return "" if found == sha256 else found
        await uninterrupted(self._place, candidate, sha256)
        self.damaged.discard(sha256)
        return ""

    def named(self, sha256: str, name: str) -> Path:
        """The file under a name of its own: some engines decide by a file's ending."""
        link = self.root / NAMED / sha256 / name
        target = os.path.join("..", "..", sha256)
        with contextlib.suppress(OSError):
            if os.readlink(link) == target:
                return link
        link.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        with contextlib.suppress(FileExistsError):
            link.symlink_to(target)
        return link

    def _place(self, candidate: Path, sha256: str) -> None:
        path = self.root / sha256
        candidate.chmod(FILE_MODE)
        sync_file(candidate)
        os.rename(candidate, path)
        sync_folder(self.root)
        if seal := seal_of(path):
            self._record(sha256, seal)

    def _recorded(self, sha256: str) -> Seal | None:
        try:
            return Seal(*json.loads((self.root / SEALS / sha256).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None  # no seal, or half of one: the file is hashed again

    def _record(self, sha256: str, seal: Seal) -> None:
        with contextlib.suppress(OSError):  # without a seal the file is only hashed again
            write_file(self.root / SEALS / sha256, json.dumps(seal).encode())


def seal_of(path: Path) -> Seal | None:
    """None for anything that isn't a regular file."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    if not os.path.isfile(path):
        return None
    return Seal(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
