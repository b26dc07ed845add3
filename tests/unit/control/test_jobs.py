"""Jobs from acceptance to their end: over a real store, with doors that answer as a test says, in virtual time."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fornada.control.jobs import STORE_PAUSE_S, Jobs
from fornada.core import errors
from fornada.core.errors import FornadaError
from fornada.core.jobs import ENDED, Ask, ItemRequest, Job, JobId, Order, Outcome, Status
from fornada.core.names import LOCAL_ACCOUNT, AccountId, ModelName
from fornada.core.policy.idle_capacity import Places
from fornada.core.policy.second_tries import MOST_ATTEMPTS
from fornada.core.requests import Priority
from fornada.core.settings import JobsSettings
from fornada.store.sqlite import SqliteStore
from fornada.telemetry.metrics import Metrics
from tests.loops.virtual import VirtualClock, virtual

A, B = ModelName("@test/a"), ModelName("@test/b")
Said = Outcome | FornadaError
Told = Callable[[Said], None]


class Ticket:
    def __init__(self, door: "Door", item: ItemRequest) -> None:
        self.door, self.item = door, item

    def leave(self) -> None:
        self.door.waiting.pop(self.item.request_id, None)
        self.door.left.append(self.item.request_id)

    def taken(self, count: int) -> None:
        pass


class Door:
    """core.jobs.ItemDoor: what it is asked waits until the test answers."""

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[ItemRequest, Told]] = {}
        self.asked: list[str] = []
        self.priorities: list[Priority] = []
        self.left: list[str] = []
        self.at_once: Callable[[ItemRequest], Said] | None = None

    def ask(self, item: ItemRequest, told: Told) -> Ticket:
        self.asked.append(item.request_id)
        self.priorities.append(item.priority)
        if self.at_once is not None:
            told(self.at_once(item))
        else:
            self.waiting[item.request_id] = (item, told)
        return Ticket(self, item)

    def refused(self, item: ItemRequest, error: FornadaError) -> Outcome:
        return Outcome(Status.FAILED, 400, error.message.encode(), item.request_id)

    def say(self, said: Said | None = None, *, id: str | None = None) -> str:
        """To the first that waits; its answer by default."""
        id = id or next(iter(self.waiting))
        item, told = self.waiting.pop(id)
        told(answer(item) if said is None else said)
        return id


def answer(item: ItemRequest) -> Outcome:
    return Outcome(Status.COMPLETED, 200, b"of " + item.body, item.request_id)


class Room:
    def __init__(self, most: int = 2) -> None:
        self.most = most
        self.overdue_s = 1e9

    def places(self, model: ModelName, *, item_s: float | None) -> Places:
        return Places(self.most, self.overdue_s)


class Stand:
    """One control plane after the other, on one store."""

    def __init__(self, path: Path, *, most: int = 2, **settings: Any) -> None:
        self.path = path
        self.settings = JobsSettings(**settings)
        self.room = Room(most)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._opened: list[SqliteStore] = []
        self._ids = map(str, itertools.count(1))
        self.metrics = Metrics()
        self.store: SqliteStore
        self.start()

    def start(self) -> None:
        self.store = SqliteStore(self.path)
        self._opened.append(self.store)
        self.door = Door()
        self.jobs = Jobs(
            store=self.store,
            room=self.room,
            clock=VirtualClock(),
            log=self,
            settings=self.settings,
            weights={},
            new_id=lambda: next(self._ids),
            metrics=self.metrics,
        )
        self.jobs.start(self.door)

    def kill(self) -> None:
        """As kill -9 would: nothing is told to anybody."""
        for handle in (self.jobs._look, self.jobs._keeping):
            if handle is not None:
                handle.cancel()
        self.store.close()

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def info(self, event: str, /, **fields: Any) -> None:
        self.events.append((event, fields))

    warning = info

    def submit(self, total: int = 3, *, model: ModelName = A, account: AccountId = LOCAL_ACCOUNT, **more: Any) -> Job:
        asks = [Ask(model, b"%d" % number) for number in range(total)]
        return self.jobs.submit(Order(account, "kind", "/x", model, asks, **more))

    def job(self, of: Job) -> Job:
        return self.jobs.job(of.id, None)

    def statuses(self, of: Job) -> str:
        """A letter each: Queued, Running, Completed, Failed, X cancelled, Expired."""
        letters = {status: "X" if status is Status.CANCELLED else status.value[0].upper() for status in Status}
        return "".join(letters[status] for status in self.jobs.statuses(self.job(of)))


Make = Callable[..., Stand]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Stand] = []

    def stand(**more: Any) -> Stand:
        made.append(Stand(tmp_path / "store.sqlite", **more))
        return made[-1]

    yield stand
    for each in made:
        each.close()


async def passes(seconds: float = 0.001) -> None:
    await asyncio.sleep(seconds)


@virtual
async def test_a_job_from_acceptance_to_its_end(make: Make):
    stand = make()
    job = stand.submit()
    assert (job.status, stand.statuses(job)) == (Status.QUEUED, "QQQ")
    await passes()
    assert (stand.job(job).status, stand.statuses(job)) == (Status.RUNNING, "RRQ")
    stand.door.say(id="1-1")
    await passes()
    assert stand.statuses(job) == "RCR"
    stand.door.say()
    stand.door.say()
    found = stand.job(job)
    assert (found.status, stand.statuses(job)) == (Status.COMPLETED, "CCC")
    assert found.created <= found.started <= found.ended
    assert [result.outcome.body for result in stand.jobs.results(found) if result.outcome] == [b"of 0", b"of 1", b"of 2"]
    assert [event for event, _ in stand.events] == ["job.accepted", "job.ended"]


@virtual
async def test_metrics_tell_of_what_waits_runs_and_has_ended(make: Make):
    stand = make(most=2)

    def shown() -> dict[str, float]:
        lines = (line.split(" ") for line in stand.metrics.render().decode().splitlines() if line.startswith("fornada_job"))
        return {name.removeprefix("fornada_"): float(value) for name, value in lines}

    stopped, job = stand.submit(4), stand.submit()
    await passes()
    assert shown() == {
        'jobs{status="queued"}': 1,
        'jobs{status="running"}': 1,
        'job_items{status="queued"}': 5,
        'job_items{status="running"}': 2,
    }
    stand.door.say()
    stand.jobs.cancel(stopped.id, None)
    for _ in range(2):
        await passes()
        stand.door.say()
    await passes()
    stand.door.say(errors.BadRequest("no"))
    assert stand.job(job).status is Status.COMPLETED
    assert {name: value for name, value in shown().items() if value} == {
        'jobs_ended_total{status="cancelled"}': 1,
        'jobs_ended_total{status="completed"}': 1,
        'job_items_ended_total{status="completed"}': 3,
        'job_items_ended_total{status="failed"}': 1,
        'job_items_ended_total{status="cancelled"}': 3,
    }


@virtual
async def test_what_was_accepted_is_done_by_whoever_comes_next_and_what_was_done_is_not_done_again(make: Make):
    stand = make()
    job = stand.submit(5)
    await passes()
    stand.door.say(id="1-0")
    await passes()
    stand.kill()
    stand.start()
    assert stand.statuses(job) == "CQQQQ"
    await passes()
    assert stand.statuses(job) == "CRRQQ"
    while stand.door.waiting:
        stand.door.say()
        await passes()
    assert (stand.job(job).status, "1-0" in stand.door.asked) == (Status.COMPLETED, False)


@virtual
async def test_a_job_whose_last_item_ended_in_the_moment_of_a_kill_is_concluded_by_the_next(make: Make):
    stand = make()
    job = stand.submit(1)
    await passes()
    stand.store.end_item(job.id, 0, Outcome(Status.COMPLETED, 200, b"x", "r"))
    stand.kill()
    stand.start()
    assert stand.job(job).status is Status.COMPLETED


@virtual
async def test_no_more_are_begun_than_there_is_room_for_and_room_is_looked_for_again(make: Make):
    stand = make(most=0)
    job = stand.submit(5)
    await passes(10)
    assert stand.statuses(job) == "QQQQQ"
    stand.room.most = 3
    await passes(0.1)
    assert stand.statuses(job) == "RRRQQ"


@virtual
async def test_where_nothing_is_left_over_one_is_begun_now_and_then_that_gives_way_to_nobody(make: Make):
    stand = make(most=0)
    stand.room.overdue_s = 10.0
    job = stand.submit(3)
    await passes(9)
    assert stand.statuses(job) == "QQQ"
    await passes(2)
    assert (stand.statuses(job), stand.door.priorities) == ("RQQ", [Priority.LOW])
    await passes(30)
    assert stand.statuses(job) == "RQQ", "the next one's time begins with the end of the last"
    stand.door.say()
    await passes(9)
    assert stand.statuses(job) == "CQQ"
    await passes(2)
    assert stand.statuses(job) == "CRQ"


@virtual
async def test_want_of_capacity_is_waited_out_and_a_refusal_for_good_fails_that_item_alone(make: Make):
    stand = make()
    job = stand.submit(3)
    await passes()
    stand.door.say(errors.Busy("full", retry_after_s=5), id="1-0")
    stand.door.say(errors.BadRequest("no"), id="1-1")
    assert stand.statuses(job) == "QFQ"
    await passes(4.9)
    assert stand.statuses(job) == "QFQ", "the model was to be left alone"
    await passes(0.3)
    assert stand.statuses(job) == "RFR"
    stand.door.say()
    stand.door.say()
    assert (stand.job(job).status, stand.statuses(job)) == (Status.COMPLETED, "CFC")


@virtual
async def test_an_item_that_takes_its_runner_with_it_is_given_up_and_a_restart_does_not_forget_how_often(make: Make):
    stand = make(most=1)
    job = stand.submit(2)
    for _ in range(MOST_ATTEMPTS):
        await passes(5)
        stand.door.say(errors.RunnerDied("it died"), id="1-0")
        stand.kill()
        stand.start()
    assert stand.statuses(job) == "FQ"
    await passes()
    stand.door.say()
    assert stand.job(job).status is Status.COMPLETED


@virtual
async def test_a_job_of_which_nothing_was_answered_has_failed(make: Make):
    stand = make()
    stand.door.at_once = lambda item: errors.ModelRaised("broken")
    job = stand.submit(10)
    await passes()
    assert (stand.job(job).status, stand.statuses(job)) == (Status.FAILED, "F" * 10)


@virtual
async def test_cancel_in_every_state(make: Make):
    stand = make(most=0)
    queued = stand.submit(2)
    assert stand.jobs.cancel(queued.id, None).status is Status.CANCELLED
    stand.room.most = 2
    running = stand.submit(3)
    await passes()
    stand.door.say(id="2-0")
    await passes()
    assert stand.jobs.cancel(running.id, LOCAL_ACCOUNT).status is Status.CANCELLED
    assert stand.statuses(running) == "CXX"
    assert sorted(stand.door.left) == ["2-1", "2-2"] and not stand.door.waiting
    assert stand.jobs.cancel(running.id, None).status is Status.CANCELLED
    stand.door.at_once = answer
    done = stand.submit(1)
    await passes()
    assert stand.jobs.cancel(done.id, None).status is Status.COMPLETED
    with pytest.raises(errors.UnknownJob):
        stand.jobs.cancel(done.id, AccountId("other"))
    await passes(10)
    assert stand.door.asked.count("2-1") == 1, "a cancelled item was begun again"


@virtual
async def test_what_is_not_done_in_its_time_expires(make: Make):
    stand = make(most=1)
    job, other = stand.submit(3, expires_s=60.0), stand.submit(1)
    await passes()
    stand.door.say(id="1-0")
    await passes(70)
    assert (stand.job(job).status, stand.statuses(job)) == (Status.EXPIRED, "CEE")
    assert stand.statuses(other) == "R", "its place is somebody else's now"


@virtual
async def test_what_ended_is_forgotten_in_its_time(make: Make):
    stand = make(keep_s=100.0)
    stand.door.at_once = answer
    job = stand.submit(1)
    await passes(90)
    assert stand.job(job).status is Status.COMPLETED
    await passes(20)
    with pytest.raises(errors.UnknownJob):
        stand.job(job)


@virtual
async def test_accounts_take_turns(make: Make):
    stand = make(most=1)
    stand.door.at_once = answer
    large, small = stand.submit(100), stand.submit(3, account=AccountId("other"))
    await passes()
    assert stand.job(large).status is stand.job(small).status is Status.COMPLETED
    first = stand.door.asked[:8]
    assert sum(id.startswith(f"{small.id}-") for id in first) == 3


@virtual
async def test_a_submit_that_is_sent_again_is_its_job_also_where_that_has_used_up_the_bound(make: Make):
    stand = make(most=0, max_items=10)
    job = stand.submit(8, key="k")
    assert stand.submit(8, key="k").id == job.id
    with pytest.raises(errors.Busy):
        stand.submit(8, key="another")


@virtual
async def test_an_account_has_a_bound_and_gets_its_place_back(make: Make):
    stand = make(most=0, max_items=10)
    job = stand.submit(8)
    with pytest.raises(errors.Busy, match="8 requests in jobs"):
        stand.submit(3)
    stand.submit(3, account=AccountId("other"))
    stand.jobs.cancel(job.id, None)
    stand.submit(10)


@virtual
async def test_while_the_disk_is_full_nothing_new_is_taken_and_what_was_accepted_stays(make: Make):
    stand = make()
    job = stand.submit(3)
    await passes()
    (pages,) = stand.store._db.execute("PRAGMA page_count").fetchone()
    stand.store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(errors.DiskFull):
        stand.submit(2000)
    stand.door.say(Outcome(Status.COMPLETED, 200, b"x" * 100_000, "r"), id="1-0")
    assert stand.statuses(job) == "QRQ"
    await passes(STORE_PAUSE_S - 1)
    assert stand.statuses(job) == "QRQ", "nothing is begun that can't be kept"
    stand.store._db.execute("PRAGMA max_page_count = 1000000")
    await passes(STORE_PAUSE_S)
    while stand.door.waiting:
        stand.door.say()
        await passes()
    assert (stand.job(job).status, stand.statuses(job)) == (Status.COMPLETED, "CCC")


@virtual
async def test_a_control_plane_that_goes_lets_its_work_end_and_takes_nothing_more(make: Make):
    stand = make()
    job = stand.submit(3)
    await passes()
    stand.jobs.close()
    assert sorted(stand.door.left) == ["1-0", "1-1"]
    with pytest.raises(errors.Unavailable):
        stand.submit(1)
    assert stand.statuses(job) == "QQQ"


@virtual
async def test_two_control_planes_at_a_time_do_not_answer_an_item_twice(make: Make):
    stand = make()
    job = stand.submit(1)
    await passes()
    old_door = stand.door
    stand.start()
    await passes()
    stand.door.say(Outcome(Status.COMPLETED, 200, b"new", "r"))
    old_door.say(Outcome(Status.COMPLETED, 200, b"old", "r"))
    (result,) = stand.jobs.results(job)
    assert result.outcome is not None and result.outcome.body == b"new"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["answer", "answer", "answer", "die", "busy", "kill", "cancel", "wait"]), max_size=40))
def test_any_order_of_what_can_happen_ends_every_job_with_every_item_answered_once(tmp_path_factory, steps):
    @virtual
    async def play() -> None:
        stand = Stand(tmp_path_factory.mktemp("jobs") / "store.sqlite")
        jobs = [stand.submit(4), stand.submit(3, account=AccountId("other"))]
        answered: dict[str, bytes] = {}
        for step in [*steps, *["answer"] * 20]:
            await passes(0.001 if step != "wait" else 2.0)
            if step == "kill":
                stand.kill()
                stand.start()
            elif step == "cancel":
                stand.jobs.cancel(jobs[1].id, None)
            elif stand.door.waiting and step != "wait":
                id = next(iter(stand.door.waiting))
                said: Said | None = {"die": errors.RunnerDied("it died"), "busy": errors.Busy("full")}.get(step)
                if said is None:
                    assert id not in answered, "answered twice"
                    answered[id] = b"of " + stand.door.waiting[id][0].body
                stand.door.say(said, id=id)
        for _ in range(100):
            await passes(2.0)
            while stand.door.waiting:
                stand.door.say()
        for job in jobs:
            assert stand.job(job).status in ENDED
            for result in stand.jobs.results(job):
                assert result.status in ENDED
                if (id := f"{job.id}-{result.number}") in answered:
                    assert result.outcome is not None and result.outcome.body == answered[id]
        stand.kill()
        stand.close()

    play()


def test_ids_are_no_secret_but_nobody_elses(make: Make):
    @virtual
    async def play() -> None:
        stand = make(most=0)
        job = stand.submit(1)
        assert stand.jobs.job(job.id, LOCAL_ACCOUNT) == stand.jobs.job(job.id, None)
        with pytest.raises(errors.UnknownJob):
            stand.jobs.job(job.id, AccountId("other"))
        with pytest.raises(errors.UnknownJob):
            stand.jobs.job(JobId("none"), None)

    play()
