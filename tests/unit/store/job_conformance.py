"""What every driver of core.jobs.JobStore must do: subclass JobStoreConformance and give it an `open_jobs` fixture."""

from collections.abc import Callable

import pytest

from fornada.core.errors import Conflict, InternalFault
from fornada.core.jobs import Ask, Item, Job, JobId, JobStore, Order, Outcome, Result, Status
from fornada.core.keys import KeyId
from fornada.core.names import LOCAL_ACCOUNT, AccountId, ModelName

A = ModelName("@test/a")
ONE, TWO, NONE = JobId("one"), JobId("two"), JobId("none")
ANSWER = Outcome(Status.COMPLETED, 200, b'{"result":1}', "one-0")
REFUSAL = Outcome(Status.FAILED, 400, b'{"errors":[]}', "one-1")
Open = Callable[[], JobStore]


def job(id: JobId = ONE, *, account: AccountId = LOCAL_ACCOUNT, total: int = 2, created: float = 100.0) -> Job:
    return Job(id, account, "workers-ai", "/x?y=1", "a", Status.QUEUED, total, created, created + 60.0, note='{"n":1}', caller=KeyId("k"))


def order(of: Job, *, key: str | None = None, digest: str = "d") -> Order:
    asks = [Ask(A, b'{"n":%d}' % number, f"ref-{number}" if number else None) for number in range(of.total)]
    return Order(of.account, of.kind, of.target, of.model, asks, 60.0, key, digest, of.note)


def put(store: JobStore, wanted: Job, **more: str | None) -> Job:
    return store.put_job(wanted, order(wanted, **more))  # type: ignore[arg-type]


