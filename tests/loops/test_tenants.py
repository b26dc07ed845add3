"""Several accounts at one model: none shuts another one out, and none has to wait behind all that another one sent."""

import asyncio
from typing import Any

import pytest

from fornada.core.errors import Busy
from fornada.core.names import ModelName
from fornada.core.requests import Priority
from tests.loops.virtual import virtual
from tests.loops.world import Caller, World


def order(callers):
    """Of their answers."""
    return [name for name, _ in sorted(callers.items(), key=lambda entry: entry[1].at)]


@virtual
async def test_one_request_beside_a_flood_is_answered_after_one_of_the_flood():
    async with World() as world:
        world.put()
        await world.answer(echo=0)
        callers: dict[Any, Caller] = {number: world.ask(account="flood", sleep_s=1.0, echo=number) for number in range(40)}
        await asyncio.sleep(0.1)
        callers["one"] = world.ask(account="other", sleep_s=1.0, echo="one")
        for caller in callers.values():
            await caller.result()
        assert order(callers).index("one") <= 2


@virtual
async def test_weights_give_shares():
    async with World(account_weights={"large": 3.0}) as world:
        world.put(serving={"queue": 200})
        await world.answer(echo=0)
        callers = {(name, number): world.ask(account=name, sleep_s=0.5) for number in range(48) for name in ("small", "large")}
        for caller in callers.values():
            await caller.result()
        first = [name for name, _ in order(callers)[:32]]
        assert first.count("large") >= 2 * first.count("small")


@virtual
async def test_a_priority_counts_within_an_account_alone():
    async with World() as world:
        world.put()
        await world.answer(echo=0)
        world.ask(sleep_s=1.0)
        callers = {
            "low": world.ask(account="a", sleep_s=1.0, priority=Priority.LOW),
            "first": world.ask(account="a", sleep_s=1.0),
            "soon": world.ask(account="a", sleep_s=1.0, timeout_s=20.0),
            "high": world.ask(account="a", sleep_s=1.0, priority=Priority.HIGH),
            "other": world.ask(account="b", sleep_s=1.0, priority=Priority.LOW),
            "job": world.ask(account="c", sleep_s=1.0, priority=Priority.JOB),
        }
        for caller in callers.values():
            await caller.result()
        mine = [name for name in order(callers) if name not in ("other", "job")]
        assert mine == ["high", "soon", "first", "low"]
        assert order(callers).index("other") <= 1 and order(callers)[-1] == "job"


@virtual
async def test_a_full_queue_has_a_place_for_whoever_has_least_in_it():
    async with World() as world:
        world.put(serving={"queue": 10})
        await world.answer(echo=0)
        world.ask(sleep_s=1.0, account="flood")
        flood = [world.ask(sleep_s=1.0, account="flood", echo=number) for number in range(10)]
        with pytest.raises(Busy):
            await world.ask(account="flood").result()
        other = world.ask(account="other", sleep_s=1.0, echo="other")
        assert (await other.result())["echo"] == "other"
        with pytest.raises(Busy, match="most of them of account flood"):
            await flood[-1].result()
        assert [(await caller.result())["echo"] for caller in flood[:-1]] == list(range(9)), "nobody else lost his place"


@virtual
async def test_who_asks_not_to_wait_takes_nobody_s_place():
    async with World() as world:
        world.put(serving={"queue": 3})
        await world.answer(echo=0)
        flood = [world.ask(sleep_s=1.0, account="flood", echo=number) for number in range(4)]
        with pytest.raises(Busy):
            await world.ask(account="other", reject_if_busy=True).result()
        assert [(await caller.result())["echo"] for caller in flood] == [0, 1, 2, 3]


@virtual
async def test_a_thousand_accounts_that_leave_again_leave_nothing():
    async with World() as world:
        world.put(serving={"queue": 5000})
        await world.answer(echo=0)
        world.ask(sleep_s=5.0, account="busy")
        callers = [world.ask(account=f"account-{number}", echo=number) for number in range(2000)]
        shown = world.node.why(ModelName("@test/a"))["queue"]
        assert shown["waiting"] == 2000 and len(shown["by_account"]) == 20
        for caller in callers:
            caller.leave()
        assert (await world.answer(account="last", echo="last"))["echo"] == "last"
