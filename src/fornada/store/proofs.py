"""core.proofs.ProofStore on the store's file."""

from collections.abc import Iterable

from fornada.core.names import AccountId
from fornada.core.proofs import EVERYBODY
from fornada.store.file import StoreFile


class ProofRows(StoreFile):
    """Accounts, and the sums of the files that they have brought."""

    def has_proved(self, account: AccountId, sha256: str) -> bool:
        with self._errors():
            row = self._db.execute("SELECT 1 FROM proofs WHERE sha256 = ? AND account IN (?, ?)", (sha256, account, EVERYBODY))
            return row.fetchone() is not None

    def put_proved(self, account: AccountId, sha256: str) -> None:
        with self._transaction():
            self._db.execute("INSERT OR IGNORE INTO proofs (sha256, account) VALUES (?, ?)", (sha256, account))

    def keep_proved(self, sums: Iterable[str]) -> None:
        keep = set(sums)
        with self._transaction():
            known = [sha256 for (sha256,) in self._db.execute("SELECT DISTINCT sha256 FROM proofs")]
            self._db.executemany("DELETE FROM proofs WHERE sha256 = ?", [(sha256,) for sha256 in known if sha256 not in keep])
