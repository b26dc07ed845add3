"""core.finetunes.AdapterFiles below DATA_DIR/finetunes: <base_folder(model)>/<id>/<file>, readable by the runners of that model."""

import contextlib
import re
import time
from collections.abc import Mapping
from pathlib import Path

from fornada.core.finetunes import FILES, Finetune, FinetuneId, base_folder
from fornada.core.names import ModelName
from fornada.node.provision.disk import Disk
from fornada.node.provision.durable import TEMPORARY, TRASH, discard, disk_errors, remove, sync_folder, write_file
from fornada.node.provision.threads import uninterrupted

FOLDER = "finetunes"
FOLDER_MODE, FILE_MODE = 0o755, 0o644
FORGOTTEN_S = 3600.0
"""An upload that is older isn't under way any more."""
ORPHAN_S = 7 * 86400.0
"""A store that was restored by mistake names no adapter that came after it: the files wait for the right one."""
_ID = re.compile(r"[0-9a-f-]{36}\Z")


def adapters_folder(data_dir: Path, model: ModelName) -> Path:
    """The folder of a model's adapters, which is made: what isn't there can't be shown to a process."""
    folder = data_dir / FOLDER / base_folder(model)
    _make(folder.parent)
    _make(folder)
    return folder


class Adapters:
    """Implements core.finetunes.AdapterFiles."""

    def __init__(self, data_dir: Path, *, disk: Disk) -> None:
        self._folder = data_dir / FOLDER
        self._disk = disk

    async def keep(self, finetune: Finetune, file: str, data: bytes | memoryview) -> None:
        await self._disk.room_for(len(data), what="a fine-tune")
        with disk_errors(self._folder):
            await uninterrupted(self._write, self._place(finetune), file, data)

    def complete(self, finetune: Finetune) -> bool:
        return all((self._place(finetune) / file).is_file() for file in FILES)

    async def drop(self, finetune: Finetune) -> None:
        await uninterrupted(discard, self._place(finetune))

    async def folders(self) -> dict[FinetuneId, str]:
        return await uninterrupted(self._folders)

    async def sweep(self, folders: Mapping[FinetuneId, str]) -> None:
        await uninterrupted(self._sweep, [Path(place) for place in folders.values()])

    def _place(self, finetune: Finetune) -> Path:
        return self._folder / base_folder(finetune.model) / finetune.id

    def _write(self, place: Path, file: str, data: bytes | memoryview) -> None:
        for folder in (self._folder, place.parent, place):
            _make(folder)
        write_file(place / file, data, mode=FILE_MODE)
        (place / file).chmod(FILE_MODE)

    def _folders(self) -> dict[FinetuneId, str]:
        found = [place for place in self._folder.glob("*/*") if _ID.match(place.name)]
        return {FinetuneId(place.name): str(place) for place in found if time.time() - place.stat().st_mtime > ORPHAN_S}

    def _sweep(self, folders: list[Path]) -> None:
        for place in folders:
            discard(place)
        for left in self._folder.glob(f"*/{TRASH}*"):
            remove(left)
        for left in self._folder.glob(f"*/*/{TEMPORARY}*"):
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > FORGOTTEN_S:
                    remove(left)


def _make(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        folder.chmod(FOLDER_MODE)  # whatever the umask is
        sync_folder(folder.parent)
