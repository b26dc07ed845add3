"""Work that many ask for and that is done once."""

import asyncio
import threading

import pytest

from fornada.core.ports import Step
from fornada.node.provision.flights import Flights
from fornada.node.provision.threads import uninterrupted


def silent(step):
    pass


class Work:
    """Goes on when it is told to."""

    def __init__(self):
        self.begun = 0
        self.ended = []
        self.go = asyncio.Event()

    async def __call__(self, tell):
        self.begun += 1
        tell(Step("building", f"begun {self.begun}"))
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("done")
        return self.begun


async def until(condition):
    while not condition():
        await asyncio.sleep(0)


async def test_all_who_ask_share_one_flight_and_its_progress():
    flights: Flights[int] = Flights()
    work = Work()
    seen: list[list[Step]] = [[], []]
    first = asyncio.create_task(flights.join("k", work, seen[0].append))
    await until(lambda: work.begun)
    second = asyncio.create_task(flights.join("k", work, seen[1].append))
    await until(lambda: seen[1])
    assert seen[0] == seen[1] == [Step("building", "begun 1")], "who comes later is told where it stands"
    work.go.set()
    assert (await first, await second, work.begun) == (1, 1, 1)
    assert len(flights) == 0 and "k" not in flights


async def test_a_failure_reaches_all_and_the_next_one_tries_anew():
    flights: Flights[None] = Flights()
    tries = []

    async def fails(tell):
        tries.append(1)
        await asyncio.sleep(0)
        raise ValueError("no")

    done = await asyncio.gather(*(flights.join("k", fails, silent) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in done] == [ValueError] * 3 and len(tries) == 1
    with pytest.raises(ValueError):
        await flights.join("k", fails, silent)
    assert len(tries) == 2


async def test_who_leaves_does_not_end_it_and_the_last_one_does():
    flights: Flights[int] = Flights()
    work = Work()
    callers = [asyncio.create_task(flights.join("k", work, silent)) for _ in range(2)]
    await until(lambda: work.begun)
    callers[0].cancel()
    await asyncio.wait({callers[0]})
    assert work.ended == []
    callers[1].cancel()
    await asyncio.wait({callers[1]})
    await until(lambda: work.ended)
    assert work.ended == ["cancelled"]
    work.go.set()
    assert await flights.join("k", work, silent) == 2


async def test_close_ends_all_and_waits():
    flights: Flights[int] = Flights()
    work = Work()
    caller = asyncio.create_task(flights.join("k", work, silent))
    await until(lambda: work.begun)
    await flights.close()
    assert work.ended == ["cancelled"]
    await asyncio.wait({caller})
    assert caller.cancelled()


async def test_work_in_a_thread_is_waited_for_although_its_caller_is_cancelled():
    begun, go, ended = threading.Event(), threading.Event(), []

    def blocking():
        begun.set()
        go.wait(10)
        ended.append(True)

    task = asyncio.create_task(uninterrupted(blocking))
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
