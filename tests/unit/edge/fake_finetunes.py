"""Fine-tunes in memory: the control plane's own class over a store and files that are dictionaries."""

from collections.abc import Mapping
from typing import Any

from fornada.app.wiring import SystemClock
from fornada.control.finetunes import Finetunes
from fornada.core.finetunes import FILES, Finetune, FinetuneId
from fornada.core.names import AccountId
from fornada.core.settings import FinetuneSettings


class FakeRows:
    """Implements core.finetunes.FinetuneStore."""

    def __init__(self) -> None:
        self.rows: dict[FinetuneId, Finetune] = {}

    def put_finetune(self, finetune: Finetune) -> None:
        self.rows[finetune.id] = finetune

    def finetune(self, id: FinetuneId) -> Finetune | None:
        return self.rows.get(id)

    def finetunes(self, account: AccountId) -> list[Finetune]:
        return [each for each in reversed(self.rows.values()) if each.account == account]

    def public_finetunes(self) -> list[Finetune]:
        return [each for each in reversed(self.rows.values()) if each.public]

    def finetune_ids(self) -> set[FinetuneId]:
        return set(self.rows)

    def remove_finetune(self, id: FinetuneId) -> None:
        self.rows.pop(id, None)


class FakeAdapters:
    """Implements core.finetunes.AdapterFiles."""

    def __init__(self) -> None:
        self.files: dict[tuple[FinetuneId, str], bytes] = {}

    async def keep(self, finetune: Finetune, file: str, data: bytes | memoryview) -> None:
        self.files[finetune.id, file] = bytes(data)

    def complete(self, finetune: Finetune) -> bool:
        return all((finetune.id, file) in self.files for file in FILES)

    async def drop(self, finetune: Finetune) -> None:
        for file in FILES:
            self.files.pop((finetune.id, file), None)

    async def folders(self) -> dict[FinetuneId, str]:
        return {id: str(id) for id, _ in self.files}

    async def sweep(self, folders: Mapping[FinetuneId, str]) -> None:
        for id in folders:
            for file in FILES:
                self.files.pop((id, file), None)


class Silent:
    """An EventLog that nobody reads."""

    def info(self, event: str, /, **fields: Any) -> None: ...

    warning = info


class FakeFinetunes(Finetunes):
    """Implements core.finetunes.FinetunesPort."""

    def __init__(self, settings: FinetuneSettings | None = None) -> None:
        self.rows = FakeRows()
        self.adapters = FakeAdapters()
        super().__init__(
            store=self.rows,
            files=self.adapters,
            clock=SystemClock(),
            log=Silent(),
            settings=settings or FinetuneSettings(),
            new_id=lambda: f"00000000-0000-4000-8000-{len(self.rows.rows):012x}",
        )
