"""core.jobs.JobStore on the store's file.

What is asked for lies in a few rows of many items each, so that a job of 50,000 is written in one go; an item has a row of its own from its first
outcome on.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from fornada.core.errors import Conflict, InternalFault
from fornada.core.jobs import ENDED, Ask, Item, Job, JobId, Order, Outcome, Result, Status
from fornada.core.names import AccountId, ModelName
from fornada.store.file import StoreFile

PACKED_MOST, PACKED_BYTES = 256, 256 * 1024
"""Items of a row, and bytes beyond which it takes no more of them: what is asked for is read a row at a time."""
RESULTS_AT_ONCE = 64
"""Rows that a reader of results holds: answers may be megabytes each."""
REMOVED_AT_ONCE = 1000
"""Rows: everybody else waits meanwhile."""

_Named = list[tuple[str, str | None]]
"""Model and reference of each item of a row."""
_NAMED = msgspec.msgpack.Decoder(_Named)
_BODIES = msgspec.msgpack.Decoder(list[bytes])
_pack = msgspec.msgpack.encode


class JobRows(StoreFile):
    """The jobs' tables. What runs is written nowhere: after a restart nothing does."""

    def put_job(self, job: Job, order: Order) -> Job:
        with self._transaction():
            if (same := self.same_job(order)) is not None:
                return same
            row = (*[getattr(job, name) for name in Job.__struct_fields__], order.key, order.digest)
            self._db.execute(f"INSERT INTO jobs ({_JOB}, key, digest) VALUES ({', '.join('?' * len(row))})", row)
            self._db.executemany(
                "INSERT INTO asks (job, first, named, bodies) VALUES (?, ?, ?, ?)",
                (
                    (job.id, first, _pack([(ask.model, ask.reference) for ask in asks]), _pack([ask.body for ask in asks]))
                    for first, asks in _packed(order.asks)
                ),
            )
            if order.webhook is not None:
                self._db.execute("INSERT INTO hooks VALUES (?, ?, 'waiting', 0, 0, '')", (job.id, order.webhook))
        return job

    def same_job(self, order: Order) -> Job | None:
        if order.key is None:
            return None
        with self._errors():
            found = self._db.execute(
                f"SELECT digest, {_JOB} FROM jobs WHERE account = ? AND key = ?", (order.account, order.key)
            ).fetchone()
        if found is None:
            return None
        if found[0] != order.digest:
            raise Conflict("this Idempotency-Key has been used for another job; take a new one")
        return _job(found[1:])

    def job(self, id: JobId) -> Job | None:
        with self._errors():
            row = self._db.execute(f"SELECT {_JOB} FROM jobs WHERE id = ?", (id,)).fetchone()
            return _job(row) if row is not None else None

    def unfinished_jobs(self) -> list[Job]:
        with self._errors():
            return [_job(row) for row in self._db.execute(f"SELECT {_JOB} FROM jobs WHERE ended = 0 ORDER BY created, rowid")]

    def jobs(self, account: AccountId, kind: str, *, most: int, after: JobId | None = None) -> list[Job]:
        before = ""
        at: tuple[str, ...] = ()
        if after is not None:
            before = "AND (created, rowid) < (SELECT created, rowid FROM jobs WHERE id = ? AND account = ?) "
            at = (after, account)
        with self._errors():
            rows = self._db.execute(
                f"SELECT {_JOB} FROM jobs WHERE account = ? AND kind = ? {before}ORDER BY created DESC, rowid DESC LIMIT ?",
                (account, kind, *at, most),
            )
            return [_job(row) for row in rows]

    def items(self, id: JobId) -> list[Item]:
        usual = self._usual(self.job(id))
        with self._errors():
            rows = self._db.execute("SELECT named FROM asks WHERE job = ? ORDER BY first", (id,))
            found = [Item(ModelName(model), usual) for (named,) in rows for model, _ in _NAMED.decode(named)]
            for number, status, attempts in self._db.execute("SELECT number, status, attempts FROM items WHERE job = ?", (id,)):
                found[number] = Item(found[number].model, _status(status, usual), attempts)
        return found

    def statuses(self, id: JobId) -> list[Status]:
        job = self.job(id)
        if job is None:
            return []
        usual = self._usual(job)
        found = [usual] * job.total
        with self._errors():
            for number, status in self._db.execute("SELECT number, status FROM items WHERE job = ? AND status != 'queued'", (id,)):
                found[number] = _KNOWN[status]
        return found

    def counts(self, id: JobId) -> Mapping[Status, int]:
        job = self.job(id)
        if job is None:
            return {}
        with self._errors():
            rows = self._db.execute("SELECT status, COUNT(*) FROM items WHERE job = ? AND status != 'queued' GROUP BY status", (id,))
            found = {Status(status): int(count) for status, count in rows}
        others = job.total - sum(found.values())
        return {**found, self._usual(job): others} if others else found

    def item_body(self, id: JobId, number: int) -> bytes:
        with self._errors():
            row = self._db.execute(
                "SELECT first, bodies FROM asks WHERE job = ? AND first <= ? ORDER BY first DESC LIMIT 1", (id, number)
            ).fetchone()
        bodies = _BODIES.decode(row[1]) if row is not None and row[1] else []
        if row is None or number - row[0] >= len(bodies):
            raise InternalFault(f"the job {id} has lost its item {number}")
        body: bytes = bodies[number - row[0]]
        return body

    def begin_job(self, id: JobId, at: float) -> None:
        with self._quick_transaction():
            self._db.execute("UPDATE jobs SET status = ?, started = ? WHERE id = ? AND ended = 0", (Status.RUNNING, at, id))

    def count_attempt(self, id: JobId, number: int) -> None:
        with self._quick_transaction():
            self._db.execute(
                "INSERT INTO items (job, number, attempts) VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET attempts = attempts + 1", (id, number)
            )

    def end_item(self, id: JobId, number: int, outcome: Outcome) -> bool:
        with self._quick_transaction():
            changed = self._db.execute(
                "INSERT INTO items (job, number, status, http_status, answer, request_id) "
                "SELECT id, ?, ?, ?, ?, ? FROM jobs WHERE id = ? AND ended = 0 "
                "ON CONFLICT DO UPDATE SET status = excluded.status, http_status = excluded.http_status, answer = excluded.answer, "
                "request_id = excluded.request_id WHERE items.status = 'queued'",
                (number, outcome.status, outcome.http_status, outcome.body, outcome.request_id, id),
            )
            return changed.rowcount == 1

    def end_job(self, id: JobId, status: Status, at: float) -> None:
        # Its items are left as they are: writing 50,000 of them would hold everybody up. Whoever reads them looks at the job, too.
        with self._transaction():
            ended = self._db.execute("UPDATE jobs SET status = ?, ended = ? WHERE id = ? AND ended = 0", (status, at, id))
            if ended.rowcount:
                # Nobody asks for what was asked any more; the answers are what people come back for.
                self._db.execute("UPDATE asks SET bodies = X'' WHERE job = ?", (id,))

    def results(self, id: JobId) -> Iterator[Result]:
        usual = self._usual(self.job(id))
        for first, named in self._named(id):
            for at in range(0, len(named), RESULTS_AT_ONCE):
                rows = self._outcomes(id, first + at)
                for number, (_, reference) in enumerate(named[at : at + RESULTS_AT_ONCE], first + at):
                    status, outcome = rows.get(number, ("queued", None))
                    yield Result(number, reference, _status(status, usual), outcome)

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
                for table, column in (("asks", "job"), ("hooks", "job"), ("jobs", "id")):
                    self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", row)
            return True

    def _usual(self, job: Job | None) -> Status:
        """Of an item without an outcome: what has no end of its own has its job's."""
        return job.status if job is not None and job.status in ENDED else Status.QUEUED

    def _named(self, id: JobId) -> Iterator[tuple[int, _Named]]:
        """A row at a time: 50,000 names at once would hold everybody up."""
        with self._errors():
            begins = [first for (first,) in self._db.execute("SELECT first FROM asks WHERE job = ? ORDER BY first", (id,))]
        for first in begins:
            with self._errors():
                row = self._db.execute("SELECT named FROM asks WHERE job = ? AND first = ?", (id, first)).fetchone()
            if row is None:
                return  # forgotten meanwhile
            yield first, _NAMED.decode(row[0])

    def _outcomes(self, id: JobId, begin: int) -> dict[int, tuple[str, Outcome | None]]:
        with self._errors():
            rows = self._db.execute(
                "SELECT number, status, http_status, answer, request_id FROM items WHERE job = ? AND number >= ? AND number < ?",
                (id, begin, begin + RESULTS_AT_ONCE),
            )
            return {
                number: (status, None if status == "queued" else Outcome(Status(status), http_status, answer, request_id))
                for number, status, http_status, answer, request_id in rows
            }


_KNOWN = {status.value: status for status in Status}
_JOB = ", ".join(Job.__struct_fields__)


def _packed(asks: Sequence[Ask]) -> Iterator[tuple[int, Sequence[Ask]]]:
    """(number of the first, the items of one row)"""
    first = size = 0
    for number, ask in enumerate(asks):
        if number > first and (size >= PACKED_BYTES or number - first >= PACKED_MOST):
            yield first, asks[first:number]
            first, size = number, 0
        size += len(ask.body)
    yield first, asks[first:]


def _job(row: tuple[object, ...]) -> Job:
    fields = dict(zip(Job.__struct_fields__, row, strict=True))
    return Job(**{**fields, "status": Status(str(fields["status"]))})  # type: ignore[arg-type]


def _status(kept: str, usual: Status) -> Status:
    return usual if kept == "queued" else Status(kept)
