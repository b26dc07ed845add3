"""core.webhooks.HookStore on the store's file."""

from collections.abc import Collection

from fornada.core.jobs import JobId
from fornada.core.names import AccountId
from fornada.core.webhooks import Hook, HookState
from fornada.store.file import StoreFile


class HookRows(StoreFile):
    """The webhooks' table. A job's is put in with the job, and goes with it."""

    def hook(self, job: JobId) -> Hook | None:
        with self._errors():
            row = self._db.execute(f"SELECT {_HOOK} FROM hooks WHERE job = ?", (job,)).fetchone()
            return _hook(row) if row is not None else None

    def due_hooks(self, now: float, *, most: int, besides: Collection[JobId] = (), without: Collection[AccountId] = ()) -> list[Hook]:
        with self._errors():
            columns = ", ".join(f"hooks.{name}" for name in Hook.__struct_fields__)
            rows = self._db.execute(
                f"SELECT {columns} FROM hooks JOIN jobs ON jobs.id = hooks.job "
                "WHERE hooks.state = ? AND hooks.next_at <= ? AND jobs.ended > 0 "
                f"AND hooks.job NOT IN ({_marks(besides)}) AND jobs.account NOT IN ({_marks(without)}) ORDER BY hooks.next_at LIMIT ?",
                (HookState.WAITING, now, *besides, *without, most),
            )
            return [_hook(row) for row in rows]

    def put_hook(self, hook: Hook) -> None:
        with self._quick_transaction():
            row = tuple(getattr(hook, name) for name in Hook.__struct_fields__)
            self._db.execute(f"INSERT OR REPLACE INTO hooks ({_HOOK}) VALUES (?, ?, ?, ?, ?, ?)", row)


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


_HOOK = ", ".join(Hook.__struct_fields__)


def _hook(row: tuple[str, str, str, int, float, str]) -> Hook:
    job, url, state, tries, next_at, last = row
    return Hook(JobId(job), url, HookState(state), tries, next_at, last)
