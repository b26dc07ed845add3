"""Bundles: DATA_DIR/bundles/<digest>, a model's folder as it was deployed, read-only."""

import os
from collections.abc import Mapping
from pathlib import Path

from fornada.core.names import VersionDigest
from fornada.core.ports import BundleFile
from fornada.node.provision.disk import Disk
from fornada.node.provision.durable import disk_errors, remove, sync_folder, temporary_name, write_folder
from fornada.node.provision.held import held
from fornada.node.provision.threads import uninterrupted

FOLDER_ALLOWANCE = 4096
"""Bytes on disk that a small file or a folder may cost beyond its content."""


class Bundles:
    """The folder DATA_DIR/bundles."""

    def __init__(self, root: Path, locks: Path, *, disk: Disk) -> None:
        self.root = root
        self._locks = locks
        self._disk = disk

    async def keep(self, digest: VersionDigest, files: Mapping[str, BundleFile]) -> Path:
        """Writes the folder durably where it isn't there yet. Raises DiskFull."""
        path = self.root / digest
        async with held(self.lock_file(digest)):
            if await uninterrupted(path.is_dir):
                return path
            size = sum(len(file.data) + FOLDER_ALLOWANCE for file in files.values())
            await self._disk.room_for(size, what="this bundle")
            with disk_errors(self.root):
                await uninterrupted(self._write, path, files)
        return path

    def lock_file(self, digest: str) -> Path:
        """Held by whoever writes the folder."""
        return self._locks / f"bundle-{digest}"

    def _write(self, path: Path, files: Mapping[str, BundleFile]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        temporary = self.root / temporary_name(path.name)
        try:
            write_folder(temporary, {relative: (file.data, file.executable) for relative, file in files.items()})
            os.rename(temporary, path)
            sync_folder(self.root)
        finally:
            remove(temporary)