class JobStoreConformance:
    @pytest.fixture
    def open_jobs(self) -> Open:
        """Opens the same store again at each call, as a restarted node would."""
        raise NotImplementedError

    def test_it_begins_empty(self, open_jobs: Open) -> None:
        store = open_jobs()
        assert (store.job(NONE), store.unfinished_jobs(), store.items(NONE), list(store.results(NONE))) == (None, [], [], [])
        assert (store.waiting_items(LOCAL_ACCOUNT), store.counts(NONE), store.statuses(NONE)) == (0, {}, [])
        assert not store.remove_jobs(ended_before=1e12)

    def test_what_was_put_is_there_after_a_restart_and_equal(self, open_jobs: Open) -> None:
        assert put(open_jobs(), job()) == job()
        store = open_jobs()
        assert store.job(ONE) == job()
        assert store.unfinished_jobs() == [job()]
        assert store.items(ONE) == [Item(A, Status.QUEUED), Item(A, Status.QUEUED)]
        assert store.statuses(ONE) == [item.status for item in store.items(ONE)]
        assert store.counts(ONE) == {Status.QUEUED: 2}
        assert store.item_body(ONE, 1) == b'{"n":1}'
        assert list(store.results(ONE)) == [Result(0, None, Status.QUEUED), Result(1, "ref-1", Status.QUEUED)]

    def test_unfinished_ones_come_in_the_order_in_which_they_came(self, open_jobs: Open) -> None:
        store = open_jobs()
        put(store, job(TWO, created=50.0))
        put(store, job(ONE))
        assert [each.id for each in store.unfinished_jobs()] == [TWO, ONE]

    def test_the_same_key_is_the_same_job_for_its_account_alone(self, open_jobs: Open) -> None:
        store = open_jobs()
        put(store, job(), key="k")
        assert put(store, job(TWO), key="k").id == ONE
        assert store.job(TWO) is None
        elsewhere = job(TWO, account=AccountId("other"))
        assert put(store, elsewhere, key="k") == elsewhere
        with pytest.raises(Conflict, match="Idempotency-Key"):
            put(store, job(JobId("three")), key="k", digest="other")

    def test_an_item_ends_once(self, open_jobs: Open) -> None:
        store = open_jobs()
        put(store, job())
        store.begin_job(ONE, 110.0)
        store.count_attempt(ONE, 1)
        assert store.end_item(ONE, 0, ANSWER)
        assert not store.end_item(ONE, 0, REFUSAL)
        assert store.end_item(ONE, 1, REFUSAL)
        again = open_jobs()
        found = again.job(ONE)
        assert found is not None and (found.status, found.started, found.ended) == (Status.RUNNING, 110.0, 0.0)
        assert again.items(ONE) == [Item(A, Status.COMPLETED), Item(A, Status.FAILED, 1)]
        assert again.statuses(ONE) == [item.status for item in again.items(ONE)]
        assert again.counts(ONE) == {Status.COMPLETED: 1, Status.FAILED: 1}
        assert list(again.results(ONE)) == [
            Result(0, None, Status.COMPLETED, ANSWER),
            Result(1, "ref-1", Status.FAILED, REFUSAL),
        ]

    def test_a_job_ends_once_and_with_it_what_has_no_end(self, open_jobs: Open) -> None:
        store = open_jobs()
        put(store, job())
        store.end_item(ONE, 0, ANSWER)
        store.end_job(ONE, Status.CANCELLED, 120.0)
        store.end_job(ONE, Status.COMPLETED, 130.0)
        store.begin_job(ONE, 140.0)
        assert not store.end_item(ONE, 1, REFUSAL)
        again = open_jobs()
        found = again.job(ONE)
        assert found is not None and (found.status, found.started, found.ended) == (Status.CANCELLED, 0.0, 120.0)
        assert again.unfinished_jobs() == []
        assert again.items(ONE) == [Item(A, Status.COMPLETED), Item(A, Status.CANCELLED)]
        assert again.statuses(ONE) == [item.status for item in again.items(ONE)]
        assert again.counts(ONE) == {Status.COMPLETED: 1, Status.CANCELLED: 1}
        assert [each.status for each in again.results(ONE)] == [Status.COMPLETED, Status.CANCELLED]

    def test_an_account_s_jobs_come_in_pages_the_newest_first(self, open_jobs: Open) -> None:
        store = open_jobs()
        other = AccountId("other")
        for number in range(6):  # two at the same moment each
            put(store, job(JobId(str(number)), created=100.0 + number // 2))
            put(store, job(JobId(f"their {number}"), account=other, created=100.0 + number // 2))
        kind = job().kind

        def page(most: int, after: str | None = None, account: AccountId = LOCAL_ACCOUNT, of: str = kind) -> list[str]:
            return [each.id for each in store.jobs(account, of, most=most, after=JobId(after) if after else None)]

        assert page(10) == ["5", "4", "3", "2", "1", "0"]
        assert (page(4), page(4, "2"), page(1, "0")) == (["5", "4", "3", "2"], ["1", "0"], [])
        assert page(2, "their 3", other) == ["their 2", "their 1"]
        assert (page(9, "their 3"), page(9, "none"), page(9, of="another")) == ([], [], [])

    def test_what_waits_is_counted_by_account(self, open_jobs: Open) -> None:
        store = open_jobs()
        put(store, job())
        put(store, job(TWO, total=5))
        put(store, job(JobId("three"), account=AccountId("other"), total=7))
        store.end_job(ONE, Status.CANCELLED, 120.0)
        assert store.waiting_items(LOCAL_ACCOUNT) == 5

    def test_more_than_lies_together_comes_in_order(self, open_jobs: Open) -> None:
        store = open_jobs()
        put(store, job(total=1000))
        store.end_item(ONE, 700, ANSWER)
        found = list(store.results(ONE))
        assert [each.number for each in found] == list(range(1000))
        assert [each.reference for each in found] == [f"ref-{number}" if number else None for number in range(1000)]
        assert [each.number for each in found if each.outcome] == [700]
        assert [store.item_body(ONE, number) for number in (0, 255, 256, 999)] == [b'{"n":%d}' % number for number in (0, 255, 256, 999)]
        assert [item.status for item in store.items(ONE)].index(Status.COMPLETED) == 700

    def test_large_ones_lie_apart_and_come_back_whole(self, open_jobs: Open) -> None:
        store = open_jobs()
        bodies = [bytes([65 + number]) * 100_000 for number in range(10)]
        of = job(total=10)
        store.put_job(of, Order(of.account, of.kind, of.target, of.model, [Ask(A, body) for body in bodies]))
        assert [store.item_body(ONE, number) for number in range(10)] == bodies
        with pytest.raises(InternalFault):
            store.item_body(ONE, 10)

    def test_what_was_asked_is_not_kept_beyond_the_end(self, open_jobs: Open) -> None:
        store = open_jobs()
        put(store, job())
        store.end_job(ONE, Status.COMPLETED, 120.0)
        with pytest.raises(InternalFault):
            store.item_body(ONE, 0)
        assert [each.reference for each in store.results(ONE)] == [None, "ref-1"]

    def test_what_ended_long_ago_is_forgotten_piece_by_piece(self, open_jobs: Open) -> None:
        store = open_jobs()
        put(store, job(total=2500))
        for number in range(2500):
            store.end_item(ONE, number, ANSWER)
        put(store, job(TWO))
        put(store, job(JobId("three")))
        store.end_job(ONE, Status.COMPLETED, 120.0)
        store.end_job(TWO, Status.COMPLETED, 130.0)
        pieces = 0
        while store.remove_jobs(ended_before=125.0):
            pieces += 1
        assert pieces == 3
        assert store.job(ONE) is None and list(store.results(ONE)) == []
        assert store.job(TWO) is not None and store.job(JobId("three")) is not None
