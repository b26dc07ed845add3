"""Files that callers hand in for their jobs: values and ports."""

from collections.abc import AsyncIterator
from typing import NewType, Protocol

import msgspec

from fornada.core.names import AccountId

FileId = NewType("FileId", str)


class File(msgspec.Struct, frozen=True):
    """A file that is there whole."""

    id: FileId
    account: AccountId
    name: str
    purpose: str
    size: int
    created: float
    """Seconds since 1970."""


class FileStore(Protocol):
    """Files on disk, in pieces: each call takes a moment, whatever the file's size. Every call may raise DiskFull; InternalFault where the
    disk fails otherwise."""

    def put_piece(self, id: FileId, number: int, data: bytes) -> None:
        """Of a file that isn't there yet."""

    def put_file(self, file: File) -> None:
        """Its pieces are there: now it is. On disk when it returns."""

    def file(self, id: FileId) -> File | None: ...

    def files(self, account: AccountId) -> list[File]:
        """The newest first."""

    def piece(self, id: FileId, number: int) -> bytes:
        """Empty after the last one."""

    def remove_file(self, id: FileId) -> None:
        """It isn't there any more; its pieces go with `remove_pieces`."""

    def remove_pieces(self, *, created_before: float, writing: frozenset[FileId] = frozenset()) -> bool:
        """Forgets files from before then, and some pieces of what belongs to no file, nor to one of `writing`; whether there were any."""


class FilesPort(Protocol):
    """Takes files in. What belongs to another account isn't there."""

    async def put(self, account: AccountId, *, name: str, purpose: str, data: bytes) -> File:
        """Raises TooLarge where the account has too much, DiskFull."""

    def get(self, id: FileId, account: AccountId) -> File:
        """Raises UnknownFile."""

    def all(self, account: AccountId) -> list[File]:
        """The newest first."""

    def content(self, file: File) -> AsyncIterator[bytes]:
        """Raises UnknownFile, perhaps in the middle, where it is removed meanwhile."""

    def remove(self, id: FileId, account: AccountId) -> None:
        """Raises UnknownFile."""
