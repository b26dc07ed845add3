"""A desk for jobs in memory: it accepts, and its items end when a test says so."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fornada.core.errors import Conflict, FornadaError, UnknownJob
from fornada.core.jobs import ENDED, Job, JobId, Order, Outcome, Result, Status
from fornada.core.names import AccountId


class FakeJobs:
    """Implements core.jobs.JobsPort."""

    def __init__(self) -> None:
        self.orders: dict[JobId, Order] = {}
        self.jobs: dict[JobId, Job] = {}
        self.outcomes: dict[JobId, dict[int, Outcome]] = {}
        self.refusal: FornadaError | None = None
        self.counted: list[JobId] = []
        self.read = 0
        """Results that were given out."""

    def submit(self, order: Order) -> Job:
        if self.refusal is not None:
            raise self.refusal
        for id, known in self.orders.items():
            if order.key is not None and (known.account, known.key) == (order.account, order.key):
                if known.digest != order.digest:
                    raise Conflict("this Idempotency-Key has been used for another job; take a new one")
                return self.jobs[id]
        id = JobId(f"{order.prefix}{len(self.orders) + 1:08x}-0000-4000-8000-000000000000")
        self.orders[id] = order
        self.outcomes[id] = {}
        self.jobs[id] = Job(
            id,
            order.account,
            order.kind,
            order.target,
            order.model,
            Status.QUEUED,
            len(order.asks),
            1700000000.0,
            1700086400.0,
            note=order.note,
        )
        return self.jobs[id]

    def job(self, id: JobId, account: AccountId | None) -> Job:
        found = self.jobs.get(id)
        if found is None or account not in (None, found.account):
            raise UnknownJob(f"no such job '{id}'")
        return found

    def all(self, account: AccountId, kind: str, *, most: int, after: JobId | None = None) -> Sequence[Job]:
        found = [job for job in reversed(self.jobs.values()) if (job.account, job.kind) == (account, kind)]
        ids = [job.id for job in found]
        begin = (ids.index(after) + 1 if after in ids else len(ids)) if after is not None else 0
        return found[begin : begin + most]

    def statuses(self, job: Job) -> Sequence[Status]:
        return [result.status for result in self.results(job)]

    def counts(self, job: Job) -> Mapping[Status, int]:
        self.counted.append(job.id)
        return Counter(self.statuses(job))

    def results(self, job: Job) -> Iterator[Result]:
        outcomes = self.outcomes[job.id]
        usual = job.status if job.status in ENDED else Status.QUEUED
        for number, ask in enumerate(self.orders[job.id].asks):
            outcome = outcomes.get(number)
            self.read += 1
            yield Result(number, ask.reference, outcome.status if outcome else usual, outcome)

    def cancel(self, id: JobId, account: AccountId | None) -> Job:
        job = self.job(id, account)
        if job.status not in ENDED:
            self.become(id, Status.CANCELLED)
        return self.jobs[id]

    # ---- for tests

    @property
    def last(self) -> Order:
        return list(self.orders.values())[-1]

    def become(self, id: JobId, status: Status) -> None:
        job = self.jobs[id]
        fields = {name: getattr(job, name) for name in Job.__struct_fields__}
        self.jobs[id] = Job(**{**fields, "status": status, "ended": 1700000100.0 if status in ENDED else 0.0})
