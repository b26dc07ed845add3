"""Jobs: many requests, accepted together to be done some time, whatever is killed meanwhile. Values, and the ports between those who
take them in (`edge`), who see them through (`control`), who keeps them (`store`) and who knows when there is room (`node`).

A job and its items go by the same six words; what they may become is in core.lifecycle.job.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NewType, Protocol

import msgspec

from fornada.core.errors import FornadaError
from fornada.core.keys import NO_KEY, KeyId
from fornada.core.names import AccountId, ModelName
from fornada.core.policy.idle_capacity import Places
from fornada.core.requests import Priority, Ticket

JobId = NewType("JobId", str)


class Status(enum.StrEnum):
    """Of a job, and of one of its items."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    """Of an item: answered. Of a job: every item has ended, one at least with an answer."""
    FAILED = "failed"
    """Of an item: refused for good. Of a job: every item was."""
    CANCELLED = "cancelled"
    EXPIRED = "expired"


ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.EXPIRED})


class Ask(msgspec.Struct, frozen=True):
    """One item as it was handed in."""

    model: ModelName
    """Whose turn it waits for."""
    body: bytes
    """Of the request that it stands for; JSON."""
    reference: str | None = None
    """The caller's own name for it."""


class Order(msgspec.Struct, frozen=True):
    """A job as it was handed in."""

    account: AccountId
    kind: str
    """The dialect that it came by, and by which its answers are written."""
    target: str
    """Path and query of the request that each item stands for."""
    model: str
    """As the caller named it."""
    asks: Sequence[Ask]
    expires_s: float | None = None
    """From now on, after which what isn't done is not done any more. None: as the node is set."""
    key: str | None = None
    """Idempotency-Key: the same one of the same account is the same job."""
    digest: str = ""
    """Of all that was asked, to tell the same order from another one with the same key."""
    note: str = ""
    """JSON of the dialect's own."""
    prefix: str = ""
    """Of the job's id."""
    webhook: str | None = None
    """Address that is told when the job has ended."""
    caller: KeyId = NO_KEY
    """The key that it came with, which what is used for it counts for."""


class Job(msgspec.Struct, frozen=True):
    """A job as it is kept. Times are seconds since 1970; 0: not yet."""

    id: JobId
    account: AccountId
    kind: str
    target: str
    model: str
    status: Status
    total: int
    created: float
    expires: float
    started: float = 0.0
    ended: float = 0.0
    note: str = ""
    caller: KeyId = NO_KEY


class Item(msgspec.Struct, frozen=True):
    """What is known of an item without its bytes."""

    model: ModelName
    status: Status
    attempts: int = 0
    """Times that it was begun and came to an end that might have been somebody else's fault."""


class Outcome(msgspec.Struct, frozen=True):
    """What an item came to."""

    status: Status
    """COMPLETED or FAILED."""
    http_status: int
    body: bytes
    """The answer that the request would have got; JSON."""
    request_id: str


class Result(msgspec.Struct, frozen=True):
    """An item and what it came to."""

    number: int
    reference: str | None
    status: Status
    outcome: Outcome | None = None
    """None: it never came to one."""


class JobStore(Protocol):
    """Jobs on disk. Every call may raise DiskFull; InternalFault where the disk fails otherwise."""

    def put_job(self, job: Job, order: Order) -> Job:
        """On disk when it returns. The job that the order's key has already made, where there is one.
        Raises Conflict where that was another order."""

    def same_job(self, order: Order) -> Job | None:
        """The job that the order's key has already made. Raises Conflict where that was another order."""

    def job(self, id: JobId) -> Job | None: ...

    def unfinished_jobs(self) -> list[Job]:
        """In the order in which they came."""

    def items(self, id: JobId) -> list[Item]:
        """By their numbers. None of them is `running`: that is nothing that outlives a process."""

    def statuses(self, id: JobId) -> list[Status]:
        """Of its items, by their numbers: as `items`, for less."""

    def counts(self, id: JobId) -> Mapping[Status, int]:
        """How many of its items are so, without those of which there are none: as `items`, for less."""

    def item_body(self, id: JobId, number: int) -> bytes: ...

    def begin_job(self, id: JobId, at: float) -> None:
        """Its first item is begun with. As durable as `end_item`."""

    def count_attempt(self, id: JobId, number: int) -> None:
        """As durable as `end_item`."""

    def end_item(self, id: JobId, number: int, outcome: Outcome) -> bool:
        """Whether it had no end yet. May be lost with the machine's power for some moments, never with a process; the item is done again
        then, and nobody has seen the first answer."""

    def end_job(self, id: JobId, status: Status, at: float) -> None:
        """And with it those of its items that have no end, which take the same one. Nothing changes where the job has ended. On disk
        when it returns."""

    def results(self, id: JobId) -> Iterator[Result]:
        """Of all items, by their numbers."""

    def jobs(self, account: AccountId, kind: str, *, most: int, after: JobId | None = None) -> list[Job]:
        """The newest first, of those older than `after`; none where that isn't the account's."""

    def waiting_items(self, account: AccountId) -> int:
        """Of all its jobs that have not ended, ended ones among them."""

    def remove_jobs(self, *, ended_before: float) -> bool:
        """Forgets a piece of what ended before then; whether there may be more."""


class JobsPort(Protocol):
    """Takes jobs in, and tells of them. `account` None: whoever asks may see everybody's."""

    def submit(self, order: Order) -> Job:
        """An answer is a promise: it is on disk. Raises BadRequest for a webhook that may not be, Conflict, Busy, DiskFull, Unavailable."""

    def job(self, id: JobId, account: AccountId | None) -> Job:
        """Raises UnknownJob, also for somebody else's."""

    def all(self, account: AccountId, kind: str, *, most: int, after: JobId | None = None) -> Sequence[Job]:
        """Of one dialect, the newest first, of those older than `after`; none where that isn't the account's."""

    def statuses(self, job: Job) -> Sequence[Status]:
        """Of its items, by their numbers."""

    def counts(self, job: Job) -> Mapping[Status, int]:
        """How many of its items are so; those of which there are none may be missing."""

    def results(self, job: Job) -> Iterator[Result]: ...

    def cancel(self, id: JobId, account: AccountId | None) -> Job:
        """What has no end yet gets none any more; a job that has ended stays as it is. Raises UnknownJob, DiskFull."""


class ItemRequest(msgspec.Struct, frozen=True):
    """An item that is to be answered now."""

    account: AccountId
    target: str
    body: bytes
    request_id: str
    caller: KeyId = NO_KEY
    priority: Priority = Priority.JOB
    """LOW for one that is overdue: it gives way to nobody once it is begun."""


class ItemDoor(Protocol):
    """Answers items as if somebody had sent them as requests."""

    def ask(self, item: ItemRequest, told: Callable[[Outcome | FornadaError], None]) -> Ticket:
        """`told` comes once, perhaps before this returns, and never after `leave`. An error is a refusal that may be worth another try;
        what a refusal for good looks like to the caller is `refused`."""

    def refused(self, item: ItemRequest, error: FornadaError) -> Outcome: ...


class JobRoom(Protocol):
    """Which capacity nobody else needs."""

    def places(self, model: ModelName, *, item_s: float | None) -> Places:
        """What items may have of the model now. `item_s`: about how long one takes; None: nobody knows. Callable as often as one likes."""
