"""core.finetunes.FinetuneStore on the store's file."""

from typing import Any

import msgspec

from fornada.core.finetunes import Finetune, FinetuneId
from fornada.core.names import AccountId
from fornada.store.file import StoreFile


class FinetuneRows(StoreFile):
    """The fine-tunes' table."""

    def put_finetune(self, finetune: Finetune) -> None:
        with self._transaction():
            row = {**msgspec.structs.asdict(finetune), "public": int(finetune.public)}
            self._db.execute(
                f"INSERT INTO finetunes ({_COLUMNS}) VALUES ({', '.join('?' * len(row))}) "
                "ON CONFLICT (id) DO UPDATE SET modified = excluded.modified",
                tuple(row.values()),
            )

    def finetune(self, id: FinetuneId) -> Finetune | None:
        found = self._finetunes("WHERE id = ?", id)
        return found[0] if found else None

    def finetunes(self, account: AccountId) -> list[Finetune]:
        return self._finetunes("WHERE account = ? ORDER BY created DESC, rowid DESC", account)

    def public_finetunes(self) -> list[Finetune]:
        return self._finetunes("WHERE public ORDER BY created DESC, rowid DESC")

    def finetune_ids(self) -> set[FinetuneId]:
        with self._errors():
            return {FinetuneId(id) for (id,) in self._db.execute("SELECT id FROM finetunes")}

    def remove_finetune(self, id: FinetuneId) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM finetunes WHERE id = ?", (id,))

    def _finetunes(self, where: str, *values: Any) -> list[Finetune]:
        with self._errors():
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM finetunes {where}", values)
            return [msgspec.convert(dict(zip(Finetune.__struct_fields__, row, strict=True)), Finetune, strict=False) for row in rows]


_COLUMNS = ", ".join(Finetune.__struct_fields__)
