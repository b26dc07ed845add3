"""Jobs on this node: taken in, fed to the node in what capacity others leave, and brought to an end (core.jobs.JobsPort).

submit ──on disk──> turns of their model ──a place is free──> asked ──told──> on disk ──last one──> concluded
                        ↑                                       │
                        └──── nobody's fault: later again ──────┘

The store is written before a life is told, so that a process that dies between the two does less again and never says less than it knows.
While the disk is full nothing is begun: what ran is done again, what was accepted stays.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

from fornada.core.errors import Busy, FornadaError, Unavailable, UnknownJob
from fornada.core.jobs import ENDED, ItemDoor, ItemRequest, Job, JobId, JobRoom, JobStore, Order, Outcome, Result, Status
from fornada.core.lifecycle.job import Begun, Command, Conclude, Done, JobLife, NoteBeginning, Returned, Stopped, Withdraw
from fornada.core.names import AccountId, Instant, ModelName
from fornada.core.policy.outbound import Outbound
from fornada.core.policy.second_tries import after
from fornada.core.policy.turns_of_jobs import Turn, Turns
from fornada.core.ports import Clock, EventLog
from fornada.core.requests import Priority, Ticket
from fornada.core.settings import JobsSettings
from fornada.core.webhooks import check_url
from fornada.telemetry.metrics import Metrics, Reading

LOOK_S = 0.05
"""How often it is asked whether there is room, while items wait."""
STORE_PAUSE_S = 5.0
"""After a write that failed."""
SAMPLES = 8
"""Of how long items take."""
KEEPING_S = 1.0
"""How often it is looked whether a job has expired, or may be forgotten."""

NOWHERE_PRIVATE = Outbound()


@dataclass(slots=True)
class _Live:
    """A job that has not ended."""

    job: Job
    life: JobLife
    models: Sequence[ModelName]
    """Of its items."""
    attempts: dict[int, int]
    tickets: dict[int, Ticket | None] = field(default_factory=dict)
    """Of those that run; None until the node has given one."""


class Jobs:
    """Implements core.jobs.JobsPort. Changed in one loop alone."""

    def __init__(
        self,
        *,
        store: JobStore,
        room: JobRoom,
        clock: Clock,
        log: EventLog,
        settings: JobsSettings,
        weights: Mapping[str, float],
        new_id: Callable[[], str],
        outbound: Outbound = NOWHERE_PRIVATE,
        metrics: Metrics,
    ) -> None:
        """`weights` of accounts; `outbound` says where webhooks may go; `new_id` gives uuids that nobody can guess."""
        self._store = store
        self._door: ItemDoor
        self._room = room
        self._clock = clock
        self._log = log
        self._settings = settings
        self._weights = weights
        self._new_id = new_id
        self._outbound = outbound
        self._metrics = metrics
        metrics.jobs.read = self._jobs_now
        metrics.job_items.read = self._items_now
        self._live: dict[JobId, _Live] = {}
        self._turns: dict[ModelName, Turns] = {}
        self._running: dict[ModelName, int] = {}
        self._paused: dict[ModelName, Instant] = {}
        """Models whose items would be refused until then."""
        self._idle_since: dict[ModelName, Instant] = {}
        """Of models with waiting items: since when none has run."""
        self._took_s: dict[ModelName, deque[float]] = {}
        """How long the last items of each model took."""
        self._store_back_at = Instant(0.0)
        self._open = False
        self._untaken = False
        """There may be accepted jobs that the store couldn't tell of."""
        self._look: asyncio.TimerHandle | None = None
        self._look_at = Instant(0.0)
        self._keeping: asyncio.TimerHandle | None = None

    # ---- core.jobs.JobsPort

    def submit(self, order: Order) -> Job:
        if not self._open:
            raise Unavailable("the node is starting or stopping", retry_after_s=1.0)
        # Before anything that may refuse it: whoever asks again must hear that it was accepted, also where that has used up what he may have.
        if (same := self._store.same_job(order)) is not None:
            return same
        if order.webhook is not None:
            check_url(order.webhook, self._outbound)
        waiting = self._store.waiting_items(order.account)
        if waiting + len(order.asks) > self._settings.max_items:
            text = f"the account has {waiting} requests in jobs that have not ended, {self._settings.max_items} is the most"
            raise Busy(text, retry_after_s=60.0)
        now = self._clock.wall()
        made = Job(
            id=JobId(order.prefix + self._new_id()),
            account=order.account,
            kind=order.kind,
            target=order.target,
            model=order.model,
            status=Status.QUEUED,
            total=len(order.asks),
            created=now,
            expires=now + (self._settings.expire_s if order.expires_s is None else order.expires_s),
            note=order.note,
            caller=order.caller,
        )
        kept = self._store.put_job(made, order)
        if kept.id == made.id:
            self._log.info("job.accepted", job=made.id, account=made.account, model=made.model, items=made.total, kind=made.kind)
            self._take_up(made)
        return self.job(kept.id, order.account)

    def job(self, id: JobId, account: AccountId | None) -> Job:
        found = self._store.job(id)
        if found is None or (account is not None and found.account != account):
            raise UnknownJob(f"no such job '{id[:64]}'")
        return found

    def all(self, account: AccountId, kind: str, *, most: int, after: JobId | None = None) -> Sequence[Job]:
        return self._store.jobs(account, kind, most=most, after=after)

    def statuses(self, job: Job) -> Sequence[Status]:
        live = self._live.get(job.id)
        return live.life.items if live is not None else self._store.statuses(job.id)

    def counts(self, job: Job) -> Mapping[Status, int]:
        live = self._live.get(job.id)
        return {each: live.life.count(each) for each in Status} if live is not None else self._store.counts(job.id)

    def results(self, job: Job) -> Iterator[Result]:
        return self._store.results(job.id)

    def cancel(self, id: JobId, account: AccountId | None) -> Job:
        job = self.job(id, account)
        if job.status not in ENDED:
            self._stop(job, Status.CANCELLED)
        return self.job(id, account)

    # ---- its own life

    def start(self, door: ItemDoor) -> None:
        """Takes up what was accepted before."""
        self._door = door
        self._open = True
        self.take_up()
        self._keep()

    def take_up(self) -> None:
        """What another control plane has accepted meanwhile."""
        self._untaken = False
        try:
            for job in self._store.unfinished_jobs():
                if job.id not in self._live:
                    self._take_up(job)
        except FornadaError as error:
            self._store_failed(error)
            self._untaken = True

    def close(self) -> None:
        """Begins nothing more, and ends the work on what runs: it is done again by whoever comes next."""
        self._open = False
        for handle in (self._look, self._keeping):
            if handle is not None:
                handle.cancel()
        for live in self._live.values():
            self._withdraw(live, tuple(live.tickets))
        self._live.clear()
        self._turns.clear()

    # ---- feeding

    def _take_up(self, job: Job) -> None:
        items = self._store.items(job.id)
        live = _Live(
            job=job,
            life=JobLife([item.status for item in items], status=job.status),
            models=[item.model for item in items],
            attempts={number: item.attempts for number, item in enumerate(items) if item.attempts},
        )
        self._live[job.id] = live
        waiting: dict[ModelName, list[int]] = {}
        for number, item in enumerate(items):
            if item.status is Status.QUEUED:
                waiting.setdefault(item.model, []).append(number)
        for model, numbers in waiting.items():
            self._turns_of(model).add(job.id, job.account, numbers, created=job.created)
        self._carry_out(live, live.life.due())
        self._look_soon()

    def _turns_of(self, model: ModelName) -> Turns:
        turns = self._turns.get(model)
        if turns is None:
            turns = self._turns[model] = Turns(self._weights)
        return turns

    def _look_soon(self, wait_s: float = 0.0) -> None:
        if not self._open:
            return
        at = Instant(self._clock.now() + wait_s)
        if self._look is not None:
            if self._look_at <= at:
                return
            self._look.cancel()
        self._look, self._look_at = asyncio.get_running_loop().call_later(wait_s, self._feed), at

    def _feed(self) -> None:
        """Begins as much as there is room for."""
        self._look = None
        now = self._clock.now()
        if now < self._store_back_at:
            self._look_soon(self._store_back_at - now)
            return
        for model, turns in list(self._turns.items()):
            if now < self._paused.get(model, now):
                continue
            self._paused.pop(model, None)
            self._feed_model(model, turns, now)
            if not len(turns):
                del self._turns[model]
                self._idle_since.pop(model, None)
                if model not in self._running:
                    self._took_s.pop(model, None)
        if self._turns:
            self._look_soon(LOOK_S)

    def _feed_model(self, model: ModelName, turns: Turns, now: Instant) -> None:
        running = self._running.get(model, 0)
        most, overdue_s = self._room.places(model, item_s=max(self._took_s.get(model, ()), default=None))
        if running:
            self._idle_since[model] = now
        elif most <= 0 and now - self._idle_since.setdefault(model, now) >= overdue_s:
            self._idle_since[model] = now
            self._begin(model, turns.pop(), Priority.LOW)
            return
        for _ in range(most - running):
            if not len(turns) or model in self._paused or now < self._store_back_at:
                return
            self._begin(model, turns.pop(), Priority.JOB)

    def _begin(self, model: ModelName, turn: Turn, priority: Priority) -> None:
        live = self._live[turn.job]
        try:
            body = self._store.item_body(turn.job, turn.number)
            commands = live.life.tell(Begun(turn.number))
            live.tickets[turn.number] = None
            self._running[model] = self._running.get(model, 0) + 1
            self._carry_out(live, commands)
        except FornadaError as error:
            self._store_failed(error)
            if live.life.item(turn.number) is Status.RUNNING:
                self._return(live, turn.number)
            else:
                self._turns_of(model).give_back(turn, live.job.account, created=live.job.created)
            return
        item = ItemRequest(
            account=live.job.account,
            target=live.job.target,
            body=body,
            request_id=f"{turn.job}-{turn.number}",
            caller=live.job.caller,
            priority=priority,
        )
        ticket = self._door.ask(item, partial(self._told, live, turn.number, item, self._clock.now()))
        if turn.number in live.tickets:
            live.tickets[turn.number] = ticket

    def _told(self, live: _Live, number: int, item: ItemRequest, began: Instant, said: Outcome | FornadaError) -> None:
        """What became of an item's try."""
        attempts = live.attempts.get(number, 0)
        try:
            if isinstance(said, FornadaError):
                again = after(said, attempts=attempts)
                if again is not None:
                    if again.counts:
                        self._store.count_attempt(live.job.id, number)
                        live.attempts[number] = attempts + 1
                    self._pause(live.models[number], again.wait_s)
                    self._return(live, number)
                    return
                said = self._door.refused(item, said)
            self._store.end_item(live.job.id, number, said)
        except FornadaError as error:
            self._store_failed(error)
            self._return(live, number)
            return
        self._freed(live, number)
        self._metrics.job_items_ended.at(said.status.value).value += 1
        self._took_s.setdefault(live.models[number], deque(maxlen=SAMPLES)).append(self._clock.now() - began)
        self._carry_out(live, live.life.tell(Done(number, said.status)))
        self._look_soon()

    def _return(self, live: _Live, number: int) -> None:
        """An item waits again."""
        self._freed(live, number)
        live.life.tell(Returned(number))
        turns = self._turns_of(live.models[number])
        turns.give_back(Turn(live.job.id, number), live.job.account, created=live.job.created)
        self._look_soon(LOOK_S)

    def _freed(self, live: _Live, number: int) -> None:
        live.tickets.pop(number)
        model = live.models[number]
        self._running[model] -= 1
        if not self._running[model]:
            del self._running[model]

    def _pause(self, model: ModelName, wait_s: float) -> None:
        until = Instant(self._clock.now() + wait_s)
        self._paused[model] = max(until, self._paused.get(model, until))

    def _store_failed(self, error: FornadaError) -> None:
        self._log.warning("job.store_failed", reason=error.message)
        self._store_back_at = Instant(self._clock.now() + STORE_PAUSE_S)

    # ---- ends

    def _carry_out(self, live: _Live, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case NoteBeginning():
                    self._store.begin_job(live.job.id, self._clock.wall())
                case Withdraw(numbers):
                    self._withdraw(live, numbers)
                case Conclude(status):
                    self._conclude(live, status)
                case _:
                    assert_never(command)

    def _withdraw(self, live: _Live, numbers: Sequence[int]) -> None:
        for number in numbers:
            ticket = live.tickets[number]
            self._freed(live, number)
            if ticket is not None:
                ticket.leave()

    def _conclude(self, live: _Live, status: Status) -> None:
        """Every item has its end on disk: a job that can't be written now is concluded later, or by whoever starts next."""
        try:
            self._store.end_job(live.job.id, status, self._clock.wall())
        except FornadaError as error:
            self._store_failed(error)
            return
        self._forget(live, status)

    def _stop(self, job: Job, status: Status) -> None:
        self._store.end_job(job.id, status, self._clock.wall())
        live = self._live.get(job.id)
        if live is None or live.life.status in ENDED:
            return
        self._carry_out(live, live.life.tell(Stopped(status)))
        self._forget(live, status)

    def _forget(self, live: _Live, status: Status) -> None:
        del self._live[live.job.id]
        for model in set(live.models):
            turns = self._turns.get(model)
            if turns is not None:
                turns.remove(live.job.id)
        counts = {each.value: live.life.count(each) for each in ENDED if live.life.count(each)}
        self._metrics.jobs_ended.at(status.value).value += 1
        if status in (Status.CANCELLED, Status.EXPIRED):
            self._metrics.job_items_ended.at(status.value).value += live.life.count(status)
        self._log.info("job.ended", job=live.job.id, account=live.job.account, status=status.value, **counts)
        self._look_soon()

    # ---- keeping

    def _jobs_now(self) -> Iterator[Reading]:
        for status in (Status.QUEUED, Status.RUNNING):
            yield (status.value,), sum(live.life.status is status for live in self._live.values())

    def _items_now(self) -> Iterator[Reading]:
        for status in (Status.QUEUED, Status.RUNNING):
            yield (status.value,), sum(live.life.count(status) for live in self._live.values())

    def _keep(self) -> None:
        """What time alone does to jobs."""
        self._keeping = asyncio.get_running_loop().call_later(KEEPING_S, self._keep)
        now = self._clock.wall()
        if self._untaken:
            self.take_up()
        try:
            for live in list(self._live.values()):
                if live.life.status in ENDED:
                    self._conclude(live, live.life.status)
                elif live.job.expires <= now:
                    self._stop(live.job, Status.EXPIRED)
            self._store.remove_jobs(ended_before=now - self._settings.keep_s)
        except FornadaError as error:
            self._store_failed(error)
