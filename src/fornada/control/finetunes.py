"""Fine-tunes of accounts (core.finetunes.FinetunesPort).

    row ─► folder, file by file ─► complete          row removed ─► folder removed

The row comes first and goes first: what a kill leaves is a folder that belongs to nothing, which is removed once it is a week old, and a part
of an upload, after an hour.
"""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from fornada.core.errors import BadRequest, FinetuneIncomplete, FornadaError, TooLarge, TooManyFinetunes, UnknownFinetune
from fornada.core.finetunes import (
    CONFIG,
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    WEIGHTS,
    AdapterFiles,
    Finetune,
    FinetuneId,
    FinetuneStore,
    check_file,
)
from fornada.core.names import AccountId, ModelName
from fornada.core.ports import Clock, EventLog
from fornada.core.resources import parse_size
from fornada.core.settings import FinetuneSettings

SWEEP_S = 3600.0
"""How often what a kill left is looked for: the start that follows at once can't tell it from what another control plane writes."""


class Finetunes:
    """Implements core.finetunes.FinetunesPort."""

    def __init__(
        self,
        *,
        store: FinetuneStore,
        files: AdapterFiles,
        clock: Clock,
        log: EventLog,
        settings: FinetuneSettings,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._files = files
        self._clock = clock
        self._log = log
        self._settings = settings
        self._new_id = new_id
        self._sweeping: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    @property
    def most_bytes(self) -> int:
        return parse_size(self._settings.max_file)

    def create(self, account: AccountId, *, model: ModelName, name: str, description: str, public: bool) -> Finetune:
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise BadRequest(f"'/name' must have 1 to {LONGEST_NAME} printable characters")
        if len(description) > LONGEST_DESCRIPTION:
            raise BadRequest(f"'/description' has more than {LONGEST_DESCRIPTION} characters")
        most = self._settings.max_per_account
        if len(self._store.finetunes(account)) >= most:
            raise TooManyFinetunes(f"the account has {most} fine-tunes, which is the most ([finetunes] max_per_account): delete some")
        now = self._clock.wall()
        made = Finetune(FinetuneId(self._new_id()), account, model, name, description, public, now, now)
        self._store.put_finetune(made)
        self._log.info("finetune.created", finetune=made.id, account=account, model=model)
        return made

    def all(self, account: AccountId) -> list[Finetune]:
        return self._store.finetunes(account)

    def public(self) -> list[Finetune]:
        return self._store.public_finetunes()

    async def upload(self, id: FinetuneId, account: AccountId, *, file: str, data: bytes | memoryview) -> Finetune:
        found = self._own(id, account)
        if len(data) > self.most_bytes:
            raise TooLarge(f"'{file[:64]}' is larger than {self._settings.max_file}, the most that [finetunes] max_file allows")
        check_file(file, data, most_rank=self._settings.max_rank)
        try:
            await self._files.keep(found, file, data)
        except FileNotFoundError:  # the folder went under it
            if self._store.finetune(id) is not None:
                raise
        if self._store.finetune(id) is None:  # deleted meanwhile
            await self._files.drop(found)
            raise _unknown(id)
        modified = msgspec.structs.replace(found, modified=self._clock.wall())
        self._store.put_finetune(modified)
        self._log.info("finetune.uploaded", finetune=id, file=file, size=len(data))
        return modified

    async def remove(self, id: FinetuneId, account: AccountId) -> None:
        found = self._own(id, account)
        self._store.remove_finetune(id)
        await self._files.drop(found)
        self._log.info("finetune.removed", finetune=id, account=account)

    def find(self, account: AccountId, named: str) -> Finetune:
        by_id = self._store.finetune(FinetuneId(named))
        if by_id is not None and (by_id.public or by_id.account == account):
            return self._complete(by_id)
        own = [each for each in self._store.finetunes(account) if each.name == named]
        public = [each for each in reversed(self._store.public_finetunes()) if each.name == named]
        found = own or public
        if not found:
            raise _unknown(named)
        # One that was begun and never filled is in nobody's way.
        return self._complete(next((each for each in found if self._files.complete(each)), found[0]))

    def start(self) -> None:
        """Removes what a kill left, in the background, from now on."""
        self._sweeping = asyncio.create_task(self._sweep_on(), name="sweep fine-tunes")

    async def close(self) -> None:
        self._closed.set()
        if self._sweeping is not None:
            await asyncio.wait({self._sweeping})

    async def _sweep_on(self) -> None:
        while True:
            try:
                await self._sweep()
            except (FornadaError, OSError) as error:  # the next time it may be possible
                self._log.warning("finetune.unswept", reason=str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), SWEEP_S)
                return

    async def _sweep(self) -> None:
        folders = await self._files.folders()
        # Rows are older than their folders: who has a folder by now and no row yet has none any more.
        rows = self._store.finetune_ids()
        await self._files.sweep({id: place for id, place in folders.items() if id not in rows})

    def _own(self, id: FinetuneId, account: AccountId) -> Finetune:
        found = self._store.finetune(id)
        if found is None or found.account != account:
            raise _unknown(id)
        return found

    def _complete(self, finetune: Finetune) -> Finetune:
        if not self._files.complete(finetune):
            raise FinetuneIncomplete(f"Finetune is missing required files ({WEIGHTS} and {CONFIG})")
        return finetune


def _unknown(named: str) -> UnknownFinetune:
    return UnknownFinetune(f"no such fine-tune '{named[:64]}'")
