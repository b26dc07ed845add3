"""Files of callers: written and read in pieces, so that a large one holds nobody up (core.files.FilesPort)."""

import asyncio
from collections.abc import AsyncIterator, Callable

from fornada.core.errors import FornadaError, TooLarge, UnknownFile
from fornada.core.files import File, FileId, FileStore
from fornada.core.names import AccountId
from fornada.core.ports import Clock, EventLog
from fornada.core.resources import format_size, parse_size
from fornada.core.settings import JobsSettings

PIECE_BYTES = 256 * 1024
MOST_FILES = 10_000
"""Of an account: empty ones take room, too, and each upload looks at all."""
KEEPING_S = 2.0
"""How often a piece of what was forgotten goes."""


class Files:
    """Implements core.files.FilesPort."""

    def __init__(
        self, *, store: FileStore, clock: Clock, log: EventLog, settings: JobsSettings, new_id: Callable[[], str], most: int = MOST_FILES
    ) -> None:
        """`most` files of an account."""
        self._store = store
        self._clock = clock
        self._log = log
        self._settings = settings
        self._most_bytes = parse_size(settings.max_files)
        self._new_id = new_id
        self._most = most
        self._writing: dict[FileId, tuple[AccountId, int]] = {}
        """Their accounts and sizes."""
        self._keeping: asyncio.TimerHandle | None = None

    async def put(self, account: AccountId, *, name: str, purpose: str, data: bytes) -> File:
        writing = [size for owner, size in self._writing.values() if owner == account]
        kept = self._store.files(account)
        if len(kept) + len(writing) >= self._most:
            raise TooLarge(f"the account has {self._most} files, which is the most: delete some that aren't needed any more")
        held = sum(file.size for file in kept) + sum(writing)
        if held + len(data) > self._most_bytes:
            raise TooLarge(
                f"the account's files take {format_size(held)}, {self._settings.max_files} is the most: delete some that aren't needed any more"
            )
        id = FileId(f"file-{self._new_id()}")
        self._writing[id] = (account, len(data))
        try:
            for number, at in enumerate(range(0, len(data), PIECE_BYTES)):
                self._store.put_piece(id, number, data[at : at + PIECE_BYTES])
                await asyncio.sleep(0)
            file = File(id, account, name, purpose, len(data), self._clock.wall())
            self._store.put_file(file)
        finally:
            del self._writing[id]
        self._log.info("file.stored", file=id, account=account, size=len(data))
        return file

    def get(self, id: FileId, account: AccountId) -> File:
        found = self._store.file(id)
        if found is None or found.account != account:
            raise UnknownFile(f"no such file '{id[:64]}'")
        return found

    def all(self, account: AccountId) -> list[File]:
        return self._store.files(account)

    async def content(self, file: File) -> AsyncIterator[bytes]:
        number = size = 0
        while data := self._store.piece(file.id, number):
            yield data
            number += 1
            size += len(data)
            await asyncio.sleep(0)
        if size != file.size:
            # Removed meanwhile: who reads it must not take a part of it for the whole.
            raise UnknownFile(f"the file '{file.id[:64]}' is there no more")

    def remove(self, id: FileId, account: AccountId) -> None:
        self._store.remove_file(self.get(id, account).id)

    def start(self) -> None:
        """Forgets what is old from now on."""
        self._keeping = asyncio.get_running_loop().call_later(KEEPING_S, self.start)
        try:
            self._store.remove_pieces(created_before=self._clock.wall() - self._settings.keep_s, writing=frozenset(self._writing))
        except FornadaError as error:
            self._log.warning("file.store_failed", reason=error.message)

    def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
