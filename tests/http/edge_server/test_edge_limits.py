"""Limits of keys and accounts: which requests are refused, with which words, and what that costs others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from fornada.core.errors import FornadaError, QuotaUsedUp
from fornada.core.jobs import ItemRequest, Outcome
from fornada.core.keys import KeyId, Role
from fornada.core.names import AccountId
from fornada.core.requests import Priority
from fornada.core.settings import AuthSettings
from fornada.core.usage import Uncounted
from tests.harness.client import Response
from tests.http.edge_server.conftest import Locked
from tests.unit.edge.fakes import until

RUN = "/client/v4/accounts/{}/ai/run/@test/a"


@dataclass
class Spent(Uncounted):
    """A UsagePort whose sums a test sets."""

    neurons: dict[str, float] = field(default_factory=dict)

    def spent(self, account: AccountId, key: KeyId | None) -> float:
        return self.neurons.get(account if key is None else key, 0.0)


@pytest.fixture
def start() -> Iterator[Callable[..., Locked]]:
    made: list[Locked] = []

    def make(**settings: object) -> Locked:
        made.append(Locked(**settings))  # type: ignore[arg-type]
        made[-1].start()
        return made[-1]

    yield make
    for edge in made:
        edge.close()


def run(edge: Locked, caller: str, account: str = "mine", path: str = RUN, body: bytes = b"{}") -> Response:
    return edge.fetch("POST", path.format(account), body, headers=edge.show(caller))


def test_a_key_may_send_so_many_requests_a_minute_and_is_told_when_it_may_send_more(start: Callable[..., Locked]):
    edge = start()
    edge.create("slow", "mine", Role.USER, requests_per_minute=3)
    for _ in range(3):
        assert run(edge, "slow").status == 200
    refused = run(edge, "slow")
    assert (refused.status, refused.code) == (429, 3106)
    assert 50 <= int(refused.headers["retry-after"]) <= 60 and "x-should-retry" not in refused.headers
    assert "3 requests a minute" in refused.message
    assert run(edge, "user").status == 200, "another key of the account goes on"
    embeddings = edge.fetch("POST", "/v1/embeddings", b'{"model": "@test/a", "input": "x"}', headers=edge.show("slow"))
    assert (embeddings.status, embeddings.code) == (429, 3106), "at every door"
    assert edge.fetch("GET", "/api/v1/models", headers=edge.show("slow")).status == 200, "what runs no model is no request of it"
    assert len(edge.inference.requests) == 4


def test_all_keys_of_an_account_share_its_minute(start: Callable[..., Locked]):
    edge = start(auth=AuthSettings(account_rpm={"mine": 2}))
    assert [run(edge, caller).status for caller in ("user", "deployer", "admin")] == [200, 200, 429]
    assert run(edge, "other deployer", "other").status == 200


def test_an_account_has_its_limit_without_keys_too(start: Callable[..., Locked]):
    edge = start(keyed=False, auth=AuthSettings(account_rpm={"tenant": 1}))
    assert [run(edge, "no key", "tenant").status for _ in range(2)] == [200, 429]
    assert run(edge, "no key", "another").status == 200


def test_neurons_of_the_day_are_those_of_the_key_and_of_its_account_and_are_not_asked_for_again(start: Callable[..., Locked]):
    usage = Spent()
    edge = start(usage=usage, auth=AuthSettings(account_neurons={"mine": 100.0}))
    key = edge.create("small", "mine", Role.USER, neurons_per_day=10.0)
    assert run(edge, "small").status == 200
    usage.neurons[key.id] = 10.0
    refused = run(edge, "small")
    assert (refused.status, refused.code) == (429, 3036)
    assert refused.headers["x-should-retry"] == "false" and "retry-after" not in refused.headers
    assert "10 neurons" in refused.message
    assert run(edge, "user").status == 200
    usage.neurons["mine"] = 100.5
    assert (run(edge, "user").status, run(edge, "user").code) == (429, 3036)


def test_a_new_key_of_the_same_account_and_a_higher_limit_begin_anew(start: Callable[..., Locked]):
    edge = start()
    key = edge.create("slow", "mine", Role.USER, requests_per_minute=1)
    assert [run(edge, "slow").status for _ in range(2)] == [200, 429]
    edge.keys.revoke_key(key.id, now=2.0)
    edge.create("slow", "mine", Role.USER, requests_per_minute=2)
    assert [run(edge, "slow").status for _ in range(3)] == [200, 200, 429]


def test_items_of_jobs_are_not_paced_but_need_neurons(start: Callable[..., Locked]):
    usage = Spent()
    edge = start(usage=usage, auth=AuthSettings(account_rpm={"mine": 1}, account_neurons={"mine": 5.0}))
    told: list[Outcome | FornadaError] = []
    for priority in (Priority.JOB, Priority.LOW, Priority.JOB):
        item = ItemRequest(account=AccountId("mine"), target=RUN.format("mine"), body=b"{}", request_id="r", priority=priority)
        edge.loop.call_soon_threadsafe(edge.server.items.ask, item, told.append)
    until(lambda: len(told) == 3)
    assert all(isinstance(each, Outcome) and each.http_status == 200 for each in told)
    usage.neurons["mine"] = 5.0
    edge.loop.call_soon_threadsafe(edge.server.items.ask, item, told.append)
    until(lambda: len(told) == 4)
    assert isinstance(told[-1], QuotaUsedUp)
