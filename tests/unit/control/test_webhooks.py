"""Webhooks of jobs that have ended: sent once each where all goes well, and in nobody's way where it doesn't."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fornada.control.webhooks import AT_ONCE, EACH, Webhooks
from fornada.core.errors import BadRequest
from fornada.core.jobs import JobId
from fornada.core.names import AccountId
from fornada.core.webhooks import MOST_TRIES, HookFailed, HookRefused, HookState
from tests.loops.virtual import VirtualClock, virtual
from tests.unit.control.test_jobs import Stand, answer, passes

URL = "https://hooks.test/x"


class Port:
    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self.hangs = 0

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> None:
        self.got.append({"url": url, "body": json.loads(body), "headers": headers})
        if self.hangs:
            self.hangs -= 1
            await asyncio.sleep(1e6)
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def sending(tmp_path: Path) -> Iterator["Sending"]:
    made = Sending(tmp_path)
    yield made
    made.stand.close()


class Sending:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.sqlite"
        self.port = Port()

    def begin(self) -> None:
        """Within the loop."""
        self.stand = Stand(self.path)
        self.stand.door.at_once = answer
        self.start()

    def start(self) -> None:
        self.webhooks = Webhooks(
            store=self.stand.store, jobs=self.stand.jobs, port=self.port, secret=b"secret", clock=VirtualClock(), log=self.stand
        )
        self.webhooks.start()

    def state(self, job: JobId) -> HookState:
        hook = self.stand.store.hook(job)
        assert hook is not None
        return hook.state


@virtual
async def test_the_end_of_a_job_is_told_once(sending: Sending):
    sending.begin()
    job = sending.stand.submit(2, webhook=URL)
    assert sending.state(job.id) is HookState.WAITING
    await passes(60)
    (got,) = sending.port.got
    assert got["url"] == URL and got["headers"]["x-fornada-signature"].startswith("t=")
    assert (got["body"]["id"], got["body"]["status"], got["body"]["counts"]) == (job.id, "completed", {"completed": 2})
    assert sending.state(job.id) is HookState.SENT
    sending.webhooks.close()


@virtual
async def test_a_job_without_a_webhook_tells_nobody_and_one_that_is_cancelled_does(sending: Sending):
    sending.begin()
    sending.stand.submit(1)
    sending.stand.room.most = 0
    job = sending.stand.submit(1, webhook=URL)
    await passes(10)
    assert [each["body"]["id"] for each in sending.port.got] == []
    sending.stand.jobs.cancel(job.id, None)
    await passes(10)
    assert [each["body"]["status"] for each in sending.port.got] == ["cancelled"]
    sending.webhooks.close()


@virtual
async def test_a_receiver_that_is_down_is_tried_a_bounded_number_of_times(sending: Sending):
    sending.begin()
    sending.port.failure = HookFailed("no answer")
    job = sending.stand.submit(1, webhook=URL)
    await passes(3600)
    assert (len(sending.port.got), sending.state(job.id)) == (MOST_TRIES, HookState.GIVEN_UP)
    sending.webhooks.close()


@virtual
async def test_a_restart_goes_on_where_the_tries_were(sending: Sending):
    sending.begin()
    sending.port.failure = HookFailed("no answer")
    job = sending.stand.submit(1, webhook=URL)
    await passes(5)
    before = len(sending.port.got)
    sending.webhooks.close()
    sending.stand.kill()
    sending.stand.start()
    sending.start()
    await passes(3600)
    assert 0 < before < len(sending.port.got) == MOST_TRIES
    assert sending.state(job.id) is HookState.GIVEN_UP
    sending.webhooks.close()


@virtual
async def test_an_address_that_turns_out_to_be_private_is_given_up_at_once(sending: Sending):
    sending.begin()
    sending.port.failure = HookRefused("its address isn't public")
    job = sending.stand.submit(1, webhook=URL)
    await passes(60)
    assert (len(sending.port.got), sending.state(job.id)) == (1, HookState.GIVEN_UP)
    sending.webhooks.close()


@virtual
async def test_receivers_that_hang_hold_up_neither_jobs_nor_cancels_nor_other_receivers(sending: Sending):
    sending.begin()
    sending.port.hangs = 5
    hung = [sending.stand.submit(1, webhook=URL) for _ in range(5)]
    await passes(10)
    job = sending.stand.submit(1, webhook=URL)
    await passes(10)
    assert sending.state(job.id) is HookState.SENT
    assert {sending.state(each.id) for each in hung} == {HookState.WAITING}
    assert len(sending.port.got) == 6
    sending.webhooks.close()


@virtual
async def test_a_webhook_that_may_not_be_makes_no_job(sending: Sending):
    sending.begin()
    with pytest.raises(BadRequest):
        sending.stand.submit(1, webhook="http://127.0.0.1/")
    assert sending.stand.store.unfinished_jobs() == []
    sending.webhooks.close()


@virtual
async def test_receivers_of_one_account_that_hang_hold_up_nobody_else(sending: Sending):
    sending.begin()
    sending.port.hangs = 1000
    for _ in range(3 * AT_ONCE):
        sending.stand.submit(1, webhook=URL, account=AccountId("slow"))
    await passes(10)
    assert len(sending.port.got) == EACH
    sending.port.hangs = 0
    job = sending.stand.submit(1, webhook=URL, account=AccountId("other"))
    await passes(2)
    assert sending.state(job.id) is HookState.SENT
    sending.webhooks.close()


@virtual
async def test_many_webhooks_of_one_account_are_all_sent(sending: Sending):
    sending.begin()
    jobs = [sending.stand.submit(1, webhook=URL) for _ in range(3 * AT_ONCE)]
    await passes(60)
    assert {sending.state(job.id) for job in jobs} == {HookState.SENT}
    assert sorted(each["body"]["id"] for each in sending.port.got) == sorted(job.id for job in jobs)
    sending.webhooks.close()
