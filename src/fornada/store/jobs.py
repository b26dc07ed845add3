"""core.jobs.JobStore on the store's file."""

import sqlite3
from collections.abc import Iterator

from fornada.core.errors import Conflict, InternalFault
from fornada.core.jobs import Item, Job, JobId, Order, Outcome, Result, Status
from fornada.core.names import AccountId, ModelName
from fornada.store.file import StoreFile

RESULTS_AT_ONCE = 64
"""Rows that a reader of results holds: answers may be megabytes each."""
REMOVED_AT_ONCE = 1000
"""Rows: everybody else waits meanwhile."""


class JobRows(StoreFile):
    """The jobs' tables. What runs is written nowhere: after a restart nothing does."""

    def put_job(self, job: Job, order: Order) -> Job:
        with self._transaction():
            if order.key is not None:
                found = self._db.execute(
                    f"SELECT digest, {_JOB} FROM jobs WHERE account = ? AND key = ?", (order.account, order.key)
                ).fetchone()
                if found is not None:
                    if found[0] != order.digest:
                        raise Conflict("this Idempotency-Key has been used for another job; take a new one")
                    return _job(found[1:])
            row = (*[getattr(job, name) for name in Job.__struct_fields__], order.key, order.digest)
            self._db.execute(f"INSERT INTO jobs ({_JOB}, key, digest) VALUES ({', '.join('?' * len(row))})", row)
            self._db.executemany(
                "INSERT INTO items (job, number, model, reference, body) VALUES (?, ?, ?, ?, ?)",
                ((job.id, number, ask.model, ask.reference, ask.body) for number, ask in enumerate(order.asks)),
            )
            if order.webhook is not None:
                self._db.execute("INSERT INTO hooks VALUES (?, ?, 'waiting', 0, 0, '')", (job.id, order.webhook))
        return job

    def job(self, id: JobId) -> Job | None:
        with self._errors():
            row = self._db.execute(f"SELECT {_JOB} FROM jobs WHERE id = ?", (id,)).fetchone()
            return _job(row) if row is not None else None

    def unfinished_jobs(self) -> list[Job]:
        with self._errors():
            return [_job(row) for row in self._db.execute(f"SELECT {_JOB} FROM jobs WHERE ended = 0 ORDER BY created, rowid")]

    def jobs(self, account: AccountId, kind: str) -> list[Job]:
        with self._errors():
            rows = self._db.execute(
                f"SELECT {_JOB} FROM jobs WHERE account = ? AND kind = ? ORDER BY created DESC, rowid DESC", (account, kind)
            )
            return [_job(row) for row in rows]

    def items(self, id: JobId) -> list[Item]:
        with self._errors():
            rows = self._db.execute(
                f"SELECT items.model, {_STATUS}, attempts FROM items JOIN jobs ON jobs.id = items.job WHERE job = ? ORDER BY number", (id,)
            )
            return [Item(ModelName(model), Status(status), attempts) for model, status, attempts in rows]

    def item_body(self, id: JobId, number: int) -> bytes:
        with self._errors():
            row = self._db.execute("SELECT body FROM items WHERE job = ? AND number = ?", (id, number)).fetchone()
        if row is None:
            raise InternalFault(f"the job {id} has lost its item {number}")
        body: bytes = row[0]
        return body

    def begin_job(self, id: JobId, at: float) -> None:
        with self._quick_transaction():
            self._db.execute("UPDATE jobs SET status = ?, started = ? WHERE id = ? AND ended = 0", (Status.RUNNING, at, id))

    def count_attempt(self, id: JobId, number: int) -> None:
        with self._quick_transaction():
            self._db.execute("UPDATE items SET attempts = attempts + 1 WHERE job = ? AND number = ?", (id, number))

    def end_item(self, id: JobId, number: int, outcome: Outcome) -> bool:
        with self._quick_transaction():
            # Nobody asks for what was asked any more; the answer is what people come back for.
            changed = self._db.execute(
                "UPDATE items SET status = ?, http_status = ?, answer = ?, request_id = ?, body = X'' "
                "WHERE job = ? AND number = ? AND status = ? AND (SELECT ended FROM jobs WHERE id = job) = 0",
                (outcome.status, outcome.http_status, outcome.body, outcome.request_id, id, number, Status.QUEUED),
            )
            return changed.rowcount == 1

    def end_job(self, id: JobId, status: Status, at: float) -> None:
        # Its items are left as they are: writing 50,000 of them would hold everybody up. Whoever reads them looks at the job, too.
        with self._transaction():
            self._db.execute("UPDATE jobs SET status = ?, ended = ? WHERE id = ? AND ended = 0", (status, at, id))

    def results(self, id: JobId) -> Iterator[Result]:
        after = -1
        while rows := self._results(id, after):
            for number, reference, status, *outcome in rows:
                yield Result(number, reference, Status(status), _outcome(Status(status), outcome))
            after = rows[-1][0]

    def waiting_items(self, account: AccountId) -> int:
        with self._errors():
            found = self._db.execute("SELECT COALESCE(SUM(total), 0) FROM jobs WHERE account = ? AND ended = 0", (account,)).fetchone()
            return int(found[0])

    def remove_jobs(self, *, ended_before: float) -> bool:
        with self._transaction():
            row = self._db.execute("SELECT id FROM jobs WHERE ended > 0 AND ended < ? LIMIT 1", (ended_before,)).fetchone()
            if row is None:
                return False
            removed = self._db.execute(
                "DELETE FROM items WHERE rowid IN (SELECT rowid FROM items WHERE job = ? LIMIT ?)", (row[0], REMOVED_AT_ONCE)
            )
            if removed.rowcount < REMOVED_AT_ONCE:
                self._db.execute("DELETE FROM jobs WHERE id = ?", row)
                self._db.execute("DELETE FROM hooks WHERE job = ?", row)
            return True

    def _results(self, id: JobId, after: int) -> list[sqlite3.Row]:
        with self._errors():
            return self._db.execute(
                f"SELECT number, reference, {_STATUS}, http_status, answer, request_id FROM items JOIN jobs ON jobs.id = items.job "
                "WHERE job = ? AND number > ? ORDER BY number LIMIT ?",
                (id, after, RESULTS_AT_ONCE),
            ).fetchall()


_JOB = ", ".join(Job.__struct_fields__)
_STATUS = "CASE WHEN items.status = 'queued' AND jobs.ended > 0 THEN jobs.status ELSE items.status END"
"""Of an item: what has no end of its own has its job's."""


def _job(row: tuple[object, ...]) -> Job:
    fields = dict(zip(Job.__struct_fields__, row, strict=True))
    return Job(**{**fields, "status": Status(str(fields["status"]))})  # type: ignore[arg-type]


def _outcome(status: Status, row: list[object]) -> Outcome | None:
    http_status, answer, request_id = row
    if not isinstance(http_status, int) or not isinstance(answer, bytes):
        return None
    return Outcome(status, http_status, answer, str(request_id))
