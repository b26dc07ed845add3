"""A shelf of files in memory."""

from collections.abc import AsyncIterator

from fornada.core.errors import UnknownFile
from fornada.core.files import File, FileId
from fornada.core.names import AccountId


class FakeFiles:
    """Implements core.files.FilesPort."""

    def __init__(self) -> None:
        self.files: dict[FileId, tuple[File, bytes]] = {}

    async def put(self, account: AccountId, *, name: str, purpose: str, data: bytes) -> File:
        file = File(FileId(f"file-{len(self.files)}"), account, name, purpose, len(data), 1700000000.0)
        self.files[file.id] = (file, data)
        return file

    def get(self, id: FileId, account: AccountId) -> File:
        if id not in self.files or self.files[id][0].account != account:
            raise UnknownFile(f"no such file '{id}'")
        return self.files[id][0]

    def all(self, account: AccountId) -> list[File]:
        return [file for file, _ in reversed(self.files.values()) if file.account == account]

    async def content(self, file: File) -> AsyncIterator[bytes]:
        data = self.files[file.id][1]
        for at in range(0, len(data), 1000):
            yield data[at : at + 1000]

    def remove(self, id: FileId, account: AccountId) -> None:
        del self.files[self.get(id, account).id]
